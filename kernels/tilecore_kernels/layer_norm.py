"""Layer norm along the last axis, rows of any length.

Mean and variance are float32, and the variance is taken about the mean, not as a difference of
large numbers. A row that fits one tile is read once; a longer row is walked three times.
"""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np

import tilecore.language as T
from tilecore_kernels.family import Arrays, Family
from tilecore_kernels.rms_norm import PROBLEMS, NormProblem, configs, norm_inputs
from tilecore_kernels.tiles import RowConfig, ceildiv, dtype_bytes


def layer_norm(problem: NormProblem, config: RowConfig) -> Any:
    """Tile program: ``Y = (X - mean) / sqrt(var + eps) * weight + bias``."""
    rows, cols, dtype, eps = problem.rows, problem.cols, problem.dtype, problem.eps
    tile_rows, tile_cols = config.block_rows, config.block_cols
    steps = ceildiv(cols, tile_cols)

    @T.prim_func
    def layer_norm(
        X: T.Tensor((rows, cols), dtype),
        Weight: T.Tensor((cols,), dtype),
        Bias: T.Tensor((cols,), dtype),
        Y: T.Tensor((rows, cols), dtype),
    ):
        with T.Kernel(T.ceildiv(rows, tile_rows), threads=config.threads) as bx:
            x = T.alloc_fragment((tile_rows, tile_cols), "float32")
            square = T.alloc_fragment((tile_rows, tile_cols), "float32")
            weight = T.alloc_fragment((tile_cols,), "float32")
            bias = T.alloc_fragment((tile_cols,), "float32")
            mean = T.alloc_fragment((tile_rows,), "float32")
            scale = T.alloc_fragment((tile_rows,), "float32")
            T.clear(mean)
            for k in T.serial(steps):
                T.copy(X[bx * tile_rows, k * tile_cols], x)
                T.reduce_sum(x, mean, dim=1, clear=False)
            for i in T.Parallel(tile_rows):
                mean[i] = mean[i] / cols
            T.clear(scale)
            for k in T.serial(steps):
                if steps > 1:
                    T.copy(X[bx * tile_rows, k * tile_cols], x)
                for i, j in T.Parallel(tile_rows, tile_cols):
                    # The padding of a ragged tile is zero, not the mean: leave it out.
                    centred = T.if_then_else(k * tile_cols + j < cols, x[i, j] - mean[i], 0.0)
                    square[i, j] = centred * centred
                T.reduce_sum(square, scale, dim=1, clear=False)
            for i in T.Parallel(tile_rows):
                scale[i] = T.rsqrt(scale[i] / cols + eps)
            for k in T.serial(steps):
                if steps > 1:
                    T.copy(X[bx * tile_rows, k * tile_cols], x)
                T.copy(Weight[k * tile_cols], weight)
                T.copy(Bias[k * tile_cols], bias)
                for i, j in T.Parallel(tile_rows, tile_cols):
                    x[i, j] = (x[i, j] - mean[i]) * scale[i] * weight[j] + bias[j]
                T.copy(x, Y[bx * tile_rows, k * tile_cols])

    return layer_norm


def layer_norm_reference(
    problem: NormProblem, x: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> Arrays:
    """Layer norm in float64."""
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    scale = 1.0 / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + problem.eps)
    return (centred * scale * weight.astype(np.float64) + bias.astype(np.float64),)


LAYER_NORM = Family(
    name="layer_norm",
    program=layer_norm,
    inputs=lambda p, rng: norm_inputs(p, rng, 2),
    outputs=lambda p: (((p.rows, p.cols), p.dtype),),
    reference=layer_norm_reference,
    configs=configs,
    problems=PROBLEMS,
    flops=lambda p: 8.0 * p.rows * p.cols,
    bytes_moved=lambda p: (2.0 * p.rows + 2) * p.cols * dtype_bytes(p.dtype),
)
