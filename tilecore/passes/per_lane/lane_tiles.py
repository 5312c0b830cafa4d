"""Programs written per lane: tile statements on a lane's own operands become its own loops.

A copy, fill or tile atomic that reads or writes a local buffer, or whose place depends on the lane,
is done by every lane for itself. Everything else stays a statement of the whole block.

    copy x[t * 4:+4] -> a[:]      ->      for i in unroll(4) { a[i] = x[t * 4 + i] }
"""

from __future__ import annotations

import dataclasses

from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Cast, Const, Expr, Load, Var, const
from tilecore.ir.lane_dependence import (
    depends_on_lane,
    is_per_lane,
    lane_dependent_names,
)
from tilecore.ir.program import Kernel, Program
from tilecore.ir.visit import exprs_of, map_stmts, regions_of
from tilecore.passes.scopes import Names, per_kernel

_UNROLLED = 64  # elements of a local buffer that stay registers


def lane_tiles(program: Program, context: object = None) -> Program:
    """See the module's text; kernels that are not written per lane stay as they are."""
    del context
    if not any(is_per_lane(kernel.body) for kernel in program.kernels):
        return program
    names = Names(program)

    def visit(kernel: Kernel) -> Kernel:
        if not is_per_lane(kernel.body):
            return kernel
        varying = lane_dependent_names(kernel.body)

        def one(stmt: S.Stmt) -> S.Block | None:
            if _is_own(stmt, varying):
                return _spelt_out(stmt, names)
            return None

        return dataclasses.replace(kernel, body=map_stmts(kernel.body, one))

    return per_kernel(program, visit)


def _is_own(stmt: S.Stmt, varying: frozenset[str]) -> bool:
    is_tile = isinstance(stmt, S.Copy | S.Fill) or (
        isinstance(stmt, S.Atomic) and isinstance(stmt.value, Region)
    )
    if not is_tile:
        return False
    local = any(region.buffer.scope is Scope.LOCAL for region in regions_of(stmt))
    return local or any(depends_on_lane(expr, varying) for expr in exprs_of(stmt))


def _spelt_out(stmt: S.Stmt, names: Names) -> S.Block:
    shape = (stmt.src if isinstance(stmt, S.Copy) else stmt.dst).shape  # type: ignore[attr-defined]
    at = tuple(Var(names.fresh("i"), int32) for _ in shape)
    body: S.Block = (_element(stmt, at),)
    total = 1
    for extent in shape:
        total *= int(extent.value) if isinstance(extent, Const) else _UNROLLED + 1
    kind = S.LoopKind.UNROLL if total <= _UNROLLED else S.LoopKind.SERIAL
    for var, extent in zip(reversed(at), reversed(shape), strict=True):
        loc = stmt.loc  # type: ignore[attr-defined]
        body = (S.For(var, const(0), extent, const(1), body, kind, loc=loc),)
    return body


def _element(stmt: S.Stmt, at: tuple[Expr, ...]) -> S.Stmt:
    match stmt:
        case S.Copy(src=src, dst=dst, loc=loc):
            value = _cast(Load(src.buffer, src.indices(at)), dst.buffer)
            return S.Store(dst.buffer, dst.indices(at), value, loc)
        case S.Fill(dst=dst, value=value, loc=loc):
            return S.Store(dst.buffer, dst.indices(at), value, loc)
        case S.Atomic(op=op, dst=dst, value=Region() as value, memory_order=order, loc=loc):
            point = Region(dst.buffer, dst.indices(at), (None,) * dst.buffer.rank)
            loaded = _cast(Load(value.buffer, value.indices(at)), dst.buffer)
            return S.Atomic(op, point, loaded, order, None, loc)
        case _:
            raise AssertionError(stmt)


def _cast(value: Load, like: Buffer) -> Expr:
    return value if value.dtype == like.dtype else Cast(value, like.dtype)
