"""Tiles, loops and thread counts that divide nothing: one meaning on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agreement import agree, each_backend, whole_numbers

import tilecore.language as T

M, N = 17, 33


def odd_tile(threads: int) -> Any:
    """Copies, reductions and scans along both axes, and other lanes' elements, of an odd tile."""

    @T.prim_func
    def main(
        x: T.Tensor((40, 70), "float32"),
        y: T.Tensor((40, 70), "float32"),
        rows: T.Tensor((2, M), "float32"),
        columns: T.Tensor((2, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(70, N), T.ceildiv(40, M), threads=threads) as (bx, by):
            s = T.alloc_shared((M, N), "float32")
            f = T.alloc_fragment((M, N), "float32")
            g = T.alloc_fragment((M, N), "float32")
            row = T.alloc_fragment((M,), "float32")
            column = T.alloc_fragment((N,), "float32")
            kept = T.alloc_shared((N,), "float32")
            T.copy(x[by * M, bx * N], s)
            T.copy(s, f)
            T.reduce_sum(f, row, dim=1)
            T.reduce_max(s, column, dim=0)
            T.copy(column, kept)
            for i, j in T.Parallel(M, N):
                g[i, j] = f[i, j] * 2 + row[i] - kept[N - 1 - j] + column[j]
            T.cumsum(s, dim=0)
            for i, j in T.Parallel(M, N):
                g[i, j] = g[i, j] + s[(i + 5) % M, (j + 7) % N]
            for j, i in T.Parallel(N, M):
                s[i, j] = g[i, j]
            T.reduce_min(g, row, dim=1, clear=False)
            T.reduce_absmax(g, column, dim=0, clear=False)
            T.cummax(s, dim=1, reverse=True)
            T.copy(s, y[by * M, bx * N])
            if bx == 1 and by == 1:
                T.copy(column, columns[0, :])
                for i in T.Parallel(M):
                    rows[0, i] = row[M - 1 - i]
            if bx == 0 and by == 0:
                for i in T.Parallel(M):
                    rows[1, i] = f[i, i] + f[M - 1 - i, 2 * i]
                for j in T.Parallel(N):
                    columns[1, j] = g[j // 2, j]

    return main


@each_backend
@pytest.mark.parametrize("threads", [96, 224])
def test_an_odd_tile(threads: int, backend: str) -> None:
    outputs = [np.zeros(shape, np.float32) for shape in ((40, 70), (2, M), (2, N))]
    agree(backend, odd_tile(threads), whole_numbers(40, 70), *outputs)


def nested(outer: int, inner: int, threads: int) -> Any:
    """A pipeline in a pipeline; tiles of the inner one are touched before and after it."""
    m, n, k = 24, 40, 16

    @T.prim_func
    def main(
        A: T.Tensor((60, 100), "float16"),
        B: T.Tensor((100, 50), "float16"),
        C: T.Tensor((60, 50), "float32"),
        rows: T.Tensor((3, m), "float32"),
    ):
        with T.Kernel(T.ceildiv(50, n), threads=threads) as bx:
            a = T.alloc_shared((m, k), "float16")
            b = T.alloc_shared((k, n), "float16")
            kept = T.alloc_shared((m, k), "float16")
            c = T.alloc_fragment((m, n), "float32")
            row = T.alloc_fragment((m,), "float32")
            T.fill(a, 1)
            T.clear(row)
            for o in T.Pipelined(T.ceildiv(60, m), num_stages=outer):
                T.clear(c)
                T.copy(A[o * m, 0], kept)
                for q in T.Pipelined(T.ceildiv(100, k), num_stages=inner):
                    T.copy(A[o * m, q * k], a)
                    T.copy(B[q * k, bx * n], b)
                    T.gemm(a, b, c)
                    T.reduce_sum(a, row, dim=1, clear=False)
                for i, j in T.Parallel(m, n):
                    c[i, j] = c[i, j] + kept[i, j % k] + a[(i + 1) % m, j % k]
                T.copy(c, C[o * m, bx * n])
            if bx == 0:
                T.copy(row, rows[0, :])
                for i in T.Parallel(m):
                    rows[1, i] = a[i, 3]
                for i in T.Parallel(m):
                    rows[2, i] = kept[i, 2]

    return main


@each_backend
@pytest.mark.parametrize(("outer", "inner", "threads"), [(0, 2, 64), (2, 3, 160)])
def test_a_pipeline_in_a_pipeline(outer: int, inner: int, threads: int, backend: str) -> None:
    a, b = whole_numbers(60, 100, dtype="float16"), whole_numbers(100, 50, dtype="float16", seed=1)
    outputs = [np.zeros(shape, np.float32) for shape in ((60, 50), (3, 24))]
    agree(backend, nested(outer, inner, threads), a, b, *outputs)


def odd_product(m: int, n: int, k: int, threads: int, stages: int) -> Any:
    @T.prim_func
    def main(
        A: T.Tensor((50, 70), "float16"),
        B: T.Tensor((60, 70), "float16"),
        C: T.Tensor((50, 60), "float32"),
        sums: T.Tensor((50,), "float32"),
    ):
        with T.Kernel(T.ceildiv(60, n), T.ceildiv(50, m), threads=threads) as (bx, by):
            a = T.alloc_shared((m, k), "float16")
            b = T.alloc_shared((n, k), "float16")
            c = T.alloc_fragment((m, n), "float32")
            last = T.alloc_fragment((m, n), "float32")
            row = T.alloc_fragment((m,), "float32")
            T.clear(c)
            T.fill(last, 1)
            for q in T.Pipelined(T.ceildiv(70, k), num_stages=stages):
                T.copy(A[by * m, q * k], a)
                T.copy(B[bx * n, q * k], b)
                T.gemm(a, b, c, transpose_B=True)
                T.gemm(a, b, last, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(m, n):
                c[i, j] = c[i, j] + last[i, j] * 2
            T.reduce_sum(c, row, dim=1)
            T.copy(c, C[by * m, bx * n])
            for i in T.Parallel(m):
                if by * m + i < 50:
                    T.atomic_add(sums[by * m + i], row[i])

    return main


@each_backend
@pytest.mark.parametrize(
    ("m", "n", "k", "threads", "stages"),
    [
        (17, 33, 9, 96, 2),
        (48, 24, 20, 224, 3),
        pytest.param(80, 24, 16, 160, 2, marks=pytest.mark.slow),
        pytest.param(64, 33, 32, 128, 3, marks=pytest.mark.slow),
    ],
)
def test_products_of_odd_tiles(
    m: int, n: int, k: int, threads: int, stages: int, backend: str
) -> None:
    a, b = whole_numbers(50, 70, dtype="float16"), whole_numbers(60, 70, dtype="float16", seed=1)
    c, sums = np.zeros((50, 60), np.float32), np.zeros(50, np.float32)
    agree(backend, odd_product(m, n, k, threads, stages), a, b, c, sums)
