"""Reductions and scans of private memory (T.alloc_local): plain loops, each lane on its own array.

Where the tile is shared and the result is private, the block reduces and each lane reads it.
"""

from __future__ import annotations

from typing import Any

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import DType, boolean, float32, int32
from tilecore.ir.expr import Expr, Load, const
from tilecore.ir.stmts import Allocate, Reduce
from tilecore.language import operators as ops
from tilecore.language.builder import current
from tilecore.language.indexing import whole
from tilecore.language.locate import caller_loc
from tilecore.language.math_ops import FUNCTIONS, absolute
from tilecore.language.private_ops import nest
from tilecore.language.reducers import OPERATIONS, neutral
from tilecore.language.values import Scalar

_isnan = FUNCTIONS["isnan"]
_FORMS = {"abssum": "sum", "absmax": "max"}


def is_private(*regions: Region) -> bool:
    """True when one of them is in private memory."""
    return any(region.buffer.scope is Scope.LOCAL for region in regions)


def private_reduce(
    op: str, src: Region, dst: Region, axis: int, clear: bool, nan_propagate: bool
) -> None:
    """``dst = src reduced along axis``, combined with dst's old contents without `clear`."""
    builder = current()
    form = _FORMS.get(op, op)
    kind = _work_dtype(form, dst.dtype)
    part: Buffer | None = None
    if src.buffer.scope is not Scope.LOCAL:
        part = _allocate(Scope.FRAGMENT, dst.shape, dst.dtype, "part")
        loc = caller_loc()
        builder.emit(Reduce(op, src, whole(part), axis, True, nan_propagate, loc))

    def element(at: tuple[Expr, ...]) -> None:
        place = dst.indices(at)
        if part is not None:
            total: Any = Scalar(Load(part, at))
        else:
            total = _loop(op, src, at, axis, kind, nan_propagate)
        if not clear:
            total = _combine(form, Scalar(Load(dst.buffer, place)), total, kind, nan_propagate)
        builder.store(dst.buffer, place, total.astype(str(dst.dtype)))

    nest(dst.shape, element)


def _loop(
    op: str, src: Region, at: tuple[Expr, ...], axis: int, kind: DType, nan_propagate: bool
) -> Scalar:
    """One result: the elements along `axis` one after the other."""
    builder = current()
    form = _FORMS.get(op, op)
    total = _allocate(Scope.LOCAL, (), kind, "total")
    builder.store(total, (), Scalar(_start(form, kind)))
    kept = at[:axis] + at[axis + 1 :] if len(at) == len(src.shape) else at[: len(src.shape) - 1]

    def step(inner: tuple[Expr, ...]) -> None:
        value = Scalar(Load(src.buffer, src.indices((*kept[:axis], *inner, *kept[axis:]))))
        if op != form:
            value = absolute(value)
        old = Scalar(Load(total, ()))
        builder.store(total, (), _combine(form, old, value, kind, nan_propagate))

    nest((src.shape[axis],), step)
    return Scalar(Load(total, ()))


def private_scan(op: str, src: Region, dst: Region, axis: int, reverse: bool) -> None:
    """Inclusive scan along `axis`, one element after the other."""
    builder = current()
    kind = _work_dtype(op, dst.dtype)
    others = (*dst.shape[:axis], *dst.shape[axis + 1 :])

    def line(at: tuple[Expr, ...]) -> None:
        total = _allocate(Scope.LOCAL, (), kind, "total")
        builder.store(total, (), Scalar(_start(op, kind)))

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


def _work_dtype(form: str, dtype: DType) -> DType:
    """In what results are combined: no narrower than a float32, as on every backend."""
    if form in ("any", "all"):
        return boolean
    if dtype.is_float:
        return dtype if dtype.bits >= 32 else float32
    return int32 if dtype.is_bool else dtype


def _start(form: str, kind: DType) -> Expr:
    if form in ("any", "all"):
        return const(form == "all", boolean)
    return neutral(form, kind)


def _combine(form: str, old: Scalar, new: Scalar, kind: DType, nan_propagate: bool) -> Scalar:
    if form in ("any", "all"):
        joined = ops.logical("or" if form == "any" else "and", old, new)
        return Scalar(joined)
    a, b = (Scalar(ops.cast_expr(one.expr, kind)) for one in (old, new))
    value = Scalar(ops.arithmetic(OPERATIONS[form], a, b))
    if nan_propagate and kind.is_float:
        value = Scalar(ops.select(_isnan(a), a, Scalar(ops.select(_isnan(b), b, value))))
    return value


def _allocate(scope: Scope, shape: tuple[Expr, ...], dtype: DType, name: str) -> Buffer:
    builder = current()
    buffer = Buffer(builder.unique(name), shape, dtype, scope, loc=caller_loc())
    builder.emit(Allocate(buffer, None, caller_loc()), declares=(buffer.name,))
    return buffer
