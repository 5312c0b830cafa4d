"""How the interpreter holds numbers: float64 for every float, integers in their own width.

Floats are computed in float64 and, unless exact dtypes are asked for, never rounded: that makes
the interpreter the oracle that narrow arithmetic is measured against. Integers wrap in two's
complement. 4-bit integers are held sign- or zero-extended in 8 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilecore.ir.dtypes import DType, float32, float64, numpy_dtype, tfloat32
from tilecore.ir.packing import pack_elements, unpack_elements

Array = npt.NDArray[Any]

_WITH_INFINITY = frozenset({
    "float64", "float32", "tfloat32", "float16", "bfloat16", "float8_e5m2",
})  # fmt: skip


def has_infinity(dtype: DType) -> bool:
    """True for float dtypes that have an infinity; the others saturate."""
    return dtype.name in _WITH_INFINITY


def value_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype in which values of `dtype` are computed."""
    if dtype.is_float:
        return np.dtype(np.float64)
    if dtype.bits == 4:
        return np.dtype(np.int8 if dtype.is_signed else np.uint8)
    return np.dtype(dtype.name)


def wrap(values: Array, dtype: DType) -> Array:
    """Integers reduced to the range of `dtype`, in its value dtype."""
    values = np.asarray(values).astype(value_dtype(dtype), copy=False)
    if dtype.bits == 4:
        values = values & 15
        return (values ^ 8) - 8 if dtype.is_signed else values
    return values


def largest(dtype: DType) -> float:
    """The largest finite value of a float dtype."""
    if dtype is tfloat32:
        return float((2 - 2**-10) * 2.0**127)
    if dtype.bits >= 32:
        return float(np.finfo(dtype.name).max)
    import ml_dtypes

    return float(ml_dtypes.finfo(numpy_dtype(dtype)).max)


def round_float(values: Array, dtype: DType) -> Array:
    """float64 values rounded to nearest even in `dtype`, as float64 again.

    Overflow gives infinity, or the largest finite value where the dtype has no infinity.
    """
    if dtype is float64:
        return values
    if dtype is float32:
        return np.asarray(values).astype(np.float32).astype(np.float64)
    if dtype is tfloat32:
        return _round_tfloat32(values)
    return encode(values, dtype).astype(np.float64)


def _round_tfloat32(values: Array) -> Array:
    """Rounds to 10 fraction bits: the lowest 13 of float32's are cut off, to nearest even."""
    single = np.asarray(values).astype(np.float32)
    bits = single.view(np.uint32).astype(np.uint64)
    odd = (bits >> np.uint64(13)) & np.uint64(1)
    rounded = (bits + np.uint64(0xFFF) + odd) & np.uint64(0xFFFFE000)
    kept = np.where(np.isfinite(single), rounded.astype(np.uint32).view(np.float32), single)
    return np.asarray(kept).astype(np.float64)


def encode(values: Array, dtype: DType) -> Array:
    """Values as an array of the host's storage dtype of `dtype` (`numpy_dtype`)."""
    values = np.asarray(values)
    if not dtype.is_float:
        return values.astype(numpy_dtype(dtype))
    if dtype is tfloat32:
        return _round_tfloat32(values).astype(np.float32)
    if not has_infinity(dtype):
        limit = largest(dtype)
        values = np.where(np.isnan(values), values, np.clip(values, -limit, limit))
    return values.astype(numpy_dtype(dtype))


def decode(stored: Array, dtype: DType) -> Array:
    """The inverse of `encode`: host storage to values."""
    return np.asarray(stored).astype(value_dtype(dtype))


def cast(values: Array, source: DType, target: DType, exact: bool) -> Array:
    """The values converted as `ir.expr.Cast` says; float to float rounds only if `exact`."""
    values = np.asarray(values)
    if target.is_bool:
        return values != 0
    if target.is_float:
        wide = values.astype(np.float64)
        return round_float(wide, target) if exact else wide
    if source.is_float:
        return _float_to_int(values, target)
    return wrap(values, target)


def int_range(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype."""
    if dtype.is_signed:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def _float_to_int(values: Array, target: DType) -> Array:
    low, high = int_range(target)
    clean = np.where(np.isnan(values), 0.0, np.trunc(values))
    # float(high) may round up to a value outside the range, so the comparison is >=.
    above, below = clean >= float(high), clean <= float(low)
    inside = np.where(above | below, 0.0, clean).astype(value_dtype(target))
    top, bottom = np.asarray(high, value_dtype(target)), np.asarray(low, value_dtype(target))
    return np.where(above, top, np.where(below, bottom, inside))


def bitcast(values: Array, source: DType, target: DType) -> Array:
    """The same bits as another dtype of equal width; floats are rounded to `source` first."""
    if source.bits < 8:  # one element a byte on both sides
        codes = pack_elements(encode(values, source)[..., np.newaxis], source)
        return decode(unpack_elements(codes, target, 1)[..., 0], target)
    stored = np.ascontiguousarray(encode(values, source)).reshape(np.shape(values))
    return decode(stored.view(numpy_dtype(target)), target)


def poison(dtype: DType) -> Any:
    """What undefined storage holds: nan, or 0x5A in every byte."""
    if dtype.is_float:
        return np.nan
    if dtype.is_bool:
        return True
    return wrap(np.asarray(0x5A5A5A5A5A5A5A5A), dtype)[()]
