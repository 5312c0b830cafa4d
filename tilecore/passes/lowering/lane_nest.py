"""A nest with its loop layout spelt out for one lane: digits, coordinates, validity."""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Region
from tilecore.ir.expr import Expr, Var, all_of, binary, const, free_vars
from tilecore.ir.layout import FragmentLayout
from tilecore.ir.stmts import Block, For, LoopKind, Parallel
from tilecore.ir.visit import substitute_block, walk_stmts
from tilecore.passes.lowering.lane_scope import LaneScope
from tilecore.passes.spread import register_modes


@dataclass(frozen=True, slots=True)
class Nest:
    """One nest while it is lowered.

    Attributes:
        nest: the nest over its own variables.
        extents: upper bounds of its extents.
        loop: the loop layout.
        digits: one unrolled loop per register mode, slowest first.
        at: nest variable -> coordinate, in terms of lane and digits.
        valid: the condition that the iteration exists.
    """

    nest: Parallel
    extents: tuple[int, ...]
    loop: FragmentLayout
    digits: tuple[tuple[Var, int], ...]
    at: dict[Var, Expr]
    valid: Expr


def prepare_nest(
    nest: Parallel, extents: tuple[int, ...], loop: FragmentLayout, scope: LaneScope
) -> Nest:
    """Make the digits and coordinates of `nest` under the loop layout `loop`."""
    modes = register_modes(loop)
    digits = tuple(
        (scope.var(_name(nest.vars[axis].name), 0, mode.extent - 1), mode.extent)
        for axis, _, mode in modes
    )
    at: dict[Var, Expr] = {}
    needed: list[Expr] = []
    parts = scope.thread_parts(loop)
    for axis, var in enumerate(nest.vars):
        total = parts[axis]
        for (digit, _), (digit_axis, weight, _) in zip(digits, modes, strict=True):
            if digit_axis == axis:
                total = binary("add", total, binary("mul", digit, const(weight)))
        at[var] = scope.simplify(total)
        below = binary("lt", at[var], nest.extents[axis])
        if not scope.ranges.proves(below):
            needed.append(below)
    valid = all_of((*needed, scope.in_use(loop)))
    return Nest(nest, extents, loop, digits, at, valid)


def _name(base: str) -> str:
    return {"__0": "i", "__1": "j", "__2": "k", "__3": "l"}.get(base, base.lstrip("_") or "i")


def unrolled(digit: Var, extent: int, body: Block) -> For:
    """An unrolled loop over ``0 .. extent - 1``."""
    return For(digit, const(0), const(extent), const(1), body, LoopKind.UNROLL)


def span(buffer: Buffer, start: int | Expr, width: int) -> Region:
    """`width` elements of a flat buffer."""
    first = const(start) if isinstance(start, int) else start
    return Region(buffer, (first,), (const(width),))


def mentions(expr: Expr, var: Var) -> bool:
    """True when `var` occurs in `expr`."""
    return var in free_vars(expr)


def with_new_loops(block: Block, scope: LaneScope) -> Block:
    """`block` with its loops over variables of new names: names are unique in a program."""
    mapping: dict[Var, Expr] = {
        stmt.var: scope.var(stmt.var.name, *scope.ranges.interval(stmt.var))
        for stmt in walk_stmts(block)
        if isinstance(stmt, For)
    }
    return substitute_block(block, mapping)
