"""Tile operations on private memory (T.alloc_local), which no lanes share: plain loops.

A local array outside of T.Parallel is one for the block, and each lane keeps its own copy of it. So
a product or an atomic on it needs neither a matrix unit nor an exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Expr, Load, Var, const
from tilecore.ir.stmts import For, If, Store
from tilecore.language import operators as ops
from tilecore.language.builder import current
from tilecore.language.locate import caller_loc
from tilecore.language.values import Scalar

ATOMIC_FORMS = {
    "add": "add", "sub": "sub", "max": "max", "min": "min", "and": "bitand", "or": "bitor",
    "xor": "bitxor",
}  # fmt: skip
"""How an atomic combines; exchange and store give the value itself."""


def nest(extents: Sequence[Expr], body: Callable[[tuple[Expr, ...]], object]) -> None:
    """Serial loops over `extents`; `body` emits what they hold, given their variables."""
    builder = current()
    loops: list[tuple[Var, Any, Expr]] = []
    for extent in extents:
        var = Var(builder.unique("i"), int32)
        loops.append((var, builder.push("for", (var.name,)), extent))
    body(tuple(var for var, _, _ in loops))
    zero, one = const(0, int32), const(1, int32)
    for var, frame, extent in reversed(loops):
        stmts = builder.pop(frame)
        loop = For(var, zero, ops.cast_expr(extent, int32), one, stmts, loc=caller_loc())
        builder.emit(loop)


def local_copy(source: Region, target: Region) -> None:
    """``target = source``, element by element: every lane has all of its own array."""
    builder = current()

    def move(at: tuple[Expr, ...]) -> None:
        place = target.indices(at)
        inside = _inside(target.buffer, place)
        frame = None if inside is None else builder.push("then")
        builder.store(target.buffer, place, _element(source, at))
        if frame is not None and inside is not None:
            builder.emit(If(inside, builder.pop(frame), (), caller_loc()))

    nest(target.shape, move)


def _element(source: Region, at: tuple[Expr, ...]) -> Scalar:
    """One element, or the safe value where a tensor ends before it."""
    place = source.indices(at)
    value = Load(source.buffer, place)
    inside = _inside(source.buffer, place)
    if inside is None:
        return Scalar(value)
    safe = current().safe_values.get(source.buffer.name, 0)
    return Scalar(ops.select(Scalar(inside), Scalar(value), safe))


def _inside(buffer: Buffer, place: tuple[Expr, ...]) -> Expr | None:
    """The condition that a place lies in a tensor; None on chip, where regions are checked."""
    if buffer.scope is not Scope.GLOBAL:
        return None
    result: Any = None
    for index, extent in zip(place, buffer.shape, strict=True):
        for test in (Scalar(index) >= 0, Scalar(index) < Scalar(extent)):
            result = test if result is None else Scalar(ops.logical("and", result, test))
    return None if result is None else ops.truth(result)


def local_fill(target: Region, value: Expr) -> None:
    """The same value in every element."""
    builder = current()
    nest(target.shape, lambda at: builder.store(target.buffer, target.indices(at), Scalar(value)))


def local_gemm(
    a: Region, b: Region, c: Region, transpose_a: bool, transpose_b: bool, clear: Expr
) -> None:
    """``C += A @ B``, products and sums in C's dtype, one after the other."""
    builder = current()
    m, n = c.shape
    k = a.shape[0] if transpose_a else a.shape[1]

    def cleared(at: tuple[Expr, ...]) -> None:
        zero = ops.weak_const(0, c.dtype)
        builder.emit(Store(c.buffer, c.indices(at), zero, caller_loc()))

    if clear != ops.FALSE:
        frame = builder.push("then")
        nest((m, n), cleared)
        builder.emit(If(clear, builder.pop(frame), (), caller_loc()))

    def step(at: tuple[Expr, ...]) -> None:
        i, j, inner = at
        left = Load(a.buffer, a.indices((inner, i) if transpose_a else (i, inner)))
        right = Load(b.buffer, b.indices((j, inner) if transpose_b else (inner, j)))
        place = c.indices((i, j))
        factors = (ops.cast_expr(one, c.dtype) for one in (left, right))
        x, y = (Scalar(one) for one in factors)
        builder.store(c.buffer, place, Scalar(Load(c.buffer, place)) + x * y)

    nest((m, n, k), step)


def local_atomic(op: str, dst: Region, value: Any) -> Scalar | None:
    """Read, combine and write each element of `dst`; the old value of a single element."""
    builder = current()
    source = value if isinstance(value, Region) else None

    def combine(at: tuple[Expr, ...]) -> Scalar:
        place = dst.indices(at)
        old = builder.bind(builder.take_hint("previous"), Load(dst.buffer, place))
        given: Any = value if source is None else Scalar(Load(source.buffer, source.indices(at)))
        new: Any = given
        if op in ATOMIC_FORMS:
            typed = Scalar(ops.to_dtype(given, dst.dtype, "value"))
            new = Scalar(ops.arithmetic(ATOMIC_FORMS[op], old, typed))
        builder.store(dst.buffer, place, new)
        return old

    if not dst.shape:
        return combine(())
    nest(dst.shape, combine)
    return None
