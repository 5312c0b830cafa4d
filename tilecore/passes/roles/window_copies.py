"""Windows of an image as copies that producer warps may take over.

While roles are planned, ``tile.windows`` stands as a copy from the matrix that the windows are: a
global buffer that exists nowhere. What comes out is ``bulk.load_windows``, or nests.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import binary
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Copy, Hints, Intrinsic, Stmt
from tilecore.ir.visit import map_stmts, walk_stmts
from tilecore.ir.windows import Windows, windows_of
from tilecore.passes.gather_windows import GATHERED, gathered, is_windows
from tilecore.passes.scopes import Names, with_hint

LOAD_WINDOWS = "bulk.load_windows"
NOT_PRODUCED = "its loop has no producer warps"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCopy(Copy):
    """A copy whose source is the matrix of `windows`."""

    windows: Windows


def source_of(copy: Copy) -> Buffer:
    """The buffer that a copy reads."""
    return copy.windows.image if isinstance(copy, WindowCopy) else copy.src.buffer


def as_copies(kernel: Kernel, names: Names) -> Kernel:
    """The kernel with copies in place of ``tile.windows``."""

    def visit(stmt: Stmt) -> Stmt | None:
        if not is_windows(stmt):
            return None
        windows, dst, row, column = windows_of(stmt)
        view = matrix(windows, names.fresh(f"{windows.image.name}_windows"))
        src = Region(view, (row, column), dst.shape)
        return WindowCopy(src, dst, loc=stmt.loc, windows=windows)

    return dataclasses.replace(kernel, body=map_stmts(kernel.body, visit))


def matrix(windows: Windows, name: str) -> Buffer:
    """The windows as a buffer of (output pixels, elements of a window)."""
    batch, *_ = windows.image.shape
    rows = batch
    for extent in windows.outputs:
        rows = binary("mul", rows, extent)
    shape = (rows, windows.columns)
    return Buffer(name, shape, windows.image.dtype, Scope.GLOBAL, loc=windows.image.loc)


def has_window_copies(kernel: Kernel) -> bool:
    """True when a copy of windows was left to lanes, which cannot make it."""
    return any(isinstance(stmt, WindowCopy) for stmt in walk_stmts(kernel.body))


def gathered_because(kernel: Kernel, names: Names, reasons: dict[str, str]) -> Kernel:
    """The kernel with nests in place of ``tile.windows``, and why in its hints."""
    hints = kernel.hints
    for stmt in walk_stmts(kernel.body):
        if is_windows(stmt):
            name = windows_of(stmt)[1].buffer.name
            hints = with_hint(hints, f"{GATHERED}.{name}", reasons.get(name, NOT_PRODUCED))
    return gathered(dataclasses.replace(kernel, hints=hints), names)


def bulk_load(copy: Copy, src: Region, dst: Region, full: Region, hints: Hints = ()) -> Intrinsic:
    """The operation that fills `dst` from `src` as `copy` does, and completes on `full`."""
    if not isinstance(copy, WindowCopy):
        return Intrinsic("bulk.load", (src, dst, full), hints, copy.loc)
    row, column = src.starts
    fill = copy.windows.fill(dst, row, column)
    args = (*fill.args, full)
    return Intrinsic(LOAD_WINDOWS, args, tuple(sorted((*fill.hints, *hints))), copy.loc)
