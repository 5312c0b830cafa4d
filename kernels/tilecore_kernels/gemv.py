"""Vector times matrix: ``y = x @ op(B)``, a gemm of one row.

Every element of B is used once, so the time is that of reading B: many wide loads in flight. Each
block sums products lane by lane over the whole length of k and adds its lanes' sums at the end.
"""

# Annotations are values of the tile language here, so they are not postponed.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.target import Target
from tilecore_kernels.family import Arrays, Family
from tilecore_kernels.tiles import ceildiv, dtype_bytes, fits_registers, fits_threads, has_lanes

LOAD_BYTES = 128
"""Bytes of B that one lane should have in flight: enough lanes of that reach full bandwidth."""


@dataclass(frozen=True, slots=True)
class GemvProblem:
    """One product.

    Attributes:
        n: length of y.
        k: length of x.
        dtype: element type of x, B and y; sums are float32.
        transpose_b: B is stored (n, k), else (k, n).
    """

    n: int
    k: int
    dtype: str = "float16"
    transpose_b: bool = False


@dataclass(frozen=True, slots=True)
class GemvConfig:
    """Tile of B that a block reads at a time.

    Attributes:
        block_n: along n.
        block_k: along k.
        threads: threads of one block.
    """

    block_n: int
    block_k: int
    threads: int


def gemv(problem: GemvProblem, config: GemvConfig) -> Any:
    """Tile program. Arguments: x (1, k), B (k, n) or (n, k), y (1, n)."""
    n, k, dtype, trans_b = problem.n, problem.k, problem.dtype, problem.transpose_b
    tile_n, tile_k = config.block_n, config.block_k
    shape, tile = ((n, k), (tile_n, tile_k)) if trans_b else ((k, n), (tile_k, tile_n))

    @T.prim_func
    def gemv(X: T.Tensor((1, k), dtype), B: T.Tensor(shape, dtype), Y: T.Tensor((1, n), dtype)):
        with T.Kernel(T.ceildiv(n, tile_n), threads=config.threads) as bx:
            x = T.alloc_fragment((tile_k,), dtype)
            b = T.alloc_fragment(tile, dtype)
            sums = T.alloc_fragment(tile, "float32")
            y = T.alloc_fragment((tile_n,), "float32")
            T.clear(sums)
            for step in T.serial(T.ceildiv(k, tile_k)):
                T.copy(X[0, step * tile_k], x)
                if trans_b:
                    T.copy(B[bx * tile_n, step * tile_k], b)
                    for i, j in T.Parallel(tile_n, tile_k):
                        sums[i, j] += T.cast(b[i, j], "float32") * T.cast(x[j], "float32")
                else:
                    T.copy(B[step * tile_k, bx * tile_n], b)
                    for i, j in T.Parallel(tile_k, tile_n):
                        sums[i, j] += T.cast(b[i, j], "float32") * T.cast(x[i], "float32")
            T.reduce_sum(sums, y, dim=1 if trans_b else 0)
            T.copy(y, Y[0, bx * tile_n])

    return gemv


def reference(problem: GemvProblem, x: np.ndarray, b: np.ndarray) -> Arrays:
    """The product in float64."""
    wide = b.astype(np.float64)
    return (x.astype(np.float64) @ (wide.T if problem.transpose_b else wide),)


def inputs(problem: GemvProblem, rng: np.random.Generator) -> Arrays:
    """Normally distributed values."""
    dtype = numpy_dtype(dtype_of(problem.dtype))
    n, k = problem.n, problem.k
    shape = (n, k) if problem.transpose_b else (k, n)
    return tuple(rng.standard_normal(s).astype(dtype) for s in ((1, k), shape))


def configs(problem: GemvProblem, target: Target) -> Sequence[GemvConfig]:
    """Tiles of `LOAD_BYTES` a lane, the first choice in front."""
    width = dtype_bytes(problem.dtype)
    if not has_lanes(target):
        return [GemvConfig(64, 256, 128), GemvConfig(16, 1024, 128), GemvConfig(256, 64, 128)]
    found = []
    for threads in (128, 256, 512):
        elements = threads * LOAD_BYTES // width
        for narrow in (8, 4, 16) if problem.transpose_b else (64, 32, 128):
            along = elements // narrow
            block_n, block_k = narrow, along
            if fits_threads(threads, target) and fits_registers(
                elements * (4 + width), threads, target
            ):
                found.append(GemvConfig(block_n, block_k, threads))
    # Enough lanes first. Rows of B along n are short pieces of memory: one large block reads many
    # of them at once; rows along k are long, and small blocks hide one another's waits.
    wide = -1 if problem.transpose_b else 1
    found.sort(
        key=lambda c: (ceildiv(problem.n, c.block_n) * c.threads < 1 << 16, -wide * c.threads)
    )
    return found


GEMV = Family(
    name="gemv",
    program=gemv,
    inputs=inputs,
    outputs=lambda p: (((1, p.n), p.dtype),),
    reference=reference,
    configs=configs,
    problems=(
        GemvProblem(8192, 8192),
        GemvProblem(8192, 8192, transpose_b=True),
        GemvProblem(4096, 14336, "bfloat16", transpose_b=True),
    ),
    flops=lambda p: 2.0 * p.n * p.k,
    bytes_moved=lambda p: float((p.n * p.k + p.n + p.k) * dtype_bytes(p.dtype)),
)
