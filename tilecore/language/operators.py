"""Arithmetic on what the author writes: numbers, and scalars of the program.

Rules (docs/language.md states them for authors):
  * A Python number is weak: it takes the other operand's dtype. A float next to an integer makes
    float32, an int next to a bool makes int32.
  * Two typed operands meet in `ir.dtypes.promote`; casts are inserted.
  * ``/`` of integers is computed in float32; ``//`` and ``%`` floor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilecore.ir.dtypes import DType, boolean, float32, int32, int64, promote
from tilecore.ir.expr import (
    COMPARISON,
    FALSE,
    TRUE,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    binary,
    const,
    mentioned,
)
from tilecore.ir.fold import wrap_int
from tilecore.language.locate import fail

INT32_MAX = 2**31 - 1


def is_number(value: Any) -> bool:
    """True for a Python or NumPy number (a weak literal)."""
    return isinstance(value, bool | int | float | np.number | np.bool_)


def plain(value: Any) -> Any:
    """A NumPy scalar as the Python number; everything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def as_expr(value: Any, what: str = "value") -> Expr:
    """The expression of a scalar or number; numbers get bool, int32 (int64) or float32.

    Raises:
        LanguageError: `value` is no scalar.
    """
    value = plain(value)
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool):
        return const(value, boolean)
    if isinstance(value, int):
        return const(value, int32 if -INT32_MAX - 1 <= value <= INT32_MAX else int64)
    if isinstance(value, float):
        return const(value, float32)
    to_expr = getattr(value, "to_expr", None)
    if to_expr is None:
        fail(f"{what} is no scalar", expected="a number or a scalar", got=describe(value))
    return to_expr()


def describe(value: Any) -> str:
    """A short name of a value of any kind, for messages."""
    text = getattr(value, "description", None)
    return text if isinstance(text, str) else f"{type(value).__name__} {value!r}"[:120]


def dtype_of(expr: Expr) -> DType:
    """The dtype of an expression."""
    return expr.dtype  # type: ignore[attr-defined, no-any-return]


def cast_expr(expr: Expr, dtype: DType) -> Expr:
    """``Cast``, folded away where the value cannot change by that."""
    if dtype_of(expr) == dtype:
        return expr
    if isinstance(expr, Const):
        folded = _fold_cast(expr, dtype)
        if folded is not None:
            return folded
    return Cast(expr, dtype)


def _fold_cast(expr: Const, dtype: DType) -> Const | None:
    value = expr.value
    if dtype.is_bool:
        return Const(bool(value), boolean)
    if isinstance(value, float):
        special = math.isinf(value) or math.isnan(value)
        if dtype.is_float and special and dtype.exponent_bits >= 5 and "fn" not in dtype.name:
            return const(value, dtype)
        if special or not value.is_integer():
            return None
        value = int(value)
        if value == 0 and math.copysign(1.0, float(expr.value)) < 0:
            return None
    if dtype.is_float:
        small = abs(value) <= 2 ** (dtype.mantissa_bits + 1) and abs(value) < 2**15
        narrow = dtype.exponent_bits >= 5 or abs(value) <= 2
        return const(value, dtype) if small and narrow else None
    if expr.dtype.is_float and wrap_int(int(value), dtype) != value:
        return None
    return const(wrap_int(int(value), dtype), dtype)


def weak_const(value: Any, dtype: DType) -> Const:
    """A Python number as a constant of `dtype`.

    Raises:
        LanguageError: an integer literal that the dtype cannot hold.
    """
    value = plain(value)
    if dtype.is_int:
        whole = int(value)
        if wrap_int(whole, dtype) != whole:
            fail(
                "literal does not fit the other operand's dtype",
                expected=f"a value of {dtype}",
                got=whole,
                hint="make the type explicit, e.g. T.int64(...)",
            )
        return const(whole, dtype)
    return const(value, dtype)


def common_dtype(values: Sequence[Any]) -> DType:
    """The dtype in which an operation over `values` (numbers and scalars) is computed."""
    strong: DType | None = None
    for value in values:
        if not is_number(value):
            found = dtype_of(as_expr(value, "operand"))
            strong = found if strong is None else promote(strong, found)
    numbers = [plain(value) for value in values if is_number(value)]
    if strong is None:
        dtypes = [dtype_of(as_expr(number)) for number in numbers]
        strong = dtypes[0]
        for found in dtypes[1:]:
            strong = promote(strong, found)
        return strong
    if any(isinstance(number, float) for number in numbers) and not strong.is_float:
        return float32
    if strong.is_bool and any(not isinstance(number, bool) for number in numbers):
        return int32
    return strong


def to_dtype(value: Any, dtype: DType, what: str = "value") -> Expr:
    """Any number or scalar as an expression of `dtype`."""
    if is_number(value):
        number = plain(value)
        if isinstance(number, float) and dtype.is_int:
            if not math.isfinite(number) or not number.is_integer():
                return cast_expr(const(number, float32), dtype)
            number = int(number)
        return weak_const(number, dtype)
    return cast_expr(as_expr(value, what), dtype)


def unify(*values: Any) -> tuple[Expr, ...]:
    """The values as expressions of their common dtype."""
    dtype = common_dtype(values)
    return tuple(to_dtype(value, dtype, "operand") for value in values)


def arithmetic(op: str, a: Any, b: Any) -> Expr:
    """``a op b`` for any operation of `ir.expr.BINARY_OPS` but the logical ones."""
    if op in ("shl", "shr"):
        return _shift(op, a, b)
    if op == "div":
        return _divide(a, b)
    if op == "pow":
        return _power(a, b)
    x, y = unify(a, b)
    dtype = dtype_of(x)
    if op in ("bitand", "bitor", "bitxor"):
        return _bitwise(op, x, y)
    if dtype.is_bool and op not in COMPARISON:
        x, y = cast_expr(x, int32), cast_expr(y, int32)
    elif dtype.is_float and op in ("floordiv", "floormod"):
        quotient = Call("floor", (binary("div", x, y),), dtype)
        return quotient if op == "floordiv" else binary("sub", x, binary("mul", quotient, y))
    if op in ("floordiv", "floormod") and isinstance(y, Const) and y.value == 0:
        fail("integer division by zero", got=f"{op} by the constant 0")
    return binary(op, x, y)


def _shift(op: str, a: Any, b: Any) -> Expr:
    x = as_expr(a, "shifted value")
    count = to_dtype(b, dtype_of(x)) if is_number(b) else as_expr(b, "shift count")
    for side, name in ((x, "shifted value"), (count, "shift count")):
        if not dtype_of(side).is_int:
            fail(f"{name} must be an integer", expected="an integer dtype", got=dtype_of(side))
    return binary(op, x, count)


def _divide(a: Any, b: Any) -> Expr:
    dtype = common_dtype((a, b))
    if not dtype.is_float:
        dtype = float32
    return binary("div", to_dtype(a, dtype), to_dtype(b, dtype))


def _power(a: Any, b: Any) -> Expr:
    exponent = plain(b)
    if isinstance(exponent, int) and not isinstance(exponent, bool) and 0 <= exponent <= 4:
        base = as_expr(a, "base")
        if dtype_of(base).is_bool:
            base = cast_expr(base, int32)
        result: Expr = const(1, dtype_of(base))
        for _ in range(exponent):
            result = base if result == const(1, dtype_of(base)) else binary("mul", result, base)
        return result
    dtype = common_dtype((a, b))
    if not dtype.is_float:
        dtype = float32
    return binary("pow", to_dtype(a, dtype), to_dtype(b, dtype))


def _bitwise(op: str, x: Expr, y: Expr) -> Expr:
    dtype = dtype_of(x)
    if dtype.is_bool:
        names = {"bitand": "and", "bitor": "or", "bitxor": "ne"}
        return binary(names[op], x, y)
    if dtype.is_float:
        fail(f"{op} needs integers", expected="an integer or bool dtype", got=dtype)
    return binary(op, x, y)


def negate(a: Expr) -> Expr:
    """``-a``; constants fold."""
    dtype = dtype_of(a)
    if dtype.is_bool:
        a, dtype = cast_expr(a, int32), int32
    if isinstance(a, Const):
        return const(wrap_int(-int(a.value), dtype) if dtype.is_int else -a.value, dtype)
    return Unary("neg", a, dtype)


def invert(a: Expr) -> Expr:
    """``~a`` of an integer; logical not of a bool."""
    dtype = dtype_of(a)
    if dtype.is_bool:
        return logical_not(a)
    if dtype.is_float:
        fail("~ needs an integer", expected="an integer or bool dtype", got=dtype)
    if isinstance(a, Const):
        return const(wrap_int(~int(a.value), dtype), dtype)
    return Unary("bitnot", a, dtype)


def truth(value: Any) -> Expr:
    """`value` as a bool expression (``!= 0``)."""
    expr = as_expr(value, "condition")
    dtype = dtype_of(expr)
    return expr if dtype.is_bool else binary("ne", expr, const(0, dtype))


def logical_not(value: Any) -> Expr:
    """``not value`` as a bool expression."""
    expr = truth(value)
    if isinstance(expr, Const):
        return FALSE if expr.value else TRUE
    if isinstance(expr, Unary) and expr.op == "not":
        return expr.a
    return Unary("not", expr, boolean)


def logical(op: str, a: Any, b: Any) -> Expr:
    """``a and b`` / ``a or b``. The second operand is guarded when it indexes memory."""
    x, y = truth(a), truth(b)
    if not may_fault(y) or isinstance(x, Const):
        return binary(op, x, y)
    return Select(x, y, FALSE, boolean) if op == "and" else Select(x, TRUE, y, boolean)


def select(condition: Any, a: Any, b: Any) -> Expr:
    """``a if condition else b``, branches brought to their common dtype."""
    x, y = unify(a, b)
    test = truth(condition)
    if isinstance(test, Const):
        return x if test.value else y
    return x if x == y else Select(test, x, y, dtype_of(x))


def static_int(value: Any, what: str, *, at_least: int = 1, at_most: int | None = None) -> int:
    """An integer known while tracing.

    Raises:
        LanguageError: it is none, or out of range.
    """
    value = plain(value)
    to_expr = getattr(value, "to_expr", None)
    if to_expr is not None:
        expr = to_expr()
        value = expr.value if isinstance(expr, Const) else value
    wanted = f"{at_least} or more" if at_most is None else f"{at_least} to {at_most}"
    if isinstance(value, bool) or not isinstance(value, int):
        fail(f"{what} must be a constant integer", expected=wanted, got=describe(value))
    if value < at_least or (at_most is not None and value > at_most):
        fail(f"{what} is out of range", expected=wanted, got=value)
    return value


def as_index(value: Any, what: str = "index") -> Expr:
    """An index expression: int32 or int64. Narrow integers are widened.

    Raises:
        LanguageError: `value` is no integer.
    """
    expr = as_expr(value, what)
    dtype = dtype_of(expr)
    if not dtype.is_int:
        fail(
            f"{what} must be an integer",
            expected="an integer",
            got=f"a {dtype} value",
            hint="convert with T.int32(...), or divide with // instead of /",
        )
    if dtype in (int32, int64):
        return expr
    return cast_expr(expr, int64 if dtype.bits >= 32 else int32)


def same_index_dtype(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Two index expressions in the wider of their dtypes."""
    dtype = promote(dtype_of(a), dtype_of(b))
    return cast_expr(a, dtype), cast_expr(b, dtype)


def may_fault(expr: Expr) -> bool:
    """True when `expr` reads an element by its index, which a condition may have to guard."""
    return any(isinstance(node, Load) and node.indices for node in mentioned(expr))


def is_trivial(expr: Expr) -> bool:
    """True when `expr` needs no name of its own: a variable or a constant."""
    return isinstance(expr, Var | Const)
