"""Columns of an operand that the tiles of turns share, in a team's registers.

    for k: scores = q K^T     ->     q_held <- q[:, begin:]
                                     for k: scores = q[:, :begin] K[:, :begin]^T
                                            scores += q_held K[:, begin:]^T

Each contraction of scores reads all of q from shared memory once more, which takes as long as the
products do. What a lane has registers left for (`PipelinePlan.held_registers`) is read once.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import const, free_vars
from tilecore.ir.layout import FragmentLayout, Layout
from tilecore.ir.stmts import Allocate, Block, Copy, Gemm
from tilecore.ir.visit import bound_vars, walk_stmts
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
    granule = layout.axes[first.b.buffer.rank - 1][0].extent
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
