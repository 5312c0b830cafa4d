"""The places where an elementwise nest touches buffers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Expr, Load, Select, Var
from tilecore.ir.stmts import Atomic, Block, For, If, Parallel, Store
from tilecore.ir.visit import exprs_of


@dataclass(frozen=True, slots=True)
class Access:
    """One place where a nest touches a buffer.

    `inner` are the serial loops inside the nest around it: (variable, start, extent).
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_write: bool
    is_conditional: bool
    inner: tuple[tuple[Var, Expr, Expr], ...] = ()


def covers(nest: Parallel, access: Access) -> bool:
    """True when a nest touches every element of a buffer there, one in each iteration."""
    return (
        not access.is_conditional
        and access.indices == nest.vars
        and nest.extents == access.buffer.shape
    )


def accesses_of(nest: Parallel) -> list[Access]:
    """All accesses of a nest, in program order; reads before the write of each statement."""
    return list(_accesses(nest.body, False, ()))


def _accesses(
    block: Block, conditional: bool, inner: tuple[tuple[Var, Expr, Expr], ...]
) -> Iterator[Access]:
    for stmt in block:
        for expr in exprs_of(stmt):
            yield from _loads(expr, conditional, inner)
        match stmt:
            case Store(buffer=buffer, indices=indices):
                yield Access(buffer, indices, True, conditional, inner)
            case Atomic(dst=dst):
                yield Access(dst.buffer, dst.starts, True, True, inner)
            case For(var=var, start=start, extent=extent, body=body):
                yield from _accesses(body, conditional, (*inner, (var, start, extent)))
            case If(then=then, otherwise=otherwise):
                yield from _accesses(then, True, inner)
                yield from _accesses(otherwise, True, inner)
            case _:
                pass


def _loads(
    expr: Expr, conditional: bool, inner: tuple[tuple[Var, Expr, Expr], ...]
) -> Iterator[Access]:
    if isinstance(expr, Select):
        yield from _loads(expr.condition, conditional, inner)
        yield from _loads(expr.a, True, inner)
        yield from _loads(expr.b, True, inner)
        return
    for child in expr.children:
        yield from _loads(child, conditional, inner)
    if isinstance(expr, Load):
        yield Access(expr.buffer, expr.indices, False, conditional, inner)
