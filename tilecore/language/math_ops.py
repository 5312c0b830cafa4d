"""Scalar functions of the vocabulary: casts, min and max, math, index arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes

from tilecore.ir.dtypes import DType, boolean, float32, int32, numpy_dtype
from tilecore.ir.expr import Bitcast, Call, Const, Expr, binary, const
from tilecore.language import operators as ops
from tilecore.language.dtypes import dtype as make_dtype
from tilecore.language.locate import fail, refuse
from tilecore.language.values import Scalar


def _all_static(*values: Any) -> bool:
    return all(ops.is_number(value) for value in values)


# --- conversions -------------------------------------------------------------------------------


_CAST_ROUNDINGS = ("rn", "rz", "rp", "rm")


def cast(
    value: Any,
    dtype: Any,
    round: str | None = None,
    sat: Any = None,
    rbits: Any = None,
) -> Scalar:
    """`value` converted to `dtype`: floats round to nearest even, to int they truncate.

    Args:
        value: what to convert.
        dtype: the element type to convert to.
        round: rounding from float32 or float64 to a narrower float: ``"rn"`` to nearest even,
            ``"rz"`` towards zero, ``"rp"`` upwards, ``"rm"`` downwards.
        sat: what becomes of values beyond the dtype: True the largest finite value, False inf, or
            nan where the dtype has no inf; None is the dtype's own rule (inf if it has one).
        rbits: not supported, see below.

    Raises:
        LanguageError: another rounding, `sat` is no bool.
        UnsupportedError: stochastic rounding.
    """
    if round in ("rs",) or rbits is not None:
        refuse(
            "T.cast(round='rs', rbits=...)",
            "where random bits enter a conversion differs from one target to another target",
        )
    if round not in (None, "", *_CAST_ROUNDINGS):
        fail("Invalid round of T.cast", expected=", ".join(_CAST_ROUNDINGS), got=repr(round))
    if sat is not None and not isinstance(sat, bool):
        fail("Invalid sat of T.cast", expected="True, False or None", got=repr(sat))
    if _looks_like_dtype(value) and not _looks_like_dtype(dtype):
        value, dtype = dtype, value
    kind = make_dtype(dtype).ir
    if kind.is_float and (sat is not None or round in ("rz", "rp", "rm")):
        from tilecore.language.narrowing import narrow

        return narrow(Scalar(ops.as_expr(value)), kind, round or "rn", sat)
    return Scalar(ops.to_dtype(value, kind))


def Cast(dtype: Any, value: Any) -> Scalar:
    """`cast` with its arguments the other way round."""
    return cast(value, dtype)


def reinterpret(value: Any, dtype: Any) -> Scalar:
    """The same bits read as `dtype` of equal width."""
    if _looks_like_dtype(value) and not _looks_like_dtype(dtype):
        value, dtype = dtype, value
    if isinstance(dtype, str) and dtype == "handle":
        return Scalar(ops.as_expr(value))  # addresses are no values here: the integer stays
    expr, kind = ops.as_expr(value), make_dtype(dtype).ir
    if ops.dtype_of(expr).bits != kind.bits:
        fail("T.reinterpret keeps the width", expected=f"{ops.dtype_of(expr).bits} bits", got=kind)
    return Scalar(expr if ops.dtype_of(expr) == kind else Bitcast(expr, kind))


def _looks_like_dtype(value: Any) -> bool:
    return isinstance(value, str | DType) or any(value is one for one in (int, float, bool))


def infinity(dtype: Any) -> Scalar:
    """Positive infinity of a float dtype; its largest value where it has no infinity."""
    kind = make_dtype(dtype).ir
    if not kind.is_float:
        fail("T.infinity needs a float dtype", expected="a float dtype", got=kind)
    has_infinity = kind.exponent_bits >= 5 and "fn" not in kind.name
    return Scalar(const(math.inf, kind)) if has_infinity else max_value(dtype)


def max_value(dtype: Any) -> Scalar:
    """The largest finite value of a dtype."""
    kind = make_dtype(dtype).ir
    return Scalar(const(_limit(kind, largest=True), kind))


def min_value(dtype: Any) -> Scalar:
    """The smallest (most negative) finite value of a dtype."""
    kind = make_dtype(dtype).ir
    return Scalar(const(_limit(kind, largest=False), kind))


def _limit(kind: DType, *, largest: bool) -> int | float | bool:
    if kind.is_bool:
        return largest
    if kind.is_int:
        low = -(1 << (kind.bits - 1)) if kind.kind == "int" else 0
        return low + (1 << kind.bits) - 1 if largest else low
    limits: Any = ml_dtypes.finfo(numpy_dtype(kind))
    return float(limits.max if largest else limits.min)


# --- choice ------------------------------------------------------------------------------------


def if_then_else(cond: Any, t: Any, f: Any) -> Any:
    """``t if cond else f``; a load in the branch not taken never touches memory."""
    if _all_static(cond):
        return t if cond else f
    return Scalar(ops.select(cond, t, f))


Select = if_then_else


def maximum(*values: Any) -> Any:
    """The largest of two or more; of one nan and a number the number."""
    return _fold("max", values, max)


def minimum(*values: Any) -> Any:
    """The smallest of two or more; of one nan and a number the number."""
    return _fold("min", values, min)


def _fold(op: str, values: tuple[Any, ...], static: Callable[..., Any]) -> Any:
    if len(values) < 2:
        fail(f"T.{op} takes two or more values", got=len(values))
    if _all_static(*values):
        return static(*values)
    result: Any = values[0]
    for value in values[1:]:
        result = Scalar(ops.arithmetic(op, result, value))
    return result


def clamp(dst: Any, min_val: Any, max_val: Any) -> Any:
    """`dst` limited to ``[min_val, max_val]``."""
    return minimum(maximum(dst, min_val), max_val)


# --- index arithmetic --------------------------------------------------------------------------


def ceildiv(a: Any, b: Any) -> Any:
    """``a / b`` rounded up, for positive `b`."""
    if _all_static(a, b):
        return -(-a // b)
    x, y = ops.unify(a, b)
    kind = ops.dtype_of(x)
    if not kind.is_int:
        fail("T.ceildiv needs integers", expected="integers", got=kind)
    if isinstance(y, Const):
        if y.value == 1:
            return Scalar(x)
        above = binary("add", x, const(int(y.value) - 1, kind))
    else:
        above = binary("sub", binary("add", x, y), const(1, kind))
    return Scalar(ops.arithmetic("floordiv", Scalar(above), Scalar(y)))


def floordiv(a: Any, b: Any) -> Any:
    """``a // b``, rounded down as in Python."""
    return a // b


def floormod(a: Any, b: Any) -> Any:
    """``a % b``, with the sign of `b` as in Python."""
    return a % b


def truncdiv(a: Any, b: Any) -> Any:
    """Integer division rounded towards zero, as in C."""
    if _all_static(a, b) and isinstance(a, int) and isinstance(b, int):
        if b == 0:
            fail("integer division by zero", got=f"{a} / {b}")
        return (abs(a) // abs(b)) * (1 if a * b >= 0 else -1)
    x, y = ops.unify(a, b)
    kind = ops.dtype_of(x)
    if not kind.is_int:
        fail("T.truncdiv needs integers", expected="integers", got=kind)
    if kind.kind == "uint":
        return Scalar(binary("floordiv", x, y))
    quotient = Scalar(binary("floordiv", x, y))
    inexact = Scalar(ops.arithmetic("ne", Scalar(binary("floormod", x, y)), 0))
    negative = (Scalar(x) < 0) ^ (Scalar(y) < 0)
    return if_then_else(inexact & negative, quotient + 1, quotient)


def truncmod(a: Any, b: Any) -> Any:
    """What `truncdiv` leaves, with the sign of `a` as in C."""
    return a - truncdiv(a, b) * b


def align_up(x: Any, y: Any) -> Any:
    """`x` rounded up to a multiple of `y`."""
    return ceildiv(x, y) * y


def index_to_coordinates(index: Any, shape: Any) -> list[Any]:
    """Coordinates of a row-major linear index in `shape`."""
    result: list[Any] = []
    for extent in reversed(list(shape)[1:]):
        result.append(index % extent)
        index = index // extent
    return [index, *reversed(result)]


def shift_left(a: Any, b: Any) -> Any:
    """``a << b``."""
    return a << b


def shift_right(a: Any, b: Any) -> Any:
    """``a >> b``; arithmetic for signed dtypes."""
    return a >> b


def bitwise_and(a: Any, b: Any) -> Any:
    """``a & b``."""
    return a & b


def bitwise_or(a: Any, b: Any) -> Any:
    """``a | b``."""
    return a | b


def bitwise_xor(a: Any, b: Any) -> Any:
    """``a ^ b``."""
    return a ^ b


def bitwise_not(a: Any) -> Any:
    """``~a``."""
    return ~a


# --- math --------------------------------------------------------------------------------------


def _float_args(values: tuple[Any, ...]) -> tuple[tuple[Expr, ...], DType]:
    kind = ops.common_dtype(values)
    if not kind.is_float:
        kind = float32
    return tuple(ops.to_dtype(value, kind, "argument") for value in values), kind


def call_math(name: str, *values: Any) -> Scalar:
    """A math function on floats; integers are converted to float32 first."""
    args, kind = _float_args(values)
    return Scalar(Call(name, args, kind))


def call_test(name: str, value: Any) -> Scalar:
    """``isnan`` and its kind: bool, false (isfinite: true) for integers."""
    expr = ops.as_expr(value)
    if not ops.dtype_of(expr).is_float:
        return Scalar(const(name == "isfinite", boolean))
    return Scalar(Call(name, (expr,), boolean))


def call_rounding(name: str, value: Any) -> Scalar:
    """``floor`` and its kind: integers stay as they are."""
    expr = ops.as_expr(value)
    kind = ops.dtype_of(expr)
    return Scalar(expr if not kind.is_float else Call(name, (expr,), kind))


def call_bits(name: str, value: Any) -> Scalar:
    """``popcount`` and ``clz`` of an integer, as int32."""
    expr = ops.as_expr(value)
    if not ops.dtype_of(expr).is_int:
        fail(f"T.{name} needs an integer", expected="an integer", got=ops.dtype_of(expr))
    return Scalar(Call(name, (expr,), int32))


def absolute(value: Any) -> Any:
    """``|value|``; integers stay integers."""
    if _all_static(value):
        return abs(value)
    expr = ops.as_expr(value)
    kind = ops.dtype_of(expr)
    if kind.is_bool or kind.kind == "uint":
        return Scalar(expr)
    return Scalar(Call("abs", (expr,), kind))


def power(x: Any, y: Any) -> Any:
    """``x ** y``."""
    return x**y


def atan(x: Any) -> Scalar:
    """Arc tangent."""
    return call_math("atan2", x, 1.0)


def sinh(x: Any) -> Any:
    """Hyperbolic sine: a short series near 0, where the difference of exponentials cancels."""
    args, kind = _float_args((x,))
    value = Scalar(args[0])
    square = value * value
    series = value * (1.0 + square * (1.0 / 6.0 + square * (1.0 / 120.0 + square / 5040.0)))
    up, down = call_math("exp", value), call_math("exp", -value)
    return cast(if_then_else(absolute(value) < 0.5, series, (up - down) * 0.5), kind)


def cosh(x: Any) -> Any:
    """Hyperbolic cosine."""
    args, _ = _float_args((x,))
    value = Scalar(args[0])
    return (call_math("exp", value) + call_math("exp", -value)) * 0.5


def assume(cond: Any) -> None:
    """A fact that the author promises; the program's meaning never depends on it."""
    if _all_static(cond) and not cond:
        fail("T.assume of something false", expected="a fact that holds", got=cond)


def evaluate(expr: Any) -> None:
    """Evaluate for its effect; a value is dropped."""


def unary_not(value: Any) -> Any:
    """``not value``."""
    if _all_static(value):
        return not value
    return Scalar(ops.logical_not(value))


_ONE_ARGUMENT = (
    "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "rcp", "sin", "cos",
    "tan", "tanh", "sigmoid", "erf",
)  # fmt: skip
_FAST = ("exp", "exp10", "log", "log2", "log10", "sin", "cos", "tan")


def _make(name: str, call: Callable[..., Scalar], count: int = 1) -> Callable[..., Scalar]:
    def function(*values: Any) -> Scalar:
        if len(values) != count:
            fail(f"T.{name} takes {count} argument{'s' * (count > 1)}", got=len(values))
        return call(name, *values)

    function.__name__ = name
    function.__doc__ = f"The math function `{name}`, elementwise."
    return function


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _make(name, call_math) for name in _ONE_ARGUMENT},
    **{name: _make(name, call_math, 2) for name in ("atan2", "fmod")},
    "fma": _make("fma", call_math, 3),
    **{name: _make(name, call_test) for name in ("isnan", "isinf", "isfinite")},
    **{name: _make(name, call_rounding) for name in ("floor", "ceil", "round", "trunc")},
    **{name: _make(name, call_bits) for name in ("popcount", "clz")},
    # The fast forms ask for speed over the last bit; the precise result is within their bounds.
    **{f"__{name}": _make(name, call_math) for name in _FAST},
}
FUNCTIONS["nearbyint"] = FUNCTIONS["round"]
FUNCTIONS["fast_rcp"] = FUNCTIONS["rcp"]
FUNCTIONS["__rcp"] = FUNCTIONS["rcp"]
