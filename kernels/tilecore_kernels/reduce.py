"""Reductions along the last axis, rows of any length, kept in float32 (int32 for integers)."""

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
class ReduceProblem:
    """``Y[r] = op(X[r, :])`` over (rows, cols), cols >= 1; op is sum, max, min or absmax."""

    rows: int
    cols: int
    op: str = "sum"
    dtype: str = "float32"


def accumulator_dtype(dtype: str) -> str:
    """float64 stays, other floats accumulate in float32, integers in int32."""
    if dtype == "float64":
        return dtype
    return "float32" if dtype_of(dtype).is_float else "int32"


def reduce(problem: ReduceProblem, config: RowConfig) -> Any:
    """Tile program: a tile of rows at a time, each row walked tile by tile."""
    rows, cols, dtype = problem.rows, problem.cols, problem.dtype
    tile_rows, tile_cols = config.block_rows, config.block_cols
    accum = accumulator_dtype(dtype)
    # What the columns behind the end hold; they must not win.
    is_float = dtype_of(dtype).is_float
    lowest = -T.infinity(accum) if is_float else T.min_value(accum)
    highest = T.infinity(accum) if is_float else T.max_value(accum)
    padding = {"sum": 0, "absmax": 0, "max": lowest, "min": highest}[problem.op]
    needs_padding = cols % tile_cols != 0 and problem.op in ("max", "min")
    reduction = getattr(T, f"reduce_{problem.op}")

    @T.prim_func
    def reduce(X: T.Tensor((rows, cols), dtype), Y: T.Tensor((rows,), accum)):
        with T.Kernel(T.ceildiv(rows, tile_rows), threads=config.threads) as bx:
            x = T.alloc_fragment((tile_rows, tile_cols), accum)
            result = T.alloc_fragment((tile_rows,), accum)
            T.fill(result, padding)
            for k in T.serial(ceildiv(cols, tile_cols)):
                T.copy(X[bx * tile_rows, k * tile_cols], x)
                if needs_padding:
                    for i, j in T.Parallel(tile_rows, tile_cols):
                        x[i, j] = T.if_then_else(k * tile_cols + j < cols, x[i, j], padding)
                reduction(x, result, dim=1, clear=False)
            T.copy(result, Y[bx * tile_rows])

    return reduce


def reference(problem: ReduceProblem, x: np.ndarray) -> Arrays:
    """The reduction in float64."""
    wide = x.astype(np.float64)
    functions = {
        "sum": lambda a: a.sum(axis=1),
        "max": lambda a: a.max(axis=1),
        "min": lambda a: a.min(axis=1),
        "absmax": lambda a: np.abs(a).max(axis=1),
    }
    return (functions[problem.op](wide),)


def inputs(problem: ReduceProblem, rng: np.random.Generator) -> Arrays:
    """Normally distributed values; small integers for integer dtypes."""
    dtype = dtype_of(problem.dtype)
    shape = (problem.rows, problem.cols)
    if dtype.is_int:
        return (rng.integers(-9 if dtype.is_signed else 0, 10, shape).astype(numpy_dtype(dtype)),)
    return (rng.standard_normal(shape).astype(numpy_dtype(dtype)),)


def configs(problem: ReduceProblem, target: Target) -> Sequence[RowConfig]:
    """Legal tiles, the first choice in front."""
    return row_configs(problem.rows, problem.cols, target)


REDUCE = Family(
    name="reduce",
    program=reduce,
    inputs=inputs,
    outputs=lambda p: (((p.rows,), accumulator_dtype(p.dtype)),),
    reference=reference,
    configs=configs,
    problems=(
        ReduceProblem(4096, 4096, "sum"),
        ReduceProblem(4096, 4096, "max", "float16"),
        ReduceProblem(64, 131072, "sum"),
        ReduceProblem(1999, 1023, "absmax"),
    ),
    flops=lambda p: float(p.rows * p.cols),
    bytes_moved=lambda p: float(p.rows * p.cols * dtype_bytes(p.dtype)),
)
