"""Memory of the host at an address, as an array."""

from __future__ import annotations

import ctypes

import numpy as np

from tilecore.errors import LaunchError
from tilecore.ir.buffers import Buffer
from tilecore.ir.dtypes import numpy_dtype
from tilecore.ir.expr import Expr
from tilecore.ir.packing import storage_shape, storage_strides
from tilecore.reference.evaluate import Frame
from tilecore.reference.tile_ops import scalar
from tilecore.reference.values import Array


def array_at(buffer: Buffer, address: int, frame: Frame) -> Array:
    """The host memory at `address` as an array of the buffer's shape, strides and dtype.

    Elements narrower than a byte are packed: the array is of the bytes that hold them.
    """

    def numbers(exprs: tuple[Expr, ...]) -> tuple[int, ...]:
        return tuple(int(scalar(expr, frame)) for expr in exprs)

    shape = storage_shape(buffer.dtype, numbers(buffer.shape))
    dtype = np.dtype(np.uint8) if buffer.dtype.bits < 8 else numpy_dtype(buffer.dtype)
    if 0 in shape:
        return np.empty(shape, dtype)
    if buffer.strides is None:
        strides = tuple(int(np.prod(shape[k + 1 :], dtype=np.int64)) for k in range(len(shape)))
    else:
        strides = storage_strides(buffer.dtype, numbers(buffer.strides))
    if any(stride < 0 for stride in strides):
        raise LaunchError("negative strides", got=buffer.name)
    count = 1 + sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))
    raw = (ctypes.c_byte * (count * dtype.itemsize)).from_address(address)
    steps = tuple(step * dtype.itemsize for step in strides)
    return np.ndarray(shape, dtype, np.ctypeslib.as_array(raw), strides=steps)
