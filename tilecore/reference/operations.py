"""Meaning of the scalar operations on NumPy arrays; see `ir.expr` for the words.

Floats arrive and leave as float64; integers in their value dtype, wrapped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from tilecore.ir.dtypes import DType
from tilecore.reference.values import Array, wrap

_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip
_LOGICAL: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.logical_and, "or": np.logical_or, "bitand": np.logical_and, "bitor": np.logical_or,
    "bitxor": np.logical_xor, "min": np.logical_and, "max": np.logical_or,
}  # fmt: skip
_FLOAT: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "floordiv": np.floor_divide, "floormod": np.mod, "min": np.fmin, "max": np.fmax,
    "pow": np.power,
}  # fmt: skip
_INT: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide,
    "floormod": np.mod, "min": np.minimum, "max": np.maximum, "bitand": np.bitwise_and,
    "bitor": np.bitwise_or, "bitxor": np.bitwise_xor,
}  # fmt: skip
DIVISIONS = frozenset({"div", "floordiv", "floormod"})


def apply_binary(op: str, a: Array, b: Array, dtype: DType) -> Array:
    """``op(a, b)`` for operands of `dtype` (of a's dtype, for shifts).

    Raises:
        KeyError: the operation has no meaning for the dtype.
    """
    if op in _COMPARISONS:
        return _COMPARISONS[op](a, b)
    if dtype.is_bool:
        return _LOGICAL[op](a, b)
    if dtype.is_float:
        return _FLOAT[op](a, b)
    return wrap(_apply_int(op, a, b), dtype)


def _apply_int(op: str, a: Array, b: Array) -> Array:
    if op in ("shl", "shr"):
        shift = np.left_shift if op == "shl" else np.right_shift
        return shift(a, np.asarray(b).astype(np.asarray(a).dtype))
    if op == "div":
        return _divide_towards_zero(a, b)
    if op == "pow":
        return _int_power(a, b)
    if op in ("floordiv", "floormod"):
        # A zero divisor of an active lane has been refused before; idle lanes divide by one.
        b = np.where(b == 0, np.asarray(1, np.asarray(b).dtype), b)
    return _INT[op](a, b)


def _divide_towards_zero(a: Array, b: Array) -> Array:
    b = np.where(b == 0, np.asarray(1, np.asarray(b).dtype), b)
    quotient = np.floor_divide(a, b)
    has_rest = quotient * b != a
    return quotient + (has_rest & ((a < 0) != (b < 0))).astype(np.asarray(a).dtype)


def _int_power(a: Array, b: Array) -> Array:
    """Square and multiply, wrapping; a negative exponent gives what 1 / a ** -b truncates to."""
    a, b = np.broadcast_arrays(a, b)
    result, base = np.ones_like(a), a.copy()
    rest = np.maximum(b, 0)
    while np.any(rest > 0):
        result = np.where(rest & 1 == 1, result * base, result)
        base, rest = base * base, rest >> 1
    odd_sign = np.where(b & 1 == 1, a, np.ones_like(a))
    reciprocal = np.where(a == 1, a, np.where(a == -1, odd_sign, np.zeros_like(a)))
    return np.where(b < 0, reciprocal, result)


def apply_unary(op: str, a: Array, dtype: DType) -> Array:
    """``neg``, ``bitnot`` or ``not``."""
    if op == "not" or (op == "bitnot" and dtype.is_bool):
        return np.logical_not(a)
    if op == "neg":
        return np.negative(a) if dtype.is_float else wrap(np.negative(a), dtype)
    return wrap(np.invert(a), dtype)


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), dtype=np.float64)


def _popcount(x: Array) -> Array:
    bits = _bits(x)
    return np.asarray(bits.sum(axis=-1))


def _count_leading_zeros(x: Array) -> Array:
    bits = _bits(x)[..., ::-1]
    first = bits.argmax(axis=-1)
    return np.where(bits.any(axis=-1), first, bits.shape[-1])


def _bits(x: Array) -> Array:
    """The bits of integers, lowest first, along a new last axis."""
    width = np.asarray(x).dtype.itemsize * 8
    unsigned = np.asarray(x)[..., None].astype(np.uint64)
    return (unsigned >> np.arange(width, dtype=np.uint64)) & np.uint64(1)


def _exp10(x: Array) -> Array:
    return np.power(10.0, x)


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def _reciprocal(x: Array) -> Array:
    return 1.0 / np.asarray(x)


def _fma_one(a: float, b: float, c: float) -> float:
    """``a * b + c`` rounded once."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact) if exact else a * b + c  # the sign of a zero
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _fma(a: Array, b: Array, c: Array) -> Array:
    return np.asarray(np.frompyfunc(_fma_one, 3, 1)(a, b, c), dtype=np.float64)


# `round` takes ties to even, as IEEE's default rounding does.
CALLS: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "exp2": np.exp2, "exp10": _exp10, "log": np.log,
    "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt,
    "rsqrt": _rsqrt, "rcp": _reciprocal, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "tanh": np.tanh, "sigmoid": _sigmoid, "erf": _erf, "abs": np.abs,
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "isnan": np.isnan,
    "isinf": np.isinf, "isfinite": np.isfinite, "fma": _fma,
    "atan2": np.arctan2, "fmod": np.fmod, "popcount": _popcount, "clz": _count_leading_zeros,
}  # fmt: skip
