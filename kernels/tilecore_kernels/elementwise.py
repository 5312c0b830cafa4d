"""Elementwise kernels: sum of two tensors, and bias with an activation in one pass."""

# Annotations are values of the tile language here, so they are not postponed.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.target import Target
from tilecore_kernels.activations import ACTIVATIONS
from tilecore_kernels.family import Arrays, Family
from tilecore_kernels.tiles import RowConfig, dtype_bytes, row_configs


@dataclass(frozen=True, slots=True)
class AddProblem:
    """``Z = X + Y`` over (rows, cols); computed in float32 for narrow floats."""

    rows: int
    cols: int
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class BiasActivationProblem:
    """``Y = activation(X + bias)`` over (rows, cols) with a bias of (cols,)."""

    rows: int
    cols: int
    activation: str = "gelu"
    dtype: str = "float32"


def compute_dtype(dtype: str) -> str:
    """The dtype to compute in: float32 for floats narrower than that, else the dtype itself."""
    found = dtype_of(dtype)
    return "float32" if found.is_float and found.bits < 32 else dtype


def add(problem: AddProblem, config: RowConfig) -> Any:
    """Tile program: one block adds one tile."""
    rows, cols, dtype = problem.rows, problem.cols, problem.dtype
    tile_rows, tile_cols = config.block_rows, config.block_cols
    compute = compute_dtype(dtype)

    @T.prim_func
    def add(
        X: T.Tensor((rows, cols), dtype),
        Y: T.Tensor((rows, cols), dtype),
        Z: T.Tensor((rows, cols), dtype),
    ):
        with T.Kernel(
            T.ceildiv(cols, tile_cols), T.ceildiv(rows, tile_rows), threads=config.threads
        ) as (bx, by):
            x = T.alloc_fragment((tile_rows, tile_cols), dtype)
            y = T.alloc_fragment((tile_rows, tile_cols), dtype)
            T.copy(X[by * tile_rows, bx * tile_cols], x)
            T.copy(Y[by * tile_rows, bx * tile_cols], y)
            for i, j in T.Parallel(tile_rows, tile_cols):
                x[i, j] = T.cast(T.cast(x[i, j], compute) + T.cast(y[i, j], compute), dtype)
            T.copy(x, Z[by * tile_rows, bx * tile_cols])

    return add


def bias_activation(problem: BiasActivationProblem, config: RowConfig) -> Any:
    """Tile program: one block adds the bias to one tile and applies the activation."""
    rows, cols, dtype = problem.rows, problem.cols, problem.dtype
    tile_rows, tile_cols = config.block_rows, config.block_cols
    compute = compute_dtype(dtype)
    activation = ACTIVATIONS[problem.activation].tile

    @T.prim_func
    def bias_activation(
        X: T.Tensor((rows, cols), dtype),
        Bias: T.Tensor((cols,), dtype),
        Y: T.Tensor((rows, cols), dtype),
    ):
        with T.Kernel(
            T.ceildiv(cols, tile_cols), T.ceildiv(rows, tile_rows), threads=config.threads
        ) as (bx, by):
            x = T.alloc_fragment((tile_rows, tile_cols), compute)
            bias = T.alloc_fragment((tile_cols,), compute)
            T.copy(X[by * tile_rows, bx * tile_cols], x)
            T.copy(Bias[bx * tile_cols], bias)
            for i, j in T.Parallel(tile_rows, tile_cols):
                x[i, j] = activation(x[i, j] + bias[j])
            T.copy(x, Y[by * tile_rows, bx * tile_cols])

    return bias_activation


def add_reference(problem: AddProblem, x: np.ndarray, y: np.ndarray) -> Arrays:
    """The sum in float64."""
    return (x.astype(np.float64) + y.astype(np.float64),)


def bias_activation_reference(
    problem: BiasActivationProblem, x: np.ndarray, bias: np.ndarray
) -> Arrays:
    """Bias and activation in float64."""
    total = x.astype(np.float64) + bias.astype(np.float64)
    return (ACTIVATIONS[problem.activation].reference(total),)


def _add_inputs(problem: AddProblem, rng: np.random.Generator) -> Arrays:
    shape = (problem.rows, problem.cols)
    dtype = numpy_dtype(dtype_of(problem.dtype))
    return tuple(rng.standard_normal(shape).astype(dtype) for _ in range(2))


def _bias_inputs(problem: BiasActivationProblem, rng: np.random.Generator) -> Arrays:
    dtype = numpy_dtype(dtype_of(problem.dtype))
    shapes = ((problem.rows, problem.cols), (problem.cols,))
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def _outputs(problem: Any) -> tuple[tuple[tuple[int, ...], str], ...]:
    return (((problem.rows, problem.cols), problem.dtype),)


def configs(problem: Any, target: Target) -> Sequence[RowConfig]:
    """Legal tiles, the first choice in front."""
    return row_configs(problem.rows, problem.cols, target)


ADD = Family(
    name="add",
    program=add,
    inputs=_add_inputs,
    outputs=_outputs,
    reference=add_reference,
    configs=configs,
    problems=(AddProblem(4096, 4096), AddProblem(4096, 4096, "float16"), AddProblem(1999, 1023)),
    flops=lambda p: float(p.rows * p.cols),
    bytes_moved=lambda p: 3.0 * p.rows * p.cols * dtype_bytes(p.dtype),
)

BIAS_ACTIVATION = Family(
    name="bias_activation",
    program=bias_activation,
    inputs=_bias_inputs,
    outputs=_outputs,
    reference=bias_activation_reference,
    configs=configs,
    problems=(
        BiasActivationProblem(4096, 4096, "gelu"),
        BiasActivationProblem(4096, 4096, "silu", "bfloat16"),
        BiasActivationProblem(1999, 1023, "relu"),
    ),
    flops=lambda p: 8.0 * p.rows * p.cols,  # the convention of reports, not a count
    bytes_moved=lambda p: (2.0 * p.rows + 1) * p.cols * dtype_bytes(p.dtype),
)
