"""Constant folding and neutral elements for `binary`; small on purpose.

Floats fold only when both sides are constants (no reassociation, no ``x * 0``), so folding never
changes a result. Integers also fold identities, and add/mul keep a constant on the right, which
gives index arithmetic one normal form.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilecore.ir.dtypes import DType, boolean, numpy_dtype, tfloat32
from tilecore.ir.expr import Binary, Const, Expr, const

_INT_FOLDS: dict[str, Callable[[int, int], int | bool]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "and": lambda a, b: bool(a and b),
    "or": lambda a, b: bool(a or b),
}


def wrap_int(value: int, dtype: DType) -> int:
    """Reduce a Python integer to the range of an integer dtype, in two's complement."""
    value &= (1 << dtype.bits) - 1
    if dtype.kind == "int" and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


def fold_binary(op: str, a: Expr, b: Expr, dtype: DType) -> Expr:
    """``op(a, b)`` of result `dtype`, folded where that cannot change the value."""
    if isinstance(a, Const) and isinstance(b, Const):
        folded = _fold_constants(op, a, b, dtype)
        if folded is not None:
            return folded
    if a.dtype.is_bool:  # type: ignore[attr-defined]
        return _fold_logical(op, a, b, dtype)
    if a.dtype.is_int:  # type: ignore[attr-defined]
        return _fold_integer(op, a, b, dtype)
    return Binary(op, a, b, dtype)


def _fold_constants(op: str, a: Const, b: Const, dtype: DType) -> Const | None:
    if a.dtype.is_float:
        return _fold_floats(op, float(a.value), float(b.value), a.dtype, dtype)
    if op in ("floordiv", "floormod") and b.value == 0:
        return None
    if op in ("shl", "shr") and not 0 <= int(b.value) < a.dtype.bits:
        return None
    if op not in _INT_FOLDS:
        return None
    value = _INT_FOLDS[op](int(a.value), int(b.value))
    if dtype == boolean:
        return Const(bool(value), boolean)
    return const(wrap_int(int(value), dtype), dtype)


def _fold_floats(op: str, a: float, b: float, operand_dtype: DType, dtype: DType) -> Const | None:
    """Fold only what is exact in every float dtype: comparisons, and float64 arithmetic."""
    if op in ("eq", "ne", "lt", "le", "gt", "ge"):
        if operand_dtype.bits < 16 or operand_dtype is tfloat32:
            return None
        # A literal need not be a value of its dtype: 0.1 is compared as what it is rounded to.
        a, b = _rounded(a, operand_dtype), _rounded(b, operand_dtype)
        return Const(bool(_INT_FOLDS[op](a, b)), boolean)  # type: ignore[arg-type]
    if dtype.bits != 64 or op not in ("add", "sub", "mul"):
        return None
    value = _INT_FOLDS[op](a, b)  # type: ignore[arg-type]
    return None if math.isnan(value) else const(value, dtype)


def _rounded(value: float, dtype: DType) -> float:
    """The value of `dtype` nearest to `value`."""
    with np.errstate(over="ignore"):
        return float(np.asarray(value).astype(numpy_dtype(dtype)))


def _fold_logical(op: str, a: Expr, b: Expr, dtype: DType) -> Expr:
    for this, other in ((a, b), (b, a)):
        if isinstance(this, Const):
            if op == "and":
                return other if this.value else Const(False, boolean)
            if op == "or":
                return Const(True, boolean) if this.value else other
    return Binary(op, a, b, dtype)


def _fold_integer(op: str, a: Expr, b: Expr, dtype: DType) -> Expr:
    if op in ("add", "mul") and isinstance(a, Const):
        a, b = b, a
    if isinstance(b, Const):
        value = b.value
        if value == 0 and op in ("add", "sub", "bitor", "bitxor", "shl", "shr"):
            return a
        if value == 1 and op in ("mul", "floordiv"):
            return a
        if (value == 0 and op == "mul") or (value == 1 and op == "floormod"):
            return Const(0, dtype)
        if op in ("add", "mul") and isinstance(a, Binary) and a.op == op and isinstance(a.b, Const):
            merged = _fold_constants(op, a.b, b, dtype)
            if merged is not None:
                return fold_binary(op, a.a, merged, dtype)
    if isinstance(a, Const) and a.value == 0 and op in ("floordiv", "floormod"):
        return a
    return Binary(op, a, b, dtype)
