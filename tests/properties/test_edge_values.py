"""Arithmetic at the edges of its dtypes means the same on every backend.

All pairs of values that fall over: ends of ranges, products past them, divisors of either sign,
conversions of what does not fit. Each operation is one output row, computed by lanes, by scalars of
the block that have names, and behind a shared tile, since compilers take different ways there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agreement import agree, each_backend

import tilecore.language as T
from tilecore.ir.dtypes import dtype_of, numpy_dtype

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")


def ends(dtype: str) -> list[int]:
    """Values about the ends, the middle and zero of an integer dtype."""
    info = np.iinfo(dtype)
    near = [info.min, info.min + 1, info.max, info.max - 1, info.max // 2 + 1, 0, 1, 2, 3, 7, 8]
    return near + ([-1, -2, -3, -7, info.min // 2] if info.min else [info.max // 3])


@T.macro
def operations(x, y, out, at):
    """Every operation of two integers, the second of which is not zero."""
    out[0, at] = x + y
    out[1, at] = x - y
    out[2, at] = x * y
    out[3, at] = x // y
    out[4, at] = x % y
    out[5, at] = T.truncdiv(x, y)
    out[6, at] = T.truncmod(x, y)
    out[7, at] = T.max(x, y) - T.min(x, y)
    out[8, at] = (x * y + x) // y
    out[9, at] = (x - y) * 3 % 5
    out[10, at] = x << T.if_then_else(y > 6, 6, T.max(y, 0))
    out[11, at] = x >> T.if_then_else(y > 6, 6, T.max(y, 0))
    out[12, at] = T.if_then_else(x + y > x, 1, 2)
    out[13, at] = T.if_then_else(x * 2 // 2 == x, 1, 2)
    out[14, at] = -x
    out[15, at] = T.abs(x)
    out[16, at] = ~x ^ (x & y) | y


ROWS = 17


def by_lanes(dtype: str, count: int) -> Any:
    @T.prim_func
    def main(
        X: T.Tensor((count,), dtype), Y: T.Tensor((count,), dtype),
        out: T.Tensor((ROWS, count), dtype),
    ):  # fmt: skip
        with T.Kernel(1, threads=96):
            s = T.alloc_shared((count,), dtype)
            T.copy(Y, s)
            for i in T.Parallel(count):
                operations(X[i], s[i], out, i)

    return main


def by_scalars(dtype: str, count: int) -> Any:
    @T.prim_func
    def main(
        X: T.Tensor((count,), dtype), Y: T.Tensor((count,), dtype),
        out: T.Tensor((ROWS, count), dtype),
    ):  # fmt: skip
        with T.Kernel(count, threads=32) as block:
            x = T.alloc_var(dtype, init=X[block])
            y = T.alloc_var(dtype, init=Y[block])
            operations(x, y, out, block)

    return main


@each_backend
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("make", [by_lanes, by_scalars])
def test_integers_at_the_ends(make: Any, dtype: str, backend: str) -> None:
    values = np.array(ends(dtype), dtype)
    x, y = np.repeat(values, values.size), np.tile(values, values.size)
    x, y = x[y != 0], y[y != 0]
    agree(backend, make(dtype, x.size), x, y, np.zeros((ROWS, x.size), dtype))


@T.macro
def named(n, out, at):
    """Parts that have names, in chains where each part may have wrapped."""
    square = n * n
    scaled = n * 65536 + 3
    out[0, at] = square // 7
    out[1, at] = square % 1000
    out[2, at] = T.if_then_else(square > 0, 1, 2)
    out[3, at] = scaled // 3
    out[4, at] = (scaled + square) >> 3
    again = scaled - square
    out[5, at] = again // 5
    out[6, at] = T.max(again, square) % 77
    out[7, at] = T.cast(again, "int64") // 2
    out[8, at] = T.cast(square, "float64")
    if scaled > square:
        out[9, at] = 1
    beyond = n + 2147483647
    out[10, at] = T.min(beyond, 5)
    out[11, at] = (beyond // 2) % 13
    count = T.max(square % 5, 0)
    for k in T.serial(count):
        out[12, at] = out[12, at] + k + 1
    out[13, at] = T.cast(T.cast(square, "uint32") // 3, "int64")


NAMED = 14
NUMBERS = (0, 1, -1, 7, 46340, 46341, 50000, -50000, 65536, 100003, 2**31 - 1, -(2**31))


def of_an_argument() -> Any:
    @T.prim_func
    def main(n: T.int32, out: T.Tensor((NAMED, 3), "int64")):
        with T.Kernel(2, threads=64) as block:
            named(n + block, out, block)
            if block == 0:
                for i in T.Parallel(1):
                    named(n - i, out, 2)

    return main


@T.macro
def hashed(i, j, out):
    """Numbers from indices whose extents are known: they are meant to wrap."""
    h = i * 1103515245 + 12345
    out[i, j, 0] = h % 100
    out[i, j, 1] = (i * 1103515245 + j * 1431655765) // 7
    g = h * 31 + j
    out[i, j, 2] = T.max(g, -g) % 17
    out[i, j, 3] = T.if_then_else(h + j * 65539 > h, 1, 2)
    out[i, j, 4] = (h + 1) % 13 + (h >> 5) % 3
    out[i, j, 5] = T.if_then_else(i * 1103515245 < 0, 1, 2)


def of_indices(place: str) -> Any:
    @T.prim_func
    def main(out: T.Tensor((12, 10, 6), "int32")):
        with T.Kernel(12, threads=64) as block:
            if place == "lanes":
                for j in T.Parallel(10):
                    hashed(block, j, out)
            elif place == "loop":
                for j in T.serial(10):
                    hashed(block, j, out)
            elif block == 0:
                for i, j in T.Parallel(12, 10):
                    hashed(i, j, out)

    return main


@each_backend
@pytest.mark.parametrize("place", ["lanes", "loop", "one block"])
def test_hashes_of_indices_wrap(place: str, backend: str) -> None:
    (out,) = agree(backend, of_indices(place), np.zeros((12, 10, 6), np.int32))
    i = np.arange(12)[:, np.newaxis] + np.zeros((1, 10), np.int64)
    h = (i * 1103515245 + 12345).astype(np.int32)
    assert np.array_equal(out[:, :, 0], h % 100)
    assert np.array_equal(out[:, :, 5], np.where((i * 1103515245).astype(np.int32) < 0, 1, 2))


@each_backend
def test_named_parts_wrap(backend: str) -> None:
    for number in NUMBERS:
        agree_with(backend, of_an_argument(), number)


def agree_with(backend: str, program: Any, number: int) -> None:
    """`agree`, for a scalar argument and the outputs."""
    from compiling import kernel_on

    want, came = (np.zeros((NAMED, 3), np.int64) for _ in range(2))
    kernel_on("reference", program)(number, want)
    kernel_on(backend, program)(number, came)
    np.testing.assert_array_equal(came, want, err_msg=f"{number} on {backend}")


def floats(dtype: str) -> np.ndarray:
    """Values about every limit of the integers, of both signs, with nan, infinities, zeros."""
    limits = [0.0, 0.5, 0.99, 1.5, 2.5, 1e-40, 65504.0, 1e30, np.inf]
    for bits in (7, 8, 15, 16, 31, 32, 63, 64):
        limits += [
            2.0**bits,
            2.0**bits - 1,
            2.0**bits - 0.5,
            2.0**bits * (1 - 2**-12),
            2.0**bits + 2,
        ]
    with np.errstate(all="ignore"):
        values = np.array([*limits, *(-x for x in limits), np.nan])
        return values.astype(numpy_dtype(dtype_of(dtype)))


@each_backend
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_as_integers(dtype: str, backend: str) -> None:
    values = floats(dtype)
    count = values.size
    outputs = [np.zeros((2, count), kind) for kind in (*INTEGERS, "bool")]

    @T.prim_func
    def main(
        X: T.Tensor((count,), dtype), a: T.Tensor((2, count), "int8"),
        b: T.Tensor((2, count), "uint8"), c: T.Tensor((2, count), "int16"),
        d: T.Tensor((2, count), "uint16"), e: T.Tensor((2, count), "int32"),
        f: T.Tensor((2, count), "uint32"), g: T.Tensor((2, count), "int64"),
        h: T.Tensor((2, count), "uint64"), p: T.Tensor((2, count), "bool"),
    ):  # fmt: skip
        with T.Kernel(2, threads=64) as block:
            x = T.alloc_fragment((count,), dtype)
            T.copy(X, x)
            if block == 0:
                for i in T.Parallel(count):
                    a[0, i] = x[i]
                    b[0, i] = x[i]
                    c[0, i] = x[i]
                    d[0, i] = x[i]
                    e[0, i] = x[i]
                    f[0, i] = x[i]
                    g[0, i] = x[i]
                    h[0, i] = x[i]
                    p[0, i] = T.cast(x[i], "bool")
            else:
                for out in (a, b, c, d, e, f, g, h):
                    T.copy(x, out[1, :])

    agree(backend, main, values, *outputs)


@each_backend
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_as_floats_and_integers(dtype: str, backend: str) -> None:
    values = np.array([*ends(dtype), *[np.iinfo(dtype).max // k for k in (5, 9, 127)]], dtype)
    count = values.size
    kinds = (*INTEGERS, *FLOATS)
    outputs = [np.zeros(count, numpy_dtype(dtype_of(kind))) for kind in kinds]

    @T.prim_func
    def main(
        X: T.Tensor((count,), dtype), a: T.Tensor((count,), "int8"),
        b: T.Tensor((count,), "uint8"), c: T.Tensor((count,), "int16"),
        d: T.Tensor((count,), "uint16"), e: T.Tensor((count,), "int32"),
        f: T.Tensor((count,), "uint32"), g: T.Tensor((count,), "int64"),
        h: T.Tensor((count,), "uint64"), p: T.Tensor((count,), "float16"),
        q: T.Tensor((count,), "bfloat16"), r: T.Tensor((count,), "float32"),
        s: T.Tensor((count,), "float64"),
    ):  # fmt: skip
        with T.Kernel(1, threads=64):
            x = T.alloc_fragment((count,), dtype)
            T.copy(X, x)
            for out in (a, b, c, d, e, f, g, h, p, q, r, s):
                T.copy(x, out)

    agree(backend, main, values, *outputs)
