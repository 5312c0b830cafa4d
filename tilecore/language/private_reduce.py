"""Reductions and scans of private memory (T.alloc_local): plain loops, each lane on its own array.

Where the tile is shared and the result is private, the block reduces and each lane reads it.
"""

from __future__ import annotations

from typing import Any

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import DType, int32
from tilecore.ir.expr import Expr, Load
from tilecore.ir.reductions import COMBINES, accumulator_dtype, neutral
from tilecore.ir.stmts import Reduce
from tilecore.language import operators as ops
from tilecore.language.builder import current
from tilecore.language.indexing import whole
from tilecore.language.locate import caller_loc
from tilecore.language.math_ops import FUNCTIONS, absolute
from tilecore.language.private_ops import nest
from tilecore.language.values import Scalar

_isnan = FUNCTIONS["isnan"]


def is_private(*regions: Region) -> bool:
    """True when one of them is in private memory."""
    return any(region.buffer.scope is Scope.LOCAL for region in regions)


def private_reduce(
    op: str, src: Region, dst: Region, axis: int, clear: bool, nan_propagate: bool
) -> None:
    """``dst = src reduced along axis``, combined with dst's old contents without `clear`."""
    builder = current()
    kind = accumulator_dtype(op, dst.dtype)
    part: Buffer | None = None
    if src.buffer.scope is not Scope.LOCAL:
        part = builder.allocate(Scope.FRAGMENT, dst.shape, dst.dtype, "part")
        loc = caller_loc()
        builder.emit(Reduce(op, src, whole(part), axis, True, nan_propagate, loc))

    def element(at: tuple[Expr, ...]) -> None:
        place = dst.indices(at)
        if part is not None:
            total: Any = Scalar(Load(part, at))
        else:
            total = _loop(op, src, at, axis, kind, nan_propagate)
        if not clear:
            total = _combine(op, Scalar(Load(dst.buffer, place)), total, kind, nan_propagate)
        builder.store(dst.buffer, place, total.astype(str(dst.dtype)))

    nest(dst.shape, element)


def _loop(
    op: str, src: Region, at: tuple[Expr, ...], axis: int, kind: DType, nan_propagate: bool
) -> Scalar:
    """One result: the elements along `axis` one after the other."""
    builder = current()
    total = builder.allocate(Scope.LOCAL, (), kind, "total")
    builder.store(total, (), Scalar(neutral(op, kind)))
    kept = at if len(at) < len(src.shape) else (*at[:axis], *at[axis + 1 :])

    def step(inner: tuple[Expr, ...]) -> None:
        value = Scalar(Load(src.buffer, src.indices((*kept[:axis], *inner, *kept[axis:]))))
        if op in ("abssum", "absmax"):
            value = absolute(value)
        old = Scalar(Load(total, ()))
        builder.store(total, (), _combine(op, old, value, kind, nan_propagate))

    nest((src.shape[axis],), step)
    return Scalar(Load(total, ()))


def private_scan(op: str, src: Region, dst: Region, axis: int, reverse: bool) -> None:
    """Inclusive scan along `axis`, one element after the other."""
    builder = current()
    kind = accumulator_dtype(op, dst.dtype)
    others = (*dst.shape[:axis], *dst.shape[axis + 1 :])

    def line(at: tuple[Expr, ...]) -> None:
        total = builder.allocate(Scope.LOCAL, (), kind, "total")
        builder.store(total, (), Scalar(neutral(op, kind)))

        def step(inner: tuple[Expr, ...]) -> None:
            along = Scalar(inner[0])
            if reverse:
                along = Scalar(dst.shape[axis]) - 1 - along
            where = (*at[:axis], ops.cast_expr(along.expr, int32), *at[axis:])
            value = Scalar(Load(src.buffer, src.indices(where)))
            new = _combine(op, Scalar(Load(total, ())), value, kind, False)
            builder.store(total, (), new)
            told = Scalar(Load(total, ())).astype(str(dst.dtype))
            builder.store(dst.buffer, dst.indices(where), told)

        nest((dst.shape[axis],), step)

    nest(others, line)


def _combine(op: str, old: Scalar, new: Scalar, kind: DType, nan_propagate: bool) -> Scalar:
    if op in ("any", "all"):
        return Scalar(ops.logical(COMBINES[op], old, new))
    a, b = (Scalar(ops.cast_expr(one.expr, kind)) for one in (old, new))
    value = Scalar(ops.arithmetic(COMBINES[op], a, b))
    if nan_propagate and kind.is_float:
        value = Scalar(ops.select(_isnan(a), a, Scalar(ops.select(_isnan(b), b, value))))
    return value
