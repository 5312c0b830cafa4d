"""Read gemm operands that a loop does not change into registers once, before the loop.

    for k: gemm q, K -> S      ->      q_held <- q
                                       for k: gemm q_held, K -> S

Shared memory is then read once instead of in every iteration, and its bytes are free for what the
loop copies there. Done where the pipeline plan wishes it (`PipelinePlan.hold_operands`) and the
operand takes few registers. The gemm gets the hint ``held``: its operand lies as the atom wants
it, so the backend may choose the same atom as for memory.
"""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Region, Scope
from tilecore.ir.expr import Var, free_vars
from tilecore.ir.layout import FragmentLayout, Layout
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Allocate, Block, Copy, For, Gemm, Let, Stmt
from tilecore.ir.visit import walk_stmts
from tilecore.passes.contraction import select_atom, tile_mma
from tilecore.passes.infer_layouts import operand_layouts
from tilecore.passes.producers import any_writes
from tilecore.passes.scopes import Names, loads_in, static, whole, with_hint

MOST_REGISTERS = 64
"""32-bit registers of one lane for one held operand."""
HELD = "held"
"""Hint of a gemm whose operand was made a fragment here."""


def hold_operands(
    loop: For,
    kernel: Kernel,
    layouts: dict[str, Layout | FragmentLayout],
    names: Names,
    context: Context,
) -> tuple[Block, For]:
    """(what reads operands before the loop, the loop with held operands).

    Layouts of the new fragments are added to `layouts`.
    """
    before: list[Stmt] = []
    body: list[Stmt] = []
    for stmt in loop.body:
        if isinstance(stmt, Gemm):
            for field in ("a", "b"):
                stmt = _hold(stmt, field, loop, kernel, layouts, names, context, before)
        body.append(stmt)
    return tuple(before), dataclasses.replace(loop, body=tuple(body))


def _hold(
    gemm: Gemm, field: str, loop: For, kernel: Kernel, layouts: dict[str, Layout | FragmentLayout],
    names: Names, context: Context, before: list[Stmt],
) -> Gemm:  # fmt: skip
    """`gemm` with one operand held, or as it is."""
    region: Region = getattr(gemm, field)
    if region.buffer.scope is not Scope.SHARED or not _is_constant(region, loop):
        return gemm
    held = names.buffer(f"{region.buffer.name}_held", static(region), region.dtype, Scope.FRAGMENT)
    hints = with_hint(gemm.hints, HELD, True)
    new = dataclasses.replace(gemm, **{field: whole(held)}, hints=hints)
    layout = layout_in_registers(gemm, new, field, kernel, context)
    if layout is None:
        return gemm
    if layout.registers * region.dtype.bits > 32 * MOST_REGISTERS:
        return gemm
    layouts[held.name] = layout
    before += [Allocate(held, loc=gemm.loc), Copy(region, whole(held), (), gemm.loc)]
    return new


def _is_constant(region: Region, loop: For) -> bool:
    """True when the loop neither writes the operand nor moves where it begins."""
    inside: set[Var] = {loop.var}
    inside |= {stmt.var for stmt in walk_stmts(loop.body) if isinstance(stmt, Let | For)}
    moves = any(free_vars(start) & inside or loads_in(start) for start in region.starts)
    return not moves and not any_writes(loop.body, region.buffer)


def layout_in_registers(
    usual: Gemm, gemm: Gemm, field: str, kernel: Kernel, context: Context
) -> FragmentLayout | None:
    """The layout in which the atom of `gemm` wants operand `field`, where that has no padding.

    None, too, where it is another atom than the `usual` one on shared memory.
    """
    atom = select_atom(gemm, kernel.threads, context)
    if atom != select_atom(usual, kernel.threads, context):
        return None
    if atom is None or atom.a is None or atom.b is None or atom.register_dtype is not None:
        return None
    tiled = tile_mma(gemm, atom, kernel.threads)
    a, b = operand_layouts(gemm, tiled.a_layout, tiled.b_layout)
    layout = a if field == "a" else b
    region: Region = getattr(gemm, field)
    return layout if layout is not None and layout.shape == static(region) else None
