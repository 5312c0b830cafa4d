"""Matrix product whose sums are split among blocks: ``C = A @ op(B)`` for few rows and long sums.

With few tiles of C, most of a device would wait. So every tile is computed by `splits` blocks, each
over its part of k, into a workspace of float32; a second kernel adds the parts and rounds once. The
result does not depend on which block is first.
"""

# Annotations are values of the tile language here, so they are not postponed.

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.target import Target
from tilecore_kernels.family import Arrays, Family
from tilecore_kernels.gemm import GemmProblem
from tilecore_kernels.gemm import inputs as gemm_inputs
from tilecore_kernels.gemm import reference as gemm_reference
from tilecore_kernels.gemm_configs import GemmConfig, gemm_configs
from tilecore_kernels.tiles import BLOCKS_TO_FILL, ceildiv, dtype_bytes, has_lanes

SUM_TILE = 1024
"""Elements of C that one block of the second kernel adds up."""


@dataclass(frozen=True, slots=True)
class SplitConfig(GemmConfig):
    """Tiles and schedule of one split product.

    Attributes:
        splits: blocks that share a tile of C.
    """

    splits: int = 1


def split_gemm(problem: GemmProblem, config: SplitConfig) -> Any:
    """Tile program of a plain product: A (m, k), B (k, n) or (n, k), C (m, n)."""
    m, n, k, dtype, out_dtype = problem.m, problem.n, problem.k, problem.dtype, problem.result_dtype
    accum, trans_b, splits = problem.accumulator, problem.transpose_b, config.splits
    tile_m, tile_n, tile_k = config.block_m, config.block_n, config.block_k
    steps = ceildiv(ceildiv(k, tile_k), splits)
    shape_b, tile_b = ((n, k), (tile_n, tile_k)) if trans_b else ((k, n), (tile_k, tile_n))

    @T.prim_func
    def split_gemm(
        A: T.Tensor((m, k), dtype), B: T.Tensor(shape_b, dtype), C: T.Tensor((m, n), out_dtype)
    ):
        Parts = T.alloc_global((splits, m, n), accum)
        with T.Kernel(
            T.ceildiv(n, tile_n), T.ceildiv(m, tile_m), splits, threads=config.threads
        ) as (bx, by, bz):
            a = T.alloc_shared((tile_m, tile_k), dtype)
            b = T.alloc_shared(tile_b, dtype)
            c = T.alloc_fragment((tile_m, tile_n), accum)
            T.clear(c)
            for step in T.Pipelined(steps, num_stages=config.num_stages):
                at = (bz * steps + step) * tile_k
                T.copy(A[by * tile_m, at], a)
                if trans_b:
                    T.copy(B[bx * tile_n, at], b)
                else:
                    T.copy(B[at, bx * tile_n], b)
                T.gemm(a, b, c, transpose_B=trans_b)
            T.copy(c, Parts[bz, by * tile_m, bx * tile_n])
        with T.Kernel(T.ceildiv(n, SUM_TILE), m, threads=128) as (bx, by):
            total = T.alloc_fragment((SUM_TILE,), accum)
            part = T.alloc_fragment((SUM_TILE,), accum)
            T.clear(total)
            for split in T.unroll(splits):
                T.copy(Parts[split, by, bx * SUM_TILE], part)
                for i in T.Parallel(SUM_TILE):
                    total[i] += part[i]
            T.copy(total, C[by, bx * SUM_TILE])

    return split_gemm


def configs(problem: GemmProblem, target: Target) -> Sequence[SplitConfig]:
    """Legal tiles with as many splits as fill the device, the first choice in front."""
    m, n, k = problem.m, problem.n, problem.k
    accum_bytes = dtype_bytes(problem.accumulator)
    tiles = gemm_configs(m, n, k, dtype_bytes(problem.dtype), accum_bytes, target)
    if not has_lanes(target):
        return [SplitConfig(**asdict(tile)) for tile in tiles]
    found = []
    for tile in tiles:
        blocks = ceildiv(m, tile.block_m) * ceildiv(n, tile.block_n)
        splits = max(1, min(BLOCKS_TO_FILL // max(1, blocks), ceildiv(k, 4 * tile.block_k)))
        found.append(SplitConfig(**asdict(tile), splits=splits))
    return found


def reference(problem: GemmProblem, a: np.ndarray, b: np.ndarray) -> Arrays:
    """The product in float64."""
    return gemm_reference(problem, a, b)


SPLIT_GEMM = Family(
    name="split_gemm",
    program=split_gemm,
    inputs=gemm_inputs,
    outputs=lambda p: (((p.m, p.n), p.result_dtype),),
    reference=reference,
    configs=configs,
    problems=(
        GemmProblem(64, 2048, 8192, "float16"),
        GemmProblem(1, 8192, 8192, "float16", transpose_b=True),
        GemmProblem(64, 512, 4096, "float32"),
    ),
    flops=lambda p: 2.0 * p.m * p.n * p.k,
    bytes_moved=lambda p: float(
        (p.m + p.n) * p.k * dtype_bytes(p.dtype) + p.m * p.n * dtype_bytes(p.result_dtype)
    ),
)
