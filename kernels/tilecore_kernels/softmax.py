"""Softmax along the last axis, rows of any length.

A row that fits one tile is read once. A longer row is walked twice: the first walk keeps a running
maximum and a running sum that is rescaled when the maximum grows, the second normalises. A row
whose elements are all -inf gives nan, as in NumPy and torch.
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
from tilecore_kernels.tiles import RowConfig, dtype_bytes, row_configs

LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class SoftmaxProblem:
    """``Y[r] = softmax(X[r])`` over (rows, cols); computed in float32."""

    rows: int
    cols: int
    dtype: str = "float32"


def softmax(problem: SoftmaxProblem, config: RowConfig) -> Any:
    """The tile program for rows of this length."""
    single = problem.cols <= config.block_cols
    return softmax_in_one_tile(problem, config) if single else softmax_online(problem, config)


def softmax_in_one_tile(problem: SoftmaxProblem, config: RowConfig) -> Any:
    """Tile program: whole rows in one tile."""
    rows, cols, dtype = problem.rows, problem.cols, problem.dtype
    tile_rows, tile_cols = config.block_rows, config.block_cols

    @T.prim_func
    def softmax(X: T.Tensor((rows, cols), dtype), Y: T.Tensor((rows, cols), dtype)):
        with T.Kernel(T.ceildiv(rows, tile_rows), threads=config.threads) as bx:
            x = T.alloc_fragment((tile_rows, tile_cols), "float32")
            peak = T.alloc_fragment((tile_rows,), "float32")
            total = T.alloc_fragment((tile_rows,), "float32")
            T.copy(X[bx * tile_rows, 0], x)
            if cols != tile_cols:
                for i, j in T.Parallel(tile_rows, tile_cols):
                    x[i, j] = T.if_then_else(j < cols, x[i, j], -T.infinity("float32"))
            T.reduce_max(x, peak, dim=1)
            for i, j in T.Parallel(tile_rows, tile_cols):
                x[i, j] = T.exp2((x[i, j] - peak[i]) * LOG2_E)
            T.reduce_sum(x, total, dim=1)
            for i in T.Parallel(tile_rows):
                total[i] = 1.0 / total[i]
            for i, j in T.Parallel(tile_rows, tile_cols):
                x[i, j] = x[i, j] * total[i]
            T.copy(x, Y[bx * tile_rows, 0])

    return softmax


def softmax_online(problem: SoftmaxProblem, config: RowConfig) -> Any:
    """Tile program: rows longer than a tile, with a running maximum and sum."""
    rows, cols, dtype = problem.rows, problem.cols, problem.dtype
    tile_rows, tile_cols = config.block_rows, config.block_cols
    steps = -(-cols // tile_cols)

    @T.prim_func
    def softmax(X: T.Tensor((rows, cols), dtype), Y: T.Tensor((rows, cols), dtype)):
        with T.Kernel(T.ceildiv(rows, tile_rows), threads=config.threads) as bx:
            x = T.alloc_fragment((tile_rows, tile_cols), "float32")
            peak = T.alloc_fragment((tile_rows,), "float32")
            previous = T.alloc_fragment((tile_rows,), "float32")
            total = T.alloc_fragment((tile_rows,), "float32")
            part = T.alloc_fragment((tile_rows,), "float32")
            T.fill(peak, -T.infinity("float32"))
            T.clear(total)
            for k in T.serial(steps):
                T.copy(X[bx * tile_rows, k * tile_cols], x)
                if cols % tile_cols != 0:
                    for i, j in T.Parallel(tile_rows, tile_cols):
                        x[i, j] = T.if_then_else(
                            k * tile_cols + j < cols, x[i, j], -T.infinity("float32")
                        )
                T.copy(peak, previous)
                T.reduce_max(x, peak, dim=1, clear=False)
                for i, j in T.Parallel(tile_rows, tile_cols):
                    # A tile of only -inf contributes nothing, instead of exp(-inf + inf) = nan.
                    x[i, j] = T.if_then_else(
                        x[i, j] == -T.infinity("float32"),
                        0.0,
                        T.exp2((x[i, j] - peak[i]) * LOG2_E),
                    )
                T.reduce_sum(x, part, dim=1)
                for i in T.Parallel(tile_rows):
                    # `previous` is -inf until the first finite element: nothing to rescale then.
                    scale = T.if_then_else(
                        previous[i] == -T.infinity("float32"),
                        0.0,
                        T.exp2((previous[i] - peak[i]) * LOG2_E),
                    )
                    total[i] = total[i] * scale + part[i]
            for i in T.Parallel(tile_rows):
                total[i] = 1.0 / total[i]
            for k in T.serial(steps):
                T.copy(X[bx * tile_rows, k * tile_cols], x)
                for i, j in T.Parallel(tile_rows, tile_cols):
                    x[i, j] = T.exp2((x[i, j] - peak[i]) * LOG2_E) * total[i]
                T.copy(x, Y[bx * tile_rows, k * tile_cols])

    return softmax


def reference(problem: SoftmaxProblem, x: np.ndarray) -> Arrays:
    """Softmax in float64."""
    wide = x.astype(np.float64)
    if wide.size == 0:
        return (wide,)
    with np.errstate(invalid="ignore"):  # rows of only -inf are nan by definition
        shifted = np.exp(wide - wide.max(axis=1, keepdims=True))
        return (shifted / shifted.sum(axis=1, keepdims=True),)


def inputs(problem: SoftmaxProblem, rng: np.random.Generator) -> Arrays:
    """Normally distributed rows, wide enough for the maximum to matter."""
    values = 4.0 * rng.standard_normal((problem.rows, problem.cols))
    return (values.astype(numpy_dtype(dtype_of(problem.dtype))),)


def configs(problem: SoftmaxProblem, target: Target) -> Sequence[RowConfig]:
    """Legal tiles, the first choice in front."""
    return row_configs(problem.rows, problem.cols, target)


SOFTMAX = Family(
    name="softmax",
    program=softmax,
    inputs=inputs,
    outputs=lambda p: (((p.rows, p.cols), p.dtype),),
    reference=reference,
    configs=configs,
    problems=(
        SoftmaxProblem(4096, 4096),
        SoftmaxProblem(4096, 4096, "float16"),
        SoftmaxProblem(64, 131072),
        SoftmaxProblem(1999, 1023),
    ),
    flops=lambda p: 5.0 * p.rows * p.cols,  # the convention of reports, not a count
    bytes_moved=lambda p: 2.0 * p.rows * p.cols * dtype_bytes(p.dtype),
)
