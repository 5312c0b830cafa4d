"""RMS norm along the last axis, rows of any length.

The mean square is float32. A row that fits one tile is read once; a longer row is walked again for
the normalised result.
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
from tilecore_kernels.tiles import RowConfig, ceildiv, dtype_bytes, row_configs


@dataclass(frozen=True, slots=True)
class NormProblem:
    """A norm over rows of (rows, cols) with weights (and, for layer norm, a bias) of (cols,)."""

    rows: int
    cols: int
    dtype: str = "float32"
    eps: float = 1e-5


def rms_norm(problem: NormProblem, config: RowConfig) -> Any:
    """Tile program: ``Y = X / sqrt(mean(X^2) + eps) * weight``."""
    rows, cols, dtype, eps = problem.rows, problem.cols, problem.dtype, problem.eps
    tile_rows, tile_cols = config.block_rows, config.block_cols
    steps = ceildiv(cols, tile_cols)

    @T.prim_func
    def rms_norm(
        X: T.Tensor((rows, cols), dtype),
        Weight: T.Tensor((cols,), dtype),
        Y: T.Tensor((rows, cols), dtype),
    ):
        with T.Kernel(T.ceildiv(rows, tile_rows), threads=config.threads) as bx:
            x = T.alloc_fragment((tile_rows, tile_cols), "float32")
            square = T.alloc_fragment((tile_rows, tile_cols), "float32")
            weight = T.alloc_fragment((tile_cols,), "float32")
            scale = T.alloc_fragment((tile_rows,), "float32")
            T.clear(scale)
            for k in T.serial(steps):
                T.copy(X[bx * tile_rows, k * tile_cols], x)
                for i, j in T.Parallel(tile_rows, tile_cols):
                    square[i, j] = x[i, j] * x[i, j]
                T.reduce_sum(square, scale, dim=1, clear=False)
            for i in T.Parallel(tile_rows):
                scale[i] = T.rsqrt(scale[i] / cols + eps)
            for k in T.serial(steps):
                if steps > 1:  # the only tile of a short row is still here
                    T.copy(X[bx * tile_rows, k * tile_cols], x)
                T.copy(Weight[k * tile_cols], weight)
                for i, j in T.Parallel(tile_rows, tile_cols):
                    x[i, j] = x[i, j] * scale[i] * weight[j]
                T.copy(x, Y[bx * tile_rows, k * tile_cols])

    return rms_norm


def rms_norm_reference(problem: NormProblem, x: np.ndarray, weight: np.ndarray) -> Arrays:
    """RMS norm in float64."""
    wide = x.astype(np.float64)
    scale = 1.0 / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + problem.eps)
    return (wide * scale * weight.astype(np.float64),)


def norm_inputs(problem: NormProblem, rng: np.random.Generator, vectors: int) -> Arrays:
    """Rows with a mean of 0.5, and `vectors` weight vectors around 1."""
    dtype = numpy_dtype(dtype_of(problem.dtype))
    x = rng.standard_normal((problem.rows, problem.cols)) + 0.5
    weights = [1.0 + 0.1 * rng.standard_normal(problem.cols) for _ in range(vectors)]
    return tuple(array.astype(dtype) for array in (x, *weights))


def configs(problem: NormProblem, target: Target) -> Sequence[RowConfig]:
    """Legal tiles, the first choice in front."""
    return row_configs(problem.rows, problem.cols, target)


PROBLEMS = (
    NormProblem(4096, 4096),
    NormProblem(4096, 4096, "bfloat16"),
    NormProblem(64, 131072),
    NormProblem(1999, 1023),
)

RMS_NORM = Family(
    name="rms_norm",
    program=rms_norm,
    inputs=lambda p, rng: norm_inputs(p, rng, 1),
    outputs=lambda p: (((p.rows, p.cols), p.dtype),),
    reference=rms_norm_reference,
    configs=configs,
    problems=PROBLEMS,
    flops=lambda p: 4.0 * p.rows * p.cols,
    bytes_moved=lambda p: (2.0 * p.rows + 1) * p.cols * dtype_bytes(p.dtype),
)
