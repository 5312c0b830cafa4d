"""Scalar arguments: Python and NumPy numbers, checked against the parameter's dtype."""

from __future__ import annotations

import numbers
import operator
from typing import Any

import numpy as np

from tilecore.ir.dtypes import DType


def integer_range(dtype: DType) -> tuple[int, int]:
    """The least and greatest value of an integer dtype."""
    if dtype.is_signed:
        return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1
    return 0, 2**dtype.bits - 1


def scalar_value(value: Any, dtype: DType) -> int | float | bool:
    """The Python number that a scalar argument stands for.

    Raises:
        TypeError: not a number of this kind; a float is never taken for an integer.
        OverflowError: an integer out of range.
    """
    if dtype.is_bool:
        if isinstance(value, bool | np.bool_):
            return bool(value)
        raise TypeError(f"a value of type {type(value).__name__}")
    if dtype.is_float:
        if isinstance(value, bool) or not isinstance(value, numbers.Real | np.number):
            raise TypeError(f"a value of type {type(value).__name__}")
        return float(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"a value of type {type(value).__name__}")
    number = operator.index(value)
    low, high = integer_range(dtype)
    if not low <= number <= high:
        raise OverflowError(f"{number}, out of the range {low} to {high}")
    return number
