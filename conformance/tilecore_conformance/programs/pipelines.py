"""Pipelined loops: any number of stages, iterations and threads gives the same answer."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np

import tilecore.language as T
from tilecore_conformance import bounds
from tilecore_conformance.experiment import Expected, Experiment, normal, output
from tilecore_conformance.programs.gemms import product


def pipeline_sum(
    rng: np.random.Generator, steps: int, num_stages: int, threads: int = 128
) -> Experiment:
    """Two loads a step, combined elementwise: no step may see another's tile."""
    tile = 32

    @T.prim_func
    def pipeline_sum(
        X: T.Tensor((steps * tile, tile), "float32"),
        Y: T.Tensor((steps * tile, tile), "float32"),
        Z: T.Tensor((tile, tile), "float32"),
    ):
        with T.Kernel(1, threads=threads) as _:
            x = T.alloc_shared((tile, tile), "float32")
            y = T.alloc_shared((tile, tile), "float32")
            z = T.alloc_fragment((tile, tile), "float32")
            T.clear(z)
            for step in T.Pipelined(steps, num_stages=num_stages):
                T.copy(X[step * tile, 0], x)
                T.copy(Y[step * tile, 0], y)
                for i, j in T.Parallel(tile, tile):
                    z[i, j] += x[i, j] * y[j, i]
            T.copy(z, Z)

    x, y = (normal(rng, (steps * tile, tile), "float32") for _ in range(2))

    def expected() -> tuple[Expected, ...]:
        left = x.astype(np.float64).reshape(steps, tile, tile)
        right = y.astype(np.float64).reshape(steps, tile, tile).transpose(0, 2, 1)
        value, size = (left * right).sum(axis=0), np.abs(left * right).sum(axis=0)
        return (Expected(value, bounds.sum(size, "float32", steps + 1)),)

    return Experiment(pipeline_sum, (x, y), (output((tile, tile), "float32"),), expected)


def pipeline_gemm(
    rng: np.random.Generator,
    k: int,
    num_stages: int,
    threads: int = 128,
    dtype: str = "float16",
    start: int = 0,
) -> Experiment:
    """A ragged product with a pipelined main loop that may start late."""
    m, n, tile_k = 72, 56, 32
    steps = -(-k // tile_k)

    @T.prim_func
    def pipeline_gemm(
        A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), "float32")
    ):
        with T.Kernel(1, 2, threads=threads) as (bx, by):
            a = T.alloc_shared((64, tile_k), dtype)
            b = T.alloc_shared((tile_k, 64), dtype)
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for step in T.Pipelined(start, steps, num_stages=num_stages):
                T.copy(A[by * 64, step * tile_k], a)
                T.copy(B[step * tile_k, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    a, b = normal(rng, (m, k), dtype), normal(rng, (k, n), dtype)
    return Experiment(
        pipeline_gemm,
        (a, b),
        (output((m, n), "float32"),),
        lambda: (
            product(a[:, start * tile_k :], b[start * tile_k :], dtype, "float32", "float32"),
        ),
    )


def pipeline_order(
    rng: np.random.Generator, steps: int, order: list[int], stage: list[int]
) -> Experiment:
    """The author's own schedule of the statements of a step."""
    tile, dtype = 32, "float16"

    @T.prim_func
    def pipeline_order(
        A: T.Tensor((tile, steps * tile), dtype),
        B: T.Tensor((steps * tile, tile), dtype),
        C: T.Tensor((tile, tile), "float32"),
    ):
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((tile, tile), dtype)
            b = T.alloc_shared((tile, tile), dtype)
            c = T.alloc_fragment((tile, tile), "float32")
            T.clear(c)
            for step in T.Pipelined(steps, order=order, stage=stage):
                T.copy(A[0, step * tile], a)
                T.copy(B[step * tile, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    a, b = normal(rng, (tile, steps * tile), dtype), normal(rng, (steps * tile, tile), dtype)
    return Experiment(
        pipeline_order,
        (a, b),
        (output((tile, tile), "float32"),),
        lambda: (product(a, b, dtype, "float32", "float32"),),
    )


def pipeline_nested(
    rng: np.random.Generator, outer: int, inner: int, num_stages: int
) -> Experiment:
    """A pipelined loop inside a serial one: its buffers are used again from the start."""
    tile = 16

    @T.prim_func
    def pipeline_nested(
        X: T.Tensor((outer * inner * tile, tile), "float32"),
        Y: T.Tensor((outer * tile, tile), "float32"),
    ):
        with T.Kernel(1, threads=64) as _:
            x = T.alloc_shared((tile, tile), "float32")
            y = T.alloc_fragment((tile, tile), "float32")
            for o in T.serial(outer):
                T.clear(y)
                for step in T.Pipelined(inner, num_stages=num_stages):
                    T.copy(X[(o * inner + step) * tile, 0], x)
                    for i, j in T.Parallel(tile, tile):
                        y[i, j] += x[j, i]
                T.copy(y, Y[o * tile, 0])

    x = normal(rng, (outer * inner * tile, tile), "float32")

    def expected() -> tuple[Expected, ...]:
        tiles = x.astype(np.float64).reshape(outer, inner, tile, tile).transpose(0, 1, 3, 2)
        value, size = tiles.sum(axis=1), np.abs(tiles).sum(axis=1)
        shape = (outer * tile, tile)
        allowed = bounds.sum(size, "float32", inner).reshape(shape)
        return (Expected(value.reshape(shape), allowed),)

    return Experiment(pipeline_nested, (x,), (output((outer * tile, tile), "float32"),), expected)


BUILDERS: tuple[Any, ...] = (pipeline_sum, pipeline_gemm, pipeline_order, pipeline_nested)
