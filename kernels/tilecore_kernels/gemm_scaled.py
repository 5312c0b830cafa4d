"""Matrix product of 8-bit floats with scales: ``C = (scale_a A) @ (scale_b B)^T``.

Two ways of scaling. ``tensor``: one factor for all of A, one for all of B. ``block``: A has a
factor for each row and 128 elements of k, B one for each 128 x 128 block; sums of 128 products are
scaled and added in float32, which also keeps them precise where matrix units round. Both operands
are stored along k: A (m, k), B (n, k).
"""

# Annotations are values of the tile language here, so they are not postponed.

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.target import Target
from tilecore_kernels.family import Arrays, Family
from tilecore_kernels.gemm_configs import GemmConfig, gemm_configs, rounds_of
from tilecore_kernels.tiles import ceildiv, dtype_bytes, fits_registers, has_lanes

BLOCK = 128
"""Elements along k, and columns of C, that share a factor of B."""


@dataclass(frozen=True, slots=True)
class ScaledGemmProblem:
    """One scaled product.

    Attributes:
        m: rows of A and C.
        n: rows of B, columns of C.
        k: length of the sums.
        scaling: ``"tensor"`` or ``"block"``.
        dtype: element type of A and B.
        out_dtype: element type of C.
    """

    m: int
    n: int
    k: int
    scaling: str = "tensor"
    dtype: str = "float8_e4m3fn"
    out_dtype: str = "bfloat16"

    @property
    def scale_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of the factors of A (a row for each 128 of k) and of B."""
        if self.scaling == "tensor":
            return (1,), (1,)
        steps = ceildiv(self.k, BLOCK)
        return (steps, self.m), (ceildiv(self.n, BLOCK), steps)


def scaled_gemm(problem: ScaledGemmProblem, config: GemmConfig) -> Any:
    """Tile program: one block computes one tile of C."""
    if problem.scaling == "tensor":
        return _tensor_scaled(problem, config)
    return _block_scaled(problem, config)


def _tensor_scaled(problem: ScaledGemmProblem, config: GemmConfig) -> Any:
    m, n, k, dtype, out_dtype = problem.m, problem.n, problem.k, problem.dtype, problem.out_dtype
    tile_m, tile_n, tile_k = config.block_m, config.block_n, config.block_k

    @T.prim_func
    def scaled_gemm(
        A: T.Tensor((m, k), dtype),
        B: T.Tensor((n, k), dtype),
        ScaleA: T.Tensor((1,), "float32"),
        ScaleB: T.Tensor((1,), "float32"),
        C: T.Tensor((m, n), out_dtype),
    ):
        with T.Kernel(T.ceildiv(n, tile_n), T.ceildiv(m, tile_m), threads=config.threads) as (
            bx,
            by,
        ):
            a = T.alloc_shared((tile_m, tile_k), dtype)
            b = T.alloc_shared((tile_n, tile_k), dtype)
            c = T.alloc_fragment((tile_m, tile_n), "float32")
            T.use_swizzle(max(1, config.panel), enable=config.panel > 0)
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, tile_k), num_stages=config.num_stages):
                T.copy(A[by * tile_m, step * tile_k], a)
                T.copy(B[bx * tile_n, step * tile_k], b)
                T.gemm(a, b, c, transpose_B=True)
            for i, j in T.Parallel(tile_m, tile_n):
                c[i, j] = c[i, j] * (ScaleA[0] * ScaleB[0])
            T.copy(c, C[by * tile_m, bx * tile_n])

    return scaled_gemm


def _block_scaled(problem: ScaledGemmProblem, config: GemmConfig) -> Any:
    m, n, k, dtype, out_dtype = problem.m, problem.n, problem.k, problem.dtype, problem.out_dtype
    tile_m, tile_n = config.block_m, config.block_n
    width = summed_columns(tile_n)
    parts = tuple(range(tile_n // width))
    chunk = math.gcd(width, BLOCK)  # columns that have one factor of B wherever a tile begins
    chunks = tuple(range(width // chunk))
    shape_a, shape_b = problem.scale_shapes

    @T.prim_func
    def scaled_gemm(
        A: T.Tensor((m, k), dtype),
        B: T.Tensor((n, k), dtype),
        ScaleA: T.Tensor(shape_a, "float32"),
        ScaleB: T.Tensor(shape_b, "float32"),
        C: T.Tensor((m, n), out_dtype),
    ):
        with T.Kernel(T.ceildiv(n, tile_n), T.ceildiv(m, tile_m), threads=config.threads) as (
            bx,
            by,
        ):
            a = T.alloc_shared((tile_m, BLOCK), dtype)
            b = T.alloc_shared((tile_n, BLOCK), dtype)
            rows = T.alloc_shared((tile_m,), "float32")
            scales = [T.alloc_fragment((tile_m,), "float32") for _ in chunks]
            part = T.alloc_fragment((tile_m, width), "float32")
            sums = [T.alloc_fragment((tile_m, width), "float32") for _ in parts]
            T.use_swizzle(max(1, config.panel), enable=config.panel > 0)
            for p in parts:
                T.clear(sums[p])
            for step in T.Pipelined(shape_a[0], num_stages=config.num_stages):
                T.copy(A[by * tile_m, step * BLOCK], a)
                T.copy(B[bx * tile_n, step * BLOCK], b)
                T.copy(ScaleA[step, by * tile_m], rows)
                for p in parts:
                    for c in chunks:
                        columns = ScaleB[(bx * tile_n + p * width + c * chunk) // BLOCK, step]
                        for i in T.Parallel(tile_m):
                            scales[c][i] = rows[i] * columns
                    T.gemm(
                        a, b[p * width : (p + 1) * width, :], part,
                        transpose_B=True, clear_accum=True,
                    )  # fmt: skip
                    for i, j in T.Parallel(tile_m, width):
                        scale = scales[-1][i]
                        for c in reversed(chunks[:-1]):
                            scale = T.if_then_else(j < (c + 1) * chunk, scales[c][i], scale)
                        sums[p][i, j] += part[i, j] * scale
            for p in parts:
                T.copy(sums[p], C[by * tile_m, bx * tile_n + p * width])

    return scaled_gemm


def summed_columns(tile_n: int) -> int:
    """Columns of a tile that are summed at a time: all, or one block where they are many."""
    return tile_n if tile_n % BLOCK else min(tile_n, BLOCK)


def reference(
    problem: ScaledGemmProblem,
    a: np.ndarray,
    b: np.ndarray,
    scale_a: np.ndarray,
    scale_b: np.ndarray,
) -> Arrays:
    """The product in float64."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    if problem.scaling == "tensor":
        return ((left @ right.T) * float(scale_a[0]) * float(scale_b[0]),)
    of_a = np.repeat(scale_a.astype(np.float64).T, BLOCK, axis=1)[:, : problem.k]
    of_b = np.repeat(np.repeat(scale_b.astype(np.float64), BLOCK, axis=0), BLOCK, axis=1)
    return ((left * of_a) @ (right * of_b[: problem.n, : problem.k]).T,)


def inputs(problem: ScaledGemmProblem, rng: np.random.Generator) -> Arrays:
    """Normally distributed values with positive factors around one."""
    dtype = numpy_dtype(dtype_of(problem.dtype))
    values = [
        rng.standard_normal(s).astype(dtype)
        for s in ((problem.m, problem.k), (problem.n, problem.k))
    ]
    factors = [rng.uniform(0.5, 1.5, s).astype(np.float32) for s in problem.scale_shapes]
    return (*values, *factors)


def configs(problem: ScaledGemmProblem, target: Target) -> Sequence[GemmConfig]:
    """Legal tiles, the first choice in front."""
    k = max(BLOCK, problem.k)
    found = gemm_configs(problem.m, problem.n, k, dtype_bytes(problem.dtype), 4, target)
    if problem.scaling == "tensor":
        return found
    found = [c for c in found if _takes_blocks(c, target)]
    if not target.has("bulk_copy"):
        return found
    m, n = problem.m, problem.n
    rounds = {c: rounds_of(c, m, n, target) * c.block_m * c.block_n for c in found}
    # A stable sort: among tiles that take about as many rounds, first those whose sums take turns.
    best = min(rounds.values(), default=0)
    return sorted(found, key=lambda c: not (_takes_turns(c, target) and rounds[c] <= 1.03 * best))


def _takes_turns(config: GemmConfig, target: Target) -> bool:
    """True for large tiles whose registers hold a step's sums twice: one set is scaled while the
    other is computed (3 to 5 % over 128x256 tiles, docs/performance-log.md)."""
    width = summed_columns(config.block_n)
    sums = 4 * config.block_m * (config.block_n + 2 * width)
    is_large = config.block_m == config.block_n == BLOCK and config.num_stages == 4
    return is_large and fits_registers(sums, config.threads, target, share=0.85)


def _takes_blocks(config: GemmConfig, target: Target) -> bool:
    """True for tiles in whole blocks of factors, with registers for sums and those of a step."""
    if config.block_k != BLOCK:
        return False
    if not has_lanes(target):  # a core works on whole vectors of columns, under one factor
        return config.block_n % min(config.block_n, BLOCK) == 0
    width = summed_columns(config.block_n)
    sums = 4 * config.block_m * (config.block_n + width)
    return fits_registers(sums, config.threads, target, share=0.85)


def _bytes_moved(problem: ScaledGemmProblem) -> float:
    read = (problem.m + problem.n) * problem.k * dtype_bytes(problem.dtype)
    return float(read + problem.m * problem.n * dtype_bytes(problem.out_dtype))


SCALED_GEMM = Family(
    name="scaled_gemm",
    program=scaled_gemm,
    inputs=inputs,
    outputs=lambda p: (((p.m, p.n), p.out_dtype),),
    reference=reference,
    configs=configs,
    problems=(
        *(ScaledGemmProblem(size, size, size) for size in (4096, 8192)),
        ScaledGemmProblem(4096, 7168, 2048),
        *(
            ScaledGemmProblem(m, n, k, "block")
            for n, k in ((2112, 7168), (24576, 1536), (7168, 16384), (4096, 7168), (7168, 2048))
            for m in (64, 128, 4096)
        ),
    ),
    flops=lambda p: 2.0 * p.m * p.n * p.k,
    bytes_moved=_bytes_moved,
)
