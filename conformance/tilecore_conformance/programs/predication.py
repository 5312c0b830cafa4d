"""Ragged edges: no tile size changes the answer, nothing outside a tensor is read or written."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np

import tilecore.language as T
from tilecore_conformance import bounds
from tilecore_conformance.experiment import Expected, Experiment, normal, output
from tilecore_conformance.programs.gemms import product


def guarded_store(
    rng: np.random.Generator, rows: int, cols: int, tile: list[int], threads: int = 128
) -> Experiment:
    """Stores of a Parallel over a whole tile, without a test for the edge by the author."""
    tile_rows, tile_cols = tile

    @T.prim_func
    def guarded_store(Y: T.Tensor((rows, cols), "int32")):
        with T.Kernel(T.ceildiv(cols, tile_cols), T.ceildiv(rows, tile_rows), threads=threads) as (
            bx,
            by,
        ):
            for i, j in T.Parallel(tile_rows, tile_cols):
                Y[by * tile_rows + i, bx * tile_cols + j] = (by * tile_rows + i) * 4096 + (
                    bx * tile_cols + j
                )

    def expected() -> tuple[Expected, ...]:
        row, col = np.ogrid[:rows, :cols]
        return (Expected((row * 4096 + col).astype(np.int32)),)

    return Experiment(guarded_store, (), (output((rows, cols), "int32"),), expected)


def guarded_load(rng: np.random.Generator, size: int, shift: int, threads: int = 128) -> Experiment:
    """A select around a load keeps it from touching what lies outside: ``Y[i] = X[i + shift]``."""
    tile = 64

    @T.prim_func
    def guarded_load(X: T.Tensor((size,), "float32"), Y: T.Tensor((size,), "float32")):
        with T.Kernel(T.ceildiv(size, tile), threads=threads) as bx:
            for i in T.Parallel(tile):
                index = bx * tile + i
                if index < size:
                    Y[index] = T.if_then_else(
                        index + shift >= 0 and index + shift < size, X[index + shift], -1.0
                    )

    x = normal(rng, (size,), "float32")

    def expected() -> tuple[Expected, ...]:
        source = np.arange(size) + shift
        inside = (source >= 0) & (source < size)
        return (Expected(np.where(inside, x[np.clip(source, 0, max(size - 1, 0))], -1.0)),)

    return Experiment(guarded_load, (x,), (output((size,), "float32"),), expected)


def ragged_gemm(
    rng: np.random.Generator, m: int, n: int, k: int, tile: list[int], threads: int = 128
) -> Experiment:
    """A product whose three sizes no tile divides, with a bias that is read at the edge."""
    tile_m, tile_n, tile_k = tile
    dtype = "float16"

    @T.prim_func
    def ragged_gemm(
        A: T.Tensor((m, k), dtype),
        B: T.Tensor((k, n), dtype),
        Bias: T.Tensor((n,), "float32"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, tile_n), T.ceildiv(m, tile_m), threads=threads) as (bx, by):
            a = T.alloc_shared((tile_m, tile_k), dtype)
            b = T.alloc_shared((tile_k, tile_n), dtype)
            bias = T.alloc_fragment((tile_n,), "float32")
            c = T.alloc_fragment((tile_m, tile_n), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, tile_k), num_stages=2):
                T.copy(A[by * tile_m, step * tile_k], a)
                T.copy(B[step * tile_k, bx * tile_n], b)
                T.gemm(a, b, c)
            T.copy(Bias[bx * tile_n], bias)
            for i, j in T.Parallel(tile_m, tile_n):
                c[i, j] += bias[j]
            T.copy(c, C[by * tile_m, bx * tile_n])

    a, b = normal(rng, (m, k), dtype), normal(rng, (k, n), dtype)
    bias = normal(rng, (n,), "float32")

    def expected() -> tuple[Expected, ...]:
        found = product(a, b, dtype, "float32", "float32")
        value = found.value + bias.astype(np.float64)
        size = np.abs(found.value) + np.abs(bias)
        return (Expected(value, found.allowed + bounds.rounding(size, "float32")),)

    return Experiment(ragged_gemm, (a, b, bias), (output((m, n), "float32"),), expected)


def offset_windows(
    rng: np.random.Generator, size: int, window: int, stride: int, threads: int = 64
) -> Experiment:
    """Overlapping windows that reach over the end: reads there are the safe value zero."""
    count = -(-size // stride)

    @T.prim_func
    def offset_windows(X: T.Tensor((size,), "float32"), Y: T.Tensor((count, window), "float32")):
        with T.Kernel(count, threads=threads) as bx:
            x = T.alloc_shared((window,), "float32")
            T.copy(X[bx * stride : bx * stride + window], x)
            T.copy(x, Y[bx, 0:window])

    x = normal(rng, (size,), "float32")

    def expected() -> tuple[Expected, ...]:
        padded = np.concatenate([x, np.zeros(window + stride, np.float32)])
        starts = np.arange(count)[:, None] * stride
        return (Expected(padded[starts + np.arange(window)[None, :]]),)

    return Experiment(offset_windows, (x,), (output((count, window), "float32"),), expected)


BUILDERS: tuple[Any, ...] = (guarded_store, guarded_load, ragged_gemm, offset_windows)
