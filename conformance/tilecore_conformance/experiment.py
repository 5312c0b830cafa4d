"""One experiment: a tile program, what goes in, and what must come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilecore.ir.dtypes import dtype_of, numpy_dtype


@dataclass(frozen=True, slots=True)
class Expected:
    """One output as it must be.

    Attributes:
        value: the oracle's answer, float64 for floats and the dtype itself otherwise.
        allowed: largest absolute difference, a number or an array; 0 means equal, nan to nan and
            with the sign of zeros.
    """

    value: np.ndarray
    allowed: np.ndarray | float = 0.0


@dataclass(frozen=True, slots=True)
class Experiment:
    """What a builder of `programs` returns.

    Attributes:
        function: the tile program; its parameters are the inputs, then the outputs.
        inputs: arrays and scalars.
        outputs: initial contents of the outputs; programs may read them (atomics do).
        expected: computes the oracle's answer for each output; not called where nothing runs.
        calls: how often the kernel is called before the outputs are compared.
    """

    function: Any
    inputs: tuple[Any, ...]
    outputs: tuple[np.ndarray, ...]
    expected: Callable[[], tuple[Expected, ...]]
    calls: int = field(default=1)


def output(shape: tuple[int, ...], dtype: str, fill: float | int | None = None) -> np.ndarray:
    """An output array: of `fill`, or of a pattern that no right answer consists of."""
    array = np.empty(shape, numpy_dtype(dtype_of(dtype)))
    if fill is None:
        array.view(np.uint8).reshape(-1)[...] = 0xA5
    else:
        array[...] = fill
    return array


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Values to compute with: normal floats, small integers, or coin tosses."""
    kind = dtype_of(dtype)
    if kind.is_bool:
        return rng.integers(0, 2, shape).astype(bool)
    if kind.is_int:
        return rng.integers(-8 if kind.is_signed else 0, 9, shape).astype(numpy_dtype(kind))
    return rng.standard_normal(shape).astype(numpy_dtype(kind))


SPECIAL_FLOATS = (
    0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"),
    0.5, -0.5, 1.5, 2.5, -2.5, 127.0, -128.0, 255.5, 65504.0, 65520.0, 1e-5, -1e-5,
    448.0, 464.0, 57344.0, 3.4028235e38, 1.1754944e-38, 1e-40, -1e-42, 6e-8, 5.9e-8, 1.5e-2,
)  # fmt: skip
"""Zeros of both signs, infinities, nan, ties of rounding, limits of the dtypes, subnormals."""


def special(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Special values in random places among normal ones."""
    array = normal(rng, shape, "float32")
    flat = array.reshape(-1)
    places = rng.permutation(flat.size)[: len(SPECIAL_FLOATS) * max(1, flat.size // 200)]
    values = np.resize(np.array(SPECIAL_FLOATS, np.float32), places.size)
    flat[places] = values
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(numpy_dtype(dtype_of(dtype)))
