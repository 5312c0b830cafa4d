"""Contractions of tiles: operand forms, scopes, policies, dtypes, ragged sizes."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.ir.dtypes import dtype_of
from tilecore_conformance import bounds
from tilecore_conformance.experiment import Expected, Experiment, normal, output


def product(a: np.ndarray, b: np.ndarray, dtype: str, accum: str, out_dtype: str) -> Expected:
    """``a @ b`` in float64 (exact in integers), with the error that rounding may make."""
    if not dtype_of(dtype).is_float:
        return Expected((a.astype(np.int64) @ b.astype(np.int64)).astype(out_dtype))
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    value, size = wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)
    return Expected(value, bounds.contraction(value, size, a.shape[1], dtype, accum, out_dtype))


def gemm_tiled(
    rng: np.random.Generator,
    m: int,
    n: int,
    k: int,
    dtype: str = "float16",
    accum: str = "float32",
    out_dtype: str = "float32",
    tile: list[int] | None = None,
    trans: str = "NN",
    policy: str = "Square",
    num_stages: int = 2,
    threads: int = 128,
) -> Experiment:
    """``C = op(A) op(B)`` over tiles, operands in shared memory."""
    tile_m, tile_n, tile_k = tile or [64, 64, 32]
    trans_a, trans_b = trans[0] == "T", trans[1] == "T"
    shape_a, tile_a = ((k, m), (tile_k, tile_m)) if trans_a else ((m, k), (tile_m, tile_k))
    shape_b, tile_b = ((n, k), (tile_n, tile_k)) if trans_b else ((k, n), (tile_k, tile_n))
    warps = getattr(T.GemmWarpPolicy, policy)

    @T.prim_func
    def gemm_tiled(
        A: T.Tensor(shape_a, dtype), B: T.Tensor(shape_b, dtype), C: T.Tensor((m, n), out_dtype)
    ):
        with T.Kernel(T.ceildiv(n, tile_n), T.ceildiv(m, tile_m), threads=threads) as (bx, by):
            a = T.alloc_shared(tile_a, dtype)
            b = T.alloc_shared(tile_b, dtype)
            c = T.alloc_fragment((tile_m, tile_n), accum)
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, tile_k), num_stages=num_stages):
                if trans_a:
                    T.copy(A[step * tile_k, by * tile_m], a)
                else:
                    T.copy(A[by * tile_m, step * tile_k], a)
                if trans_b:
                    T.copy(B[bx * tile_n, step * tile_k], b)
                else:
                    T.copy(B[step * tile_k, bx * tile_n], b)
                T.gemm(a, b, c, transpose_A=trans_a, transpose_B=trans_b, policy=warps)
            T.copy(c, C[by * tile_m, bx * tile_n])

    a, b = normal(rng, shape_a, dtype), normal(rng, shape_b, dtype)

    def expected() -> tuple[Expected, ...]:
        left, right = (a.T if trans_a else a), (b.T if trans_b else b)
        return (product(left, right, dtype, accum, out_dtype),)

    return Experiment(gemm_tiled, (a, b), (output((m, n), out_dtype),), expected)


def gemm_fragment_a(
    rng: np.random.Generator,
    m: int,
    n: int,
    k: int,
    dtype: str = "float16",
    policy: str = "FullRow",
    threads: int = 128,
) -> Experiment:
    """The left operand comes from a fragment that was computed, as in attention."""
    warps = getattr(T.GemmWarpPolicy, policy)

    @T.prim_func
    def gemm_fragment_a(
        A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), "float32")
    ):
        with T.Kernel(1, threads=threads) as _:
            a = T.alloc_fragment((m, k), dtype)
            b = T.alloc_shared((k, n), dtype)
            c = T.alloc_fragment((m, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            for i, j in T.Parallel(m, k):
                a[i, j] = a[i, j] * T.cast(2, dtype)
            T.gemm(a, b, c, clear_accum=True, policy=warps)
            T.copy(c, C)

    a, b = normal(rng, (m, k), dtype), normal(rng, (k, n), dtype)

    def expected() -> tuple[Expected, ...]:
        doubled = (a.astype(np.float32) * 2).astype(a.dtype)
        return (product(doubled, b, dtype, "float32", "float32"),)

    return Experiment(gemm_fragment_a, (a, b), (output((m, n), "float32"),), expected)


def gemm_chain(
    rng: np.random.Generator, m: int, n: int, k: int, dtype: str = "float16", threads: int = 128
) -> Experiment:
    """``D = (A B) C``: the accumulator of one product is an operand of the next."""

    @T.prim_func
    def gemm_chain(
        A: T.Tensor((m, k), dtype),
        B: T.Tensor((k, n), dtype),
        C: T.Tensor((n, k), dtype),
        D: T.Tensor((m, k), "float32"),
    ):
        with T.Kernel(1, threads=threads) as _:
            a = T.alloc_shared((m, k), dtype)
            b = T.alloc_shared((k, n), dtype)
            c = T.alloc_shared((n, k), dtype)
            s = T.alloc_fragment((m, n), "float32")
            p = T.alloc_fragment((m, n), dtype)
            d = T.alloc_fragment((m, k), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.copy(C, c)
            T.clear(s)
            T.clear(d)
            T.gemm(a, b, s, policy=T.GemmWarpPolicy.FullRow)
            T.copy(s, p)
            T.gemm(p, c, d, policy=T.GemmWarpPolicy.FullRow)
            T.copy(d, D)

    arrays = [normal(rng, shape, dtype) for shape in ((m, k), (k, n), (n, k))]

    def expected() -> tuple[Expected, ...]:
        a, b, c = (array.astype(np.float64) for array in arrays)
        value, size = a @ b @ c, np.abs(a) @ np.abs(b) @ np.abs(c)
        # Rounding the middle to the operand's dtype is one more rounding of each of its terms.
        middle = bounds.rounding(np.abs(a) @ np.abs(b), dtype) @ np.abs(c)
        final = bounds.contraction(value, size, n + k, dtype, "float32", "float32")
        return (Expected(value, middle + final),)

    return Experiment(gemm_chain, tuple(arrays), (output((m, k), "float32"),), expected)


def gemm_clear(
    rng: np.random.Generator, steps: int, clear_at: int, dtype: str = "float16"
) -> Experiment:
    """`clear_accum` that holds in one step of a loop only: what was summed before is dropped."""
    size = 32

    @T.prim_func
    def gemm_clear(
        A: T.Tensor((size, steps * size), dtype),
        B: T.Tensor((steps * size, size), dtype),
        C: T.Tensor((size, size), "float32"),
    ):
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((size, size), dtype)
            b = T.alloc_shared((size, size), dtype)
            c = T.alloc_fragment((size, size), "float32")
            T.fill(c, 3)
            for step in T.serial(steps):
                T.copy(A[0, step * size], a)
                T.copy(B[step * size, 0], b)
                T.gemm(a, b, c, clear_accum=(step == clear_at))
            T.copy(c, C)

    a, b = normal(rng, (size, steps * size), dtype), normal(rng, (steps * size, size), dtype)

    def expected() -> tuple[Expected, ...]:
        start = clear_at * size if clear_at < steps else 0
        found = product(a[:, start:], b[start:], dtype, "float32", "float32")
        return (Expected(found.value + (3.0 if clear_at >= steps else 0.0), found.allowed),)

    return Experiment(gemm_clear, (a, b), (output((size, size), "float32"),), expected)


BUILDERS: tuple[Any, ...] = (gemm_tiled, gemm_fragment_a, gemm_chain, gemm_clear)
