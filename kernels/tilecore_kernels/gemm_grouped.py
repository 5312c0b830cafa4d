"""Grouped matrix product, as a mixture of experts needs it: ``C[r] = A[r] @ B[group of r]^T``.

Rows of A belong to groups, one group after the other, and every group has a B of its own.

Groups may have any number of rows, also none. A first kernel lists the tiles: which group, first
row, end of the group's rows; the second computes one of them a block. The list is as long as it can
get, so that no size has to come back to the host; its unused end costs next to nothing.
"""

# Annotations are values of the tile language here, so they are not postponed.

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.target import Target
from tilecore_kernels.family import Arrays, Family
from tilecore_kernels.gemm_configs import GemmConfig, gemm_configs
from tilecore_kernels.tiles import dtype_bytes


@dataclass(frozen=True, slots=True)
class GroupedGemmProblem:
    """One grouped product.

    Attributes:
        rows: of A and C, all groups together.
        n: columns of C.
        k: length of the sums.
        groups: how many.
        dtype: element type of A and B.
        out_dtype: element type of C; empty means as A.
    """

    rows: int
    n: int
    k: int
    groups: int
    dtype: str = "float16"
    out_dtype: str = ""

    @property
    def result_dtype(self) -> str:
        """Element type of C."""
        return self.out_dtype or self.dtype


def grouped_gemm(problem: GroupedGemmProblem, config: GemmConfig) -> Any:
    """Tile program. Arguments: A (rows, k), B (groups, n, k), Offsets (groups + 1), C (rows, n).

    Group g has the rows from ``Offsets[g]`` to ``Offsets[g + 1]``; the first offset is 0, the last
    one `rows`. Offsets that do not ascend within the rows are the caller's fault; nothing is
    written outside of C.
    """
    rows, n, k, groups = problem.rows, problem.n, problem.k, problem.groups
    dtype, out_dtype = problem.dtype, problem.result_dtype
    tile_m, tile_n, tile_k = config.block_m, config.block_n, config.block_k
    most = rows // tile_m + groups
    steps = T.ceildiv(k, tile_k)

    @T.prim_func
    def grouped_gemm(
        A: T.Tensor((rows, k), dtype),
        B: T.Tensor((groups, n, k), dtype),
        Offsets: T.Tensor((groups + 1,), "int32"),
        C: T.Tensor((rows, n), out_dtype),
    ):
        GroupOf = T.alloc_global((most,), "int32")
        RowOf = T.alloc_global((most,), "int32")
        EndOf = T.alloc_global((most,), "int32")
        with T.Kernel(1, threads=128) as _:
            begin = T.alloc_var("int32", init=0)
            for t in T.Parallel(most):
                GroupOf[t] = 0
                RowOf[t] = 0
                EndOf[t] = 0
            for g in T.serial(groups):
                first = T.max(0, Offsets[g])
                end = T.min(rows, Offsets[g + 1])
                tiles = T.max(0, T.ceildiv(end - first, tile_m))
                for t in T.Parallel(most):
                    if t >= begin and t < begin + tiles:
                        GroupOf[t] = g
                        RowOf[t] = first + (t - begin) * tile_m
                        EndOf[t] = end
                begin = begin + tiles
        with T.Kernel(T.ceildiv(n, tile_n), most, threads=config.threads) as (bx, by):
            a = T.alloc_shared((tile_m, tile_k), dtype)
            b = T.alloc_shared((tile_n, tile_k), dtype)
            c = T.alloc_fragment((tile_m, tile_n), "float32")
            T.use_swizzle(max(1, config.panel), enable=config.panel > 0)
            group = GroupOf[by]
            row = RowOf[by]
            end = EndOf[by]
            T.clear(c)
            for step in T.Pipelined(
                T.if_then_else(row < end, steps, 0), num_stages=config.num_stages
            ):
                T.copy(A[row, step * tile_k], a)
                T.copy(B[group, bx * tile_n, step * tile_k], b)
                T.gemm(a, b, c, transpose_B=True)
            if row + tile_m <= end:
                T.copy(c, C[row, bx * tile_n])
            else:  # the rows behind the end are another group's
                for i, j in T.Parallel(tile_m, tile_n):
                    if row + i < end:
                        C[row + i, bx * tile_n + j] = c[i, j]

    return grouped_gemm


def reference(
    problem: GroupedGemmProblem, a: np.ndarray, b: np.ndarray, offsets: np.ndarray
) -> Arrays:
    """The products in float64, group by group."""
    out = np.zeros((problem.rows, problem.n))
    for group, (first, end) in enumerate(pairwise(offsets)):
        out[first:end] = a[first:end].astype(np.float64) @ b[group].astype(np.float64).T
    return (out,)


def inputs(problem: GroupedGemmProblem, rng: np.random.Generator) -> Arrays:
    """Normally distributed values; groups of random sizes, some of them empty."""
    dtype = numpy_dtype(dtype_of(problem.dtype))
    a = rng.standard_normal((problem.rows, problem.k)).astype(dtype)
    b = rng.standard_normal((problem.groups, problem.n, problem.k)).astype(dtype)
    cuts = np.sort(rng.integers(0, problem.rows + 1, problem.groups - 1))
    offsets = np.concatenate([[0], cuts, [problem.rows]]).astype(np.int32)
    return a, b, offsets


def configs(problem: GroupedGemmProblem, target: Target) -> Sequence[GemmConfig]:
    """Legal tiles, the first choice in front."""
    return gemm_configs(problem.rows, problem.n, problem.k, dtype_bytes(problem.dtype), 4, target)


def _bytes_moved(problem: GroupedGemmProblem) -> float:
    read = (problem.rows + problem.groups * problem.n) * problem.k * dtype_bytes(problem.dtype)
    return float(read + problem.rows * problem.n * dtype_bytes(problem.result_dtype))


GROUPED_GEMM = Family(
    name="grouped_gemm",
    program=grouped_gemm,
    inputs=inputs,
    outputs=lambda p: (((p.rows, p.n), p.result_dtype),),
    reference=reference,
    configs=configs,
    problems=(
        GroupedGemmProblem(8192, 4096, 7168, 8, "bfloat16"),
        GroupedGemmProblem(4096, 7168, 2048, 32, "bfloat16"),
        GroupedGemmProblem(1024, 512, 512, 8, "float32"),
    ),
    flops=lambda p: 2.0 * p.rows * p.n * p.k,
    bytes_moved=_bytes_moved,
)
