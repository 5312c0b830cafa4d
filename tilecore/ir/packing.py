"""Elements narrower than a byte in host memory: two in each byte, the first in the low bits.

Rows (the last axis) begin at a byte; of a row with an odd number of elements the last byte's high
bits are not used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilecore.ir.dtypes import DType, numpy_dtype


def storage_shape(dtype: DType, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Extents of the tensor that holds `shape` elements of `dtype`: sub-byte ones are packed
    along the last axis, and an odd element takes a whole byte."""
    if dtype.bits >= 8 or not shape:
        return shape
    return (*shape[:-1], -(-shape[-1] * dtype.bits // 8))


def storage_strides(dtype: DType, strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in its own elements, of the tensor that holds elements of `dtype` at `strides`."""
    if dtype.bits >= 8:
        return strides
    return (*(stride * dtype.bits // 8 for stride in strides[:-1]), *strides[-1:])


def pack_elements(values: npt.NDArray[Any], dtype: DType) -> npt.NDArray[np.uint8]:
    """Bytes of shape (..., ceil(n / 2)) for values of shape (..., n); `dtype` has four bits.

    Integers outside the dtype's range wrap, floats are rounded to the nearest of its values.
    """
    codes = _codes(np.asarray(values), dtype)
    if codes.shape[-1] % 2:
        codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], 1), np.uint8)], axis=-1)
    return np.ascontiguousarray(codes[..., 0::2] | (codes[..., 1::2] << 4)).astype(np.uint8)


def unpack_elements(packed: npt.NDArray[Any], dtype: DType, count: int) -> npt.NDArray[Any]:
    """Values of shape (..., count), one a byte (`numpy_dtype`), from bytes of shape (..., n)."""
    halves = np.asarray(packed).view(np.uint8)
    codes = np.stack([halves & 15, halves >> 4], axis=-1)
    codes = np.ascontiguousarray(codes.reshape(*halves.shape[:-1], -1)[..., :count])
    if dtype.is_float:
        return codes.view(numpy_dtype(dtype))
    signed = (codes.astype(np.int8) ^ 8) - 8
    return (signed if dtype.is_signed else codes).astype(numpy_dtype(dtype))


def _codes(values: npt.NDArray[Any], dtype: DType) -> npt.NDArray[np.uint8]:
    if dtype.is_float:
        return np.ascontiguousarray(values.astype(numpy_dtype(dtype))).view(np.uint8)
    return (values.astype(np.int64) & 15).astype(np.uint8)
