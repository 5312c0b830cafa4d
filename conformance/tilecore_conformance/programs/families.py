"""The kernels of tilecore-kernels under the suite's sizes, in tiles that a case may set."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilecore_conformance import bounds
from tilecore_conformance.experiment import Expected, Experiment, output
from tilecore_kernels import FAMILIES
from tilecore_kernels.reduce import ReduceProblem
from tilecore_kernels.rms_norm import NormProblem
from tilecore_kernels.softmax import SoftmaxProblem
from tilecore_kernels.tiles import RowConfig
from tilecore_kernels.transpose import TransposeConfig, TransposeProblem

Bound = Any


def experiment_of(
    name: str, problem: Any, config: Any, arrays: tuple[np.ndarray, ...], allowed: Bound
) -> Experiment:
    """An experiment from a family; `allowed` gives the bounds of (inputs, outputs)."""
    family = FAMILIES[name]
    outputs = tuple(output(shape, dtype) for shape, dtype in family.outputs(problem))

    def expected() -> tuple[Expected, ...]:
        values = family.reference(problem, *arrays)
        return tuple(
            Expected(value, limit)
            for value, limit in zip(values, allowed(arrays, values), strict=True)
        )

    return Experiment(family.program(problem, config), arrays, outputs, expected)


def softmax(
    rng: np.random.Generator,
    rows: int,
    cols: int,
    dtype: str = "float32",
    tile: list[int] | None = None,
    threads: int = 128,
) -> Experiment:
    """Softmax in one tile or online."""
    problem = SoftmaxProblem(rows, cols, dtype)
    arrays = FAMILIES["softmax"].inputs(problem, rng)
    config = RowConfig(*(tile or [4, 128]), threads)
    return experiment_of(
        "softmax",
        problem,
        config,
        arrays,
        lambda _, values: [bounds.function(values[0], dtype, terms=cols)],
    )


def _norm(
    rng: np.random.Generator, name: str, rows: int, cols: int, dtype: str, tile: Any, threads: int
) -> Experiment:
    problem = NormProblem(rows, cols, dtype)
    arrays = FAMILIES[name].inputs(problem, rng)
    config = RowConfig(*(tile or [4, 128]), threads)

    def allowed(arrays: Any, values: Any) -> list[Any]:
        size = np.abs(values[0]) + np.abs(arrays[1].astype(np.float64))
        return [bounds.function(size, dtype, terms=cols)]

    return experiment_of(name, problem, config, arrays, allowed)


def rms_norm(
    rng: np.random.Generator,
    rows: int,
    cols: int,
    dtype: str = "float32",
    tile: list[int] | None = None,
    threads: int = 128,
) -> Experiment:
    """RMS norm."""
    return _norm(rng, "rms_norm", rows, cols, dtype, tile, threads)


def layer_norm(
    rng: np.random.Generator,
    rows: int,
    cols: int,
    dtype: str = "float32",
    tile: list[int] | None = None,
    threads: int = 128,
) -> Experiment:
    """Layer norm."""
    return _norm(rng, "layer_norm", rows, cols, dtype, tile, threads)


def row_reduce(
    rng: np.random.Generator, op: str, rows: int, cols: int, dtype: str = "float32"
) -> Experiment:
    """Reductions of rows longer than a tile."""
    problem = ReduceProblem(rows, cols, op, dtype)
    arrays = FAMILIES["reduce"].inputs(problem, rng)

    def allowed(arrays: Any, values: Any) -> list[Any]:
        if op != "sum":
            return [bounds.nothing(values[0])]
        size = np.abs(arrays[0].astype(np.float64)).sum(axis=1)
        return [bounds.sum(size, "float32", cols)]

    return experiment_of("reduce", problem, RowConfig(4, 64, 128), arrays, allowed)


def transpose(
    rng: np.random.Generator, rows: int, cols: int, dtype: str = "float32", block: int = 32
) -> Experiment:
    """Transposition."""
    problem = TransposeProblem(rows, cols, dtype)
    arrays = FAMILIES["transpose"].inputs(problem, rng)
    config = TransposeConfig(block, 128)
    return experiment_of(
        "transpose", problem, config, arrays, lambda _, values: [0.0 for _ in values]
    )


BUILDERS: tuple[Any, ...] = (softmax, rms_norm, layer_norm, row_reduce, transpose)
