"""Columns of an operand that the tiles of turns share, in a team's registers.

    for k: scores = q K^T     ->     q_held <- q[:, begin:]
                                     for k: scores = q[:, :begin] K[:, :begin]^T
                                            scores += q_held K[:, begin:]^T

Each contraction of scores reads all of q from shared memory once more, which takes as long as the
products do. What a lane has registers left for (`PipelinePlan.held_registers`) is read once. With
three slots or more it has no place in shared memory where nothing else reads it there.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import const, free_vars
from tilecore.ir.layout import FragmentLayout, Layout
from tilecore.ir.stmts import Allocate, Block, Copy, Gemm, Stmt
from tilecore.ir.visit import bound_vars, buffers_in, walk_stmts
from tilecore.passes.contraction import select_atom, tile_mma
from tilecore.passes.producers import any_writes
from tilecore.passes.scopes import loads_in, static, whole, with_hint
from tilecore.passes.turns.team_columns import columns_of
from tilecore.passes.turns.turns_schedule import Turns

if TYPE_CHECKING:
    from tilecore.passes.roles.specialize_warps import Specializer


def hold_columns(own: Specializer, turns: Turns, registers: int) -> tuple[Block, Turns]:
    """(what reads the held columns before the loop, turns that know them).

    Args:
        own: the kernel, whose layouts get that of the new fragment.
        turns: whose last part of the scores' columns may be held.
        registers: 32-bit registers of a lane for it.
    """
    first = turns.first
    if first.transpose_a or not first.transpose_b or not _is_constant(first.a, turns):
        return (), turns
    layout = own.layouts.get(first.b.buffer.name)
    width = static(first.a)[-1]
    if not isinstance(layout, Layout) or first.a.buffer.scope is not Scope.SHARED:
        return (), turns
    granule = layout.axes[-1][0].extent
    last = static(turns.groups[-1].copies[0].dst)[-1] if len(turns.groups) > 1 else width
    rows = static(first.a)[0]
    name = own.names.fresh(f"{first.a.buffer.name}_held")
    for count in range(last // granule * granule, 0, -granule):
        buffer = Buffer(name, (const(rows), const(count)), first.a.dtype, Scope.FRAGMENT)
        found = _from_registers(own, first, buffer)
        if found is None:
            return (), turns
        gemm, in_registers = found
        if -(-in_registers.registers * buffer.dtype.bits // 32) <= registers:
            own.layouts[buffer.name] = in_registers
            columns = columns_of(first.a, const(width - count), count)
            before = (Allocate(buffer, loc=first.loc), Copy(columns, gemm.a, (), first.loc))
            return before, dataclasses.replace(turns, held=gemm)
    return (), turns


def narrowed(
    own: Specializer, turns: Turns, held: Block, staying: list[Stmt]
) -> tuple[list[Stmt], Block, Turns]:
    """Held columns come from global memory, and the operand in shared memory loses them.

    Args:
        own: the kernel, whose buffers and layouts get the narrower operand.
        turns: with held columns, or without.
        held: what reads them (`hold_columns`).
        staying: the statements around the loop, and the loop.

    Returns:
        `staying`, `held` and `turns`, changed where one copy fills the whole operand and only the
        loop reads it.
    """
    wide = turns.first.a.buffer
    fills = [s for s in staying if isinstance(s, Copy) and s.dst == whole(wide)]
    users = [s for s in staying if wide in buffers_in((s,))]
    layout = own.layouts.get(wide.name)
    unchanged = staying, held, turns
    if turns.held is None or len(fills) != 1 or len(users) != 2 or not isinstance(layout, Layout):
        return unchanged
    (fill,) = fills
    *allocated, read = held
    count = static(turns.held.a)[-1]
    left = static(wide)[-1] - count
    *other_axes, modes = layout.axes
    is_read = isinstance(read, Copy) and fill.fills_shared and len(fill.src.axes) == wide.rank
    if not is_read or len(modes) != 2 or left == 0 or left % modes[0].extent:
        return unchanged
    shape = (*wide.shape[:-1], const(left))
    name = own.names.fresh(f"{wide.name}_rest")
    narrow = dataclasses.replace(wide, name=name, shape=shape)
    panels = dataclasses.replace(modes[1], extent=left // modes[0].extent)
    del own.layouts[wide.name]
    own.layouts[name] = dataclasses.replace(layout, axes=(*other_axes, (modes[0], panels)))
    for k, stmt in enumerate(own.common):
        if isinstance(stmt, Allocate) and stmt.buffer == wide:
            own.common[k] = dataclasses.replace(stmt, buffer=narrow)
    rest = dataclasses.replace(fill, src=columns_of(fill.src, const(0), left), dst=whole(narrow))
    read = dataclasses.replace(read, src=columns_of(fill.src, const(left), count))
    # Columns behind the last one are those that are held: no part of the contraction reads them.
    first = dataclasses.replace(turns.first, a=dataclasses.replace(turns.first.a, buffer=narrow))
    kept = [rest if s is fill else s for s in staying]
    return kept, (*allocated, read), dataclasses.replace(turns, first=first)


def _is_constant(region: Region, turns: Turns) -> bool:
    """True when the loop neither writes the operand nor moves where it begins."""
    inside = {var for stmt in walk_stmts((turns.loop,)) for var in bound_vars(stmt)}
    moves = any(free_vars(start) & inside or loads_in(start) for start in region.starts)
    return not moves and not any_writes(turns.loop.body, region.buffer)


def _from_registers(
    own: Specializer, first: Gemm, held: Buffer
) -> tuple[Gemm, FragmentLayout] | None:
    """The last columns of a contraction with its left operand in `held`, and that operand's
    layout; None where no atom takes it so."""
    count = static(held)[1]
    b = columns_of(first.b, const(static(first.b)[1] - count), count)
    gemm = dataclasses.replace(first, a=whole(held), b=b)
    atom = select_atom(gemm, own.kernel.threads, own.context)
    if atom is None or atom.a is None or atom.b is not None or atom.register_dtype is not None:
        return None
    tiled = tile_mma(gemm, atom, own.kernel.threads)
    same_sums = tiled.c_layout == own.layouts.get(first.c.buffer.name)
    if not same_sums or tiled.a_layout is None or tiled.a_layout.shape != static(held):
        return None
    gemm = dataclasses.replace(gemm, hints=with_hint(gemm.hints, "atom", atom.name))
    return gemm, tiled.a_layout
