"""A backend writes what the reference interpreter writes; arrays to see it by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import BACKENDS, kernel_on

from tilecore.ir.dtypes import dtype_of, numpy_dtype

each_backend = pytest.mark.parametrize("backend", BACKENDS)


def agree(backend: str, program: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    """The backend writes what the reference interpreter writes, bit by bit; returns it.

    Both read what the front end has made of the program: what that loses, only an oracle of the
    test's own can see.
    """
    expected = [array.copy() for array in arrays]
    kernel_on("reference", program)(*expected)
    came = [array.copy() for array in arrays]
    kernel_on(backend, program)(*came)
    for place, (left, right) in enumerate(zip(came, expected, strict=True)):
        note = f"argument {place} on {backend}"
        np.testing.assert_array_equal(_plain(left), _plain(right), err_msg=note)
    return came


def _plain(array: np.ndarray) -> np.ndarray:
    """In a dtype whose nans NumPy knows."""
    return array.astype(np.float64) if array.dtype.kind not in "biuf" else array


def whole_numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Small enough for exact sums and products: from -4 to 4."""
    values = np.random.default_rng(seed).integers(-4, 5, shape)
    return values.astype(numpy_dtype(dtype_of(dtype)))
