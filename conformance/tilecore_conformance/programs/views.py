"""One storage under several shapes and dtypes."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore_conformance.experiment import Expected, Experiment, normal, output


def reshaped(
    rng: np.random.Generator, shape: list[int], other: list[int], scope: str, threads: int = 64
) -> Experiment:
    """Written as one shape, changed as another, read as the first one again."""
    allocate = T.alloc_shared if scope == "shared" else T.alloc_fragment
    rows, cols = other

    @T.prim_func
    def reshaped(
        X: T.Tensor(tuple(shape), "int32"),
        Y: T.Tensor(tuple(shape), "int32"),
        Z: T.Tensor((rows, cols), "int32"),
    ):
        with T.Kernel(1, threads=threads) as _:
            x = allocate(tuple(shape), "int32")
            T.copy(X, x)
            y = T.reshape(x, (rows, cols))
            for i, j in T.Parallel(rows, cols):
                y[i, j] = y[i, j] * 3 + i
            T.copy(y, Z)
            T.copy(x, Y)

    x = normal(rng, tuple(shape), "int32")

    def expected() -> tuple[Expected, ...]:
        value = x.reshape(rows, cols) * 3 + np.arange(rows, dtype=np.int32)[:, None]
        return Expected(value.reshape(shape)), Expected(value)

    outputs = (output(tuple(shape), "int32"), output((rows, cols), "int32"))
    return Experiment(reshaped, (x,), outputs, expected)


def viewed(
    rng: np.random.Generator, source: str, target: str, rows: int, cols: int, threads: int = 64
) -> Experiment:
    """The bits of a shared tile as elements of another width, and back after a change of some."""
    bits = dtype_of(source).bits
    width = cols * bits // dtype_of(target).bits

    @T.prim_func
    def viewed(
        X: T.Tensor((rows, cols), source),
        Y: T.Tensor((rows, width), target),
        Z: T.Tensor((rows, cols), source),
    ):
        with T.Kernel(1, threads=threads) as _:
            x = T.alloc_shared((rows, cols), source)
            T.copy(X, x)
            y = T.view(x, dtype=target)
            T.copy(y, Y)
            T.clear(y[1:2, :])
            T.copy(x, Z)

    x = normal(rng, (rows, cols), source)

    def expected() -> tuple[Expected, ...]:
        cleared = x.copy()
        cleared[1] = 0
        return Expected(x.view(numpy_dtype(dtype_of(target)))), Expected(cleared)

    outputs = (output((rows, width), target), output((rows, cols), source))
    return Experiment(viewed, (x,), outputs, expected)


BUILDERS: tuple[Any, ...] = (reshaped, viewed)
