"""Sizes and indices of 64 bits: beside those of 32 in every kind of statement, and past 2^31."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agreement import each_backend, whole_numbers
from compiling import kernel_on

import tilecore.language as T


def of_wide_sizes(threads: int, stages: int) -> Any:
    """Sizes of int64 beside indices of int32 in every kind of statement."""
    m, n = T.dynamic("m", "int64"), T.dynamic("n", "int64")

    @T.prim_func
    def main(
        x: T.Tensor((m, n), "float16"),
        w: T.Tensor((n, 40), "float16"),
        order: T.Tensor((m,), "int64"),
        product: T.Tensor((m, 40), "float32"),
        picked: T.Tensor((m, n), "float16"),
        turned: T.Tensor((n, m), "float16"),
        sums: T.Tensor((m,), "float32"),
        count: T.Tensor((1,), "int64"),
    ):
        with T.Kernel(T.ceildiv(m, 32), threads=threads) as b:
            a = T.alloc_shared((32, 16), "float16")
            part = T.alloc_shared((16, 40), "float16")
            c = T.alloc_fragment((32, 40), "float32")
            row = T.alloc_fragment((32,), "float32")
            T.clear(c)
            T.clear(row)
            for k in T.Pipelined(T.ceildiv(n, 16), num_stages=stages):
                T.copy(x[b * 32, k * 16], a)
                T.copy(w[k * 16, 0], part)
                T.gemm(a, part, c)
                T.reduce_sum(a, row, dim=1, clear=False)
            T.copy(c, product[b * 32, 0])
            T.copy(row, sums[b * 32])
            for k in T.serial(T.ceildiv(n, 16)):
                for i, j in T.Parallel(32, 16):
                    if b * 32 + i < m:
                        picked[b * 32 + i, k * 16 + j] = x[order[b * 32 + i], k * 16 + j] * 2
                T.copy(x[b * 32, k * 16], a)
                for i, j in T.Parallel(32, 16):
                    turned[k * 16 + j, b * 32 + i] = a[i, j]
            for i in T.Parallel(32):
                if b * 32 + i < m:
                    T.atomic_add(count[0], order[b * 32 + i])
        with T.Kernel(1, threads=64):
            for i, j in T.Parallel(m, n):
                picked[i, j] = picked[i, j] + 1
            for i in T.serial(m):
                sums[i] = sums[i] + n
            T.fill(w[n - 1, :], 3)
            T.copy(w[n - 1 : n, 0:20], w[n - 1 : n, 20:40])

    return main


@each_backend
def test_sizes_of_64_bits_beside_indices_of_32(backend: str) -> None:
    for threads, stages in ((64, 0), (128, 2)):
        kernel = kernel_on(backend, of_wide_sizes(threads, stages))
        for m, n in ((50, 70), (1, 1), (33, 16), (0, 5)):
            x = whole_numbers(m, n, dtype="float16")
            w = whole_numbers(n, 40, dtype="float16", seed=1)
            order = np.random.default_rng(0).permutation(m).astype(np.int64)
            outputs = [
                np.zeros((m, 40), np.float32), np.zeros((m, n), np.float16),
                np.zeros((n, m), np.float16), np.zeros(m, np.float32), np.zeros(1, np.int64),
            ]  # fmt: skip
            expected = [
                x.astype(np.float32) @ w.astype(np.float32), x[order] * 2 + 1, x.T,
                x.astype(np.float32).sum(1) + n, [order.sum()],
            ]  # fmt: skip
            kernel(x, w, order, *outputs)
            for left, right in zip(outputs, expected, strict=True):
                np.testing.assert_array_equal(left, right)
            assert (w[-1] == 3).all()


@pytest.mark.slow
@each_backend
def test_elements_past_two_to_the_31_of_one_row(backend: str) -> None:
    """Places of int64, from the size, from memory and from a tile's start, past 2^31."""
    n = T.dynamic("n", "int64")

    @T.prim_func
    def main(
        x: T.Tensor((n,), "int8"), places: T.Tensor((64,), "int64"), y: T.Tensor((64,), "int8")
    ):
        with T.Kernel(1, threads=96):
            tile = T.alloc_shared((128,), "int8")
            for i in T.Parallel(64):
                y[i] = x[places[i]]
            T.copy(x[n - 100], tile)
            for i in T.Parallel(64):
                x[n - 200 + i] = i
            T.copy(tile, x[n - 1000 : n - 1000 + 128])

    size = 2**31 + 5000
    x = np.zeros(size, np.int8)
    x[-1200:] = np.arange(1200) % 90
    expected = x[-1200:].copy()
    places = np.concatenate([np.arange(size - 32, size), np.arange(32)])
    y = np.zeros(64, np.int8)
    kernel_on(backend, main)(x, places, y)
    np.testing.assert_array_equal(y, np.concatenate([expected[-32:], np.zeros(32, np.int8)]))
    expected[200:328] = np.concatenate([expected[-100:], np.zeros(28, np.int8)])
    expected[1000:1064] = np.arange(64)
    np.testing.assert_array_equal(x[-1200:], expected)
    assert not x[:4096].any()


@pytest.mark.slow
@each_backend
def test_elements_past_two_to_the_31(backend: str) -> None:
    """Offsets of 32 bits would wrap; 2.1 GB, and one block for each row."""
    rows, columns = 8200, 2**18
    n = T.dynamic("n")

    @T.prim_func
    def main(x: T.Tensor((n, columns), "int8"), y: T.Tensor((n,), "int32")):
        with T.Kernel(n, threads=32) as row:
            for j in T.Parallel(32):
                x[row, columns - 32 + j] = x[row, columns - 32 + j] + 1
            y[row] = x[row, columns - 1]

    x, y = np.zeros((rows, columns), np.int8), np.zeros(rows, np.int32)
    x[:, -1] = np.arange(rows) % 100
    assert x.size > 2**31
    kernel_on(backend, main)(x, y)
    np.testing.assert_array_equal(y, np.arange(rows) % 100 + 1)
    np.testing.assert_array_equal(x[:, -2], np.ones(rows, np.int8))
    assert not x[:, :64].any()
