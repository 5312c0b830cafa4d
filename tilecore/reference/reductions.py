"""Meaning of `Reduce` and `Scan`, whole regions at once."""

from __future__ import annotations

import numpy as np

from tilecore.errors import LanguageError, UnsupportedError
from tilecore.ir import stmts as S
from tilecore.ir.dtypes import DType, boolean
from tilecore.reference.evaluate import Frame
from tilecore.reference.operations import apply_binary
from tilecore.reference.tile_ops import load_region, locate, store_region
from tilecore.reference.values import (
    Array,
    cast,
    has_infinity,
    int_range,
    largest,
    value_dtype,
    wrap,
)


def run_reduce(stmt: S.Reduce, frame: Frame) -> None:
    """Reduce along an axis; computed in dst's dtype.

    Raises:
        LanguageError: the shapes do not fit.
    """
    dtype = stmt.dst.dtype
    source = cast(load_region(stmt.src, frame), stmt.src.dtype, _work_dtype(stmt), exact=False)
    _, window = locate(stmt.dst, frame)
    kept = [extent for axis, extent in enumerate(source.shape) if axis != stmt.axis % source.ndim]
    with_one = [1 if axis == stmt.axis % source.ndim else e for axis, e in enumerate(source.shape)]
    if list(window.shape) not in (kept, with_one):
        raise LanguageError(
            "reduce between shapes that do not fit", expected=kept, got=window.shape
        )
    result = _reduce(stmt, source).reshape(window.shape)
    result = cast(result, _work_dtype(stmt), dtype, exact=False)
    if not stmt.clear:
        result = _combine(stmt, load_region(stmt.dst, frame), result)
    store_region(stmt.dst, result, frame)


def _work_dtype(stmt: S.Reduce) -> DType:
    return boolean if stmt.op in ("any", "all") else stmt.dst.dtype


def _lowest(dtype: DType) -> float | int:
    if dtype.is_float:
        return -np.inf if has_infinity(dtype) else -largest(dtype)
    return False if dtype.is_bool else int_range(dtype)[0]


def _highest(dtype: DType) -> float | int:
    if dtype.is_float:
        return np.inf if has_infinity(dtype) else largest(dtype)
    return True if dtype.is_bool else int_range(dtype)[1]


def _reduce(stmt: S.Reduce, source: Array) -> Array:
    op, axis, dtype = stmt.op, stmt.axis, _work_dtype(stmt)
    kind = value_dtype(dtype)
    if op in ("abssum", "absmax"):
        source = wrap(np.abs(source), dtype) if dtype.is_int else np.abs(source)
    if op in ("sum", "abssum"):
        total = np.add.reduce(source, axis=axis, dtype=None if dtype.is_float else np.int64)
        return total if dtype.is_float else wrap(total, dtype)
    if op in ("any", "all"):
        return (np.any if op == "any" else np.all)(source, axis=axis)
    if op in ("bitand", "bitor", "bitxor"):
        ufunc = {"bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor}[op]
        neutral = -1 if op == "bitand" and dtype.is_signed else 0
        if op == "bitand" and not dtype.is_signed:
            neutral = _highest(dtype)
        return np.asarray(ufunc.reduce(source, axis=axis, initial=np.asarray(neutral, kind)[()]))
    if op == "min":
        ufunc, neutral = (np.minimum if stmt.nan_propagate else np.fmin), _highest(dtype)
    else:
        ufunc = np.maximum if stmt.nan_propagate else np.fmax
        neutral = 0 if op == "absmax" else _lowest(dtype)
    return np.asarray(ufunc.reduce(source, axis=axis, initial=np.asarray(neutral, kind)[()]))


def _combine(stmt: S.Reduce, old: Array, new: Array) -> Array:
    dtype = stmt.dst.dtype
    op = {"abssum": "sum", "absmax": "max", "any": "or", "all": "and"}.get(stmt.op, stmt.op)
    if op in ("or", "and"):
        joined = apply_binary(op, old != 0, new != 0, boolean)
        return joined.astype(value_dtype(dtype))
    if op in ("max", "min") and stmt.nan_propagate and dtype.is_float:
        return (np.maximum if op == "max" else np.minimum)(old, new)
    return apply_binary("add" if op == "sum" else op, old, new, dtype)


def run_scan(stmt: S.Scan, frame: Frame) -> None:
    """Inclusive prefix sum or maximum, computed in dst's dtype.

    Raises:
        UnsupportedError: another operation.
        LanguageError: the shapes differ.
    """
    dtype = stmt.dst.dtype
    source = cast(load_region(stmt.src, frame), stmt.src.dtype, dtype, exact=False)
    _, window = locate(stmt.dst, frame)
    if window.shape != source.shape:
        reason = "scan between shapes that differ"
        raise LanguageError(reason, expected=source.shape, got=window.shape)
    if stmt.reverse:
        source = np.flip(source, stmt.axis)
    if stmt.op == "sum":
        result = np.cumsum(source, axis=stmt.axis, dtype=None if dtype.is_float else np.int64)
        result = result if dtype.is_float else wrap(result, dtype)
    elif stmt.op == "max":
        result = np.fmax.accumulate(source, axis=stmt.axis)
        if dtype.is_float:  # as a reduction of what came so far: nans alone give what none gives
            result = np.fmax(result, _lowest(dtype))
    else:
        raise UnsupportedError("unknown scan", expected="sum or max", got=stmt.op)
    store_region(stmt.dst, np.flip(result, stmt.axis) if stmt.reverse else result, frame)
