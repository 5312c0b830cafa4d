"""Dynamic sizes: one kernel for all lengths, and work of size zero."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np

import tilecore.language as T
from tilecore_conformance import bounds
from tilecore_conformance.experiment import Expected, Experiment, normal, output
from tilecore_conformance.programs.gemms import product


def dynamic_scale(rng: np.random.Generator, size: int, threads: int = 128) -> Experiment:
    """One dynamic length."""
    tile = 64
    n = T.dynamic("n")

    @T.prim_func
    def dynamic_scale(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, tile), threads=threads) as bx:
            x = T.alloc_fragment((tile,), "float32")
            T.copy(X[bx * tile], x)
            for i in T.Parallel(tile):
                x[i] = x[i] * 3.0
            T.copy(x, Y[bx * tile])

    x = normal(rng, (size,), "float32")

    def expected() -> tuple[Expected, ...]:
        value = x.astype(np.float64) * 3.0
        return (Expected(value, bounds.rounding(value, "float32")),)

    return Experiment(dynamic_scale, (x,), (output((size,), "float32"),), expected)


def dynamic_gemm(
    rng: np.random.Generator, m: int, n: int, k: int, num_stages: int = 2
) -> Experiment:
    """All three sizes dynamic."""
    tile, dtype = 32, "float16"
    dm, dn, dk = T.dynamic("m, n, k")

    @T.prim_func
    def dynamic_gemm(
        A: T.Tensor((dm, dk), dtype), B: T.Tensor((dk, dn), dtype), C: T.Tensor((dm, dn), "float32")
    ):
        with T.Kernel(T.ceildiv(dn, tile), T.ceildiv(dm, tile), threads=64) as (bx, by):
            a = T.alloc_shared((tile, tile), dtype)
            b = T.alloc_shared((tile, tile), dtype)
            c = T.alloc_fragment((tile, tile), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(dk, tile), num_stages=num_stages):
                T.copy(A[by * tile, step * tile], a)
                T.copy(B[step * tile, bx * tile], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * tile, bx * tile])

    a, b = normal(rng, (m, k), dtype), normal(rng, (k, n), dtype)
    return Experiment(
        dynamic_gemm,
        (a, b),
        (output((m, n), "float32"),),
        lambda: (product(a, b, dtype, "float32", "float32"),),
    )


def dynamic_rows(rng: np.random.Generator, rows: int, cols: int) -> Experiment:
    """Dynamic rows, constant columns, and the dynamic size used as a number."""
    r = T.dynamic("r")

    @T.prim_func
    def dynamic_rows(X: T.Tensor((r, cols), "float32"), Y: T.Tensor((r, cols), "float32")):
        with T.Kernel(r, threads=32) as bx:
            for j in T.Parallel(cols):
                Y[bx, j] = X[r - 1 - bx, j]

    x = normal(rng, (rows, cols), "float32")
    return Experiment(
        dynamic_rows,
        (x,),
        (output((rows, cols), "float32"),),
        lambda: (Expected(np.ascontiguousarray(x[::-1])),),
    )


def empty_reduce(rng: np.random.Generator, op: str, rows: int) -> Experiment:
    """A row of no elements gives the operation's neutral element, by a loop that runs no round."""
    tile = 32
    n = T.dynamic("n")
    reduction = getattr(T, f"reduce_{op}")
    start = {"sum": 0.0, "max": -np.inf, "min": np.inf}[op]

    @T.prim_func
    def empty_reduce(X: T.Tensor((rows, n), "float32"), Y: T.Tensor((rows,), "float32")):
        with T.Kernel(1, threads=64) as _:
            x = T.alloc_fragment((rows, tile), "float32")
            y = T.alloc_fragment((rows,), "float32")
            T.fill(y, start)
            for step in T.serial(T.ceildiv(n, tile)):
                T.copy(X[0, step * tile], x)
                reduction(x, y, dim=1, clear=False)
            T.copy(y, Y)

    x = normal(rng, (rows, 0), "float32")
    return Experiment(
        empty_reduce, (x,), (output((rows,), "float32"),), lambda: (Expected(np.full(rows, start)),)
    )


BUILDERS: tuple[Any, ...] = (dynamic_scale, dynamic_gemm, dynamic_rows, empty_reduce)
