"""Rules about layouts: they fit their buffers, and no two elements share a place."""

from __future__ import annotations

from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.layout import FragmentLayout, Layout
from tilecore.ir.program import Kernel, Level
from tilecore.ir.verifier.state import State
from tilecore.ir.visit import walk_stmts


def check_layouts(kernel: Kernel, state: State) -> None:
    """All layouts of a kernel; from the scheduled level on, every on-chip tile has one.

    Raises:
        TilecoreError: of the class that `State.fail` chooses.
    """
    names = [name for name, _ in kernel.layouts]
    if names != sorted(set(names)):
        state.fail("layouts are not sorted by name", sorted(set(names)), names)
    tiles: dict[str, Buffer] = {}
    views: set[str] = set()
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, S.Allocate | S.Alias) and stmt.buffer.scope is not Scope.GLOBAL:
            tiles[stmt.buffer.name] = stmt.buffer
            if isinstance(stmt, S.Alias):
                views.add(stmt.buffer.name)
    if state.is_lane:
        return  # buffers are flat; the layouts stay as a record
    for name, layout in kernel.layouts:
        if name not in tiles:
            state.fail("a layout of what is no buffer on the chip", sorted(tiles), name)
        state.loc = tiles[name].loc or kernel.loc
        check_layout(tiles[name], layout, kernel, state)
    if state.level is Level.SCHEDULED:
        for name, buffer in tiles.items():
            needs_one = buffer.scope in (Scope.SHARED, Scope.FRAGMENT) and name not in views
            if needs_one and name not in names:
                state.fail(f"the {buffer.scope} buffer {name} has no layout")


def check_layout(
    buffer: Buffer, layout: Layout | FragmentLayout, kernel: Kernel, state: State
) -> None:
    """One layout: of the right kind, covering the shape, injective, on threads that exist."""
    if isinstance(layout, FragmentLayout) and buffer.scope is not Scope.FRAGMENT:
        state.fail(f"the {buffer.scope} buffer {buffer.name} has a fragment layout", "a layout")
    shape = buffer.static_shape or ()
    if len(layout.axes) != buffer.rank:
        state.fail(f"the layout of {buffer.name} has the wrong rank", buffer.rank, len(layout.axes))
    if any(have < need for have, need in zip(layout.shape, shape, strict=True)):
        state.fail(f"the layout of {buffer.name} is too small", shape, layout.shape)
    if isinstance(layout, Layout):
        if not layout.is_injective():
            state.fail(f"the layout of {buffer.name} puts two elements in one place", got=layout)
        return
    if layout.threads > kernel.threads:
        state.fail(
            f"the layout of {buffer.name} needs more threads", kernel.threads, layout.threads
        )
    if not layout.is_injective():
        state.fail(f"the layout of {buffer.name} puts two elements in one place", got=layout)
