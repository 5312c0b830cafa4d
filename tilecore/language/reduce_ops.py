"""Reductions and scans of tiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilecore.ir.buffers import Region, Scope
from tilecore.ir.dtypes import boolean, int32
from tilecore.ir.expr import Const, Load, const
from tilecore.ir.stmts import REDUCE_OPS, Copy, Reduce, Scan
from tilecore.language import operators as ops
from tilecore.language.indexing import whole
from tilecore.language.linear import is_equal
from tilecore.language.locate import caller_loc, fail
from tilecore.language.private_reduce import is_private, private_reduce, private_scan
from tilecore.language.regions import match_shapes, region_of
from tilecore.language.tile_ops import tile_builder
from tilecore.language.values import Scalar, shape_text


def reduce(
    buffer: Any,
    out: Any,
    reduce_type: str,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Reduce `buffer` along `dim` into `out`.

    Args:
        buffer: the tile, in any memory.
        out: tile without that axis, or with extent 1 there.
        reduce_type: sum, max, min, abssum, absmax, bitand, bitor, bitxor, any or all.
        dim: the axis; negative counts from the end.
        clear: ignore `out`'s old contents; else combine with them.
        batch: advice about grouping, not needed here.
        nan_propagate: a nan wins in max and min instead of being skipped.
        annotations: further advice, not needed here.
    """
    del batch, annotations
    what = f"T.reduce_{reduce_type}"
    if reduce_type not in REDUCE_OPS:
        fail("unknown reduction", expected=", ".join(REDUCE_OPS), got=reduce_type)
    builder = tile_builder(what)
    src, dst = region_of(buffer, f"source of {what}"), region_of(out, f"result of {what}")
    axis = _axis(dim, len(src.axes), what)
    _check_result(src, dst, axis, what)
    if reduce_type.startswith("bit") and not src.dtype.is_int and not src.dtype.is_bool:
        fail(f"{what} needs integers", expected="an integer dtype", got=src.dtype)
    if is_private(src, dst):
        private_reduce(reduce_type, src, dst, axis, bool(clear), bool(nan_propagate))
        return
    builder.emit(
        Reduce(reduce_type, src, dst, axis, bool(clear), bool(nan_propagate), caller_loc())
    )


def _axis(dim: int, rank: int, what: str) -> int:
    dim = ops.static_int(dim, f"axis of {what}", at_least=-rank, at_most=rank - 1)
    return dim % rank


def _check_result(src: Region, dst: Region, axis: int, what: str) -> None:
    dropped = src.shape[:axis] + src.shape[axis + 1 :]
    kept = (*src.shape[:axis], const(1, int32), *src.shape[axis + 1 :])
    for wanted in (dropped, kept, dropped or (const(1, int32),)):
        if len(wanted) == len(dst.shape) and all(map(is_equal, wanted, dst.shape)):
            return
    fail(
        f"{what} result has another shape",
        expected=f"{shape_text(dropped)} or {shape_text(kept)}",
        got=f"{shape_text(dst.shape)} of {dst.buffer.name}",
    )


def _reducer(op: str, *, accumulates: bool = True, nans: bool = False) -> Callable[..., None]:
    """``T.reduce_<op>`` with the vocabulary's arguments."""

    def with_clear(
        buffer: Any,
        out: Any,
        dim: int = -1,
        clear: bool = True,
        batch: int = 1,
        annotations: Mapping[str, Any] | None = None,
    ) -> None:
        reduce(buffer, out, op, dim, clear, batch, False, annotations)

    def with_nans(
        buffer: Any,
        out: Any,
        dim: int = -1,
        clear: bool = True,
        batch: int = 1,
        nan_propagate: bool = False,
        annotations: Mapping[str, Any] | None = None,
    ) -> None:
        reduce(buffer, out, op, dim, clear, batch, nan_propagate, annotations)

    def without_clear(
        buffer: Any,
        out: Any,
        dim: int = -1,
        batch: int = 1,
        annotations: Mapping[str, Any] | None = None,
    ) -> None:
        reduce(buffer, out, op, dim, True, batch, False, annotations)

    function = with_nans if nans else with_clear if accumulates else without_clear
    function.__name__ = f"reduce_{op}"
    function.__doc__ = f"Reduce `buffer` along `dim` into `out` with {op}; see `reduce`."
    return function


reduce_sum = _reducer("sum")
reduce_max = _reducer("max", nans=True)
reduce_min = _reducer("min", nans=True)
reduce_absmax = _reducer("absmax", nans=True)
reduce_abssum = _reducer("abssum", accumulates=False)
reduce_bitand = _reducer("bitand")
reduce_bitor = _reducer("bitor")
reduce_bitxor = _reducer("bitxor")


def cumsum(
    src: Any,
    dst: Any = None,
    dim: int = 0,
    reverse: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Inclusive prefix sum of `src` along `dim` into `dst` (in place when it is left out)."""
    _scan("sum", src, dst, dim, reverse)


def cummax(
    src: Any,
    dst: Any = None,
    dim: int = 0,
    reverse: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Inclusive prefix maximum of `src` along `dim` into `dst`."""
    _scan("max", src, dst, dim, reverse)


def _scan(op: str, src: Any, dst: Any, dim: int, reverse: bool) -> None:
    what = f"T.cum{op}"
    builder = tile_builder(what)
    source = region_of(src, f"source of {what}")
    target = source if dst is None else region_of(dst, f"result of {what}")
    axis = _axis(dim, len(source.axes), what)
    if len(source.axes) == len(target.axes):
        source, target = match_shapes(source, target, what)
    else:
        fail(
            f"{what} result has another rank",
            expected=shape_text(source.shape),
            got=shape_text(target.shape),
        )
    if is_private(source, target):
        private_scan(op, source, target, axis, bool(reverse))
        return
    builder.emit(Scan(op, source, target, axis, bool(reverse), caller_loc()))


def any_of(buffer: Any) -> Scalar:
    """True when any element is not zero: one bool for the block."""
    return _over_all("any", buffer)


def all_of(buffer: Any) -> Scalar:
    """True when every element is not zero: one bool for the block."""
    return _over_all("all", buffer)


def _over_all(op: str, value: Any) -> Scalar:
    """Reduce axis after axis in shared memory; the last result is one element."""
    builder = tile_builder(f"T.{op}_of")
    region = region_of(value, f"argument of T.{op}_of")
    if not region.shape:
        fail(f"T.{op}_of takes a tile", got="one element")
    for extent in region.shape:
        if not isinstance(extent, Const):
            fail(f"T.{op}_of takes a tile of constant shape", got=shape_text(region.shape))
    if region.buffer.scope is Scope.GLOBAL:
        staged = whole(builder.allocate(Scope.SHARED, region.shape, region.dtype, f"{op}_of"))
        builder.emit(Copy(region, staged, (), caller_loc()))
        region = staged
    while True:
        shape = region.shape[:-1] or (const(1, int32),)
        target = whole(builder.allocate(Scope.SHARED, shape, boolean, f"{op}_of"))
        builder.emit(Reduce(op, region, target, len(region.shape) - 1, loc=caller_loc()))
        if len(region.shape) == 1:
            break
        region = target
    return builder.bind(f"{op}_value", ops.as_expr(Scalar(Load(target.buffer, (const(0, int32),)))))
