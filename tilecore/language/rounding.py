"""T.ieee_*: arithmetic with a rounding direction; T.round.

Targets round to nearest even; the other directions are made from that. The rest that nearest
rounding left out is found exactly (Dekker, Knuth; a fused multiply-add gives the rest of a product,
a quotient and a root), and its sign says whether to step to the neighbour in the direction asked.

Exact while neither the result nor the rest underflows: below about 2**-100 in float32 a direction
may be missed by one unit in the last place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilecore.ir.dtypes import DType, float32, float64, int32, int64
from tilecore.language import operators as ops
from tilecore.language.locate import fail, refuse
from tilecore.language.math_ops import (
    absolute,
    call_math,
    call_rounding,
    call_test,
    cast,
    if_then_else,
    reinterpret,
)
from tilecore.language.values import Scalar

MODES = ("rn", "rz", "ru", "rd")
"""To nearest even, towards zero, upwards, downwards."""


def _operands(what: str, mode: str, values: tuple[Any, ...]) -> tuple[tuple[Scalar, ...], DType]:
    if mode not in MODES:
        fail(f"Invalid rounding mode of T.{what}", expected=", ".join(MODES), got=mode)
    kind = ops.common_dtype(values)
    if not kind.is_float:
        kind = float32
    if mode != "rn" and kind not in (float32, float64):
        refuse(
            f"T.{what} of {kind} in mode {mode!r}",
            "Only rounding mode 'rn' is available for half precision and below",
        )
    return tuple(Scalar(ops.to_dtype(value, kind, "operand")) for value in values), kind


def _rounded(value: Any, kind: DType) -> Scalar:
    """`value` in its own dtype for certain: its bits are asked for, so no target keeps more."""
    bits = reinterpret(value, (int32 if kind == float32 else int64).name)
    return reinterpret(bits, kind.name)


def _step(value: Scalar, kind: DType, up: Any) -> Scalar:
    """The neighbour of a finite value, above it where `up` holds, else below."""
    integer = int32 if kind == float32 else int64
    bits = reinterpret(value, integer.name)
    away = if_then_else(value < 0.0, Scalar(ops.logical_not(up)), up)
    moved = if_then_else(away, bits + 1, bits - 1)
    smallest = 1e-45 if kind == float32 else 5e-324
    from_zero = if_then_else(up, smallest, -smallest)
    is_zero = Scalar(ops.arithmetic("eq", value, 0.0))
    return if_then_else(is_zero, cast(from_zero, kind), reinterpret(moved, kind.name))


def _directed(value: Scalar, rest: Any, mode: str, kind: DType) -> Scalar:
    """`value` moved so that it is what the direction asks; `rest` is what it is too small by."""
    above, below = rest < 0.0, rest > 0.0  # the rounded value lies above, below the exact one
    if mode == "ru":
        wrong, up = below, ops.as_expr(True)
    elif mode == "rd":
        wrong, up = above, ops.as_expr(False)
    else:
        wrong = if_then_else(value > 0.0, above, below)
        up = ops.as_expr(value < 0.0)
    usable = Scalar(ops.logical("and", call_test("isfinite", value), call_test("isfinite", rest)))
    wrong = Scalar(ops.logical("and", wrong, usable))
    return if_then_else(wrong, _step(value, kind, Scalar(up)), value)


def _sum_rest(a: Any, b: Any, total: Any) -> Any:
    """What ``a + b`` is more than `total`, exactly (Knuth)."""
    part = total - a
    return (a - (total - part)) + (b - part)


def ieee_add(x: Any, y: Any, rounding_mode: str = "rn") -> Scalar:
    """``x + y``, rounded as `rounding_mode` says (rn, rz, ru, rd)."""
    (a, b), kind = _operands("ieee_add", rounding_mode, (x, y))
    if rounding_mode == "rn":
        return a + b
    total = _rounded(a + b, kind)
    return _directed(total, _sum_rest(a, b, total), rounding_mode, kind)


def ieee_sub(x: Any, y: Any, rounding_mode: str = "rn") -> Scalar:
    """``x - y``, rounded as `rounding_mode` says."""
    (a, b), kind = _operands("ieee_sub", rounding_mode, (x, y))
    if rounding_mode == "rn":
        return a - b
    total = _rounded(a - b, kind)
    return _directed(total, _sum_rest(a, -b, total), rounding_mode, kind)


def ieee_mul(x: Any, y: Any, rounding_mode: str = "rn") -> Scalar:
    """``x * y``, rounded as `rounding_mode` says."""
    (a, b), kind = _operands("ieee_mul", rounding_mode, (x, y))
    if rounding_mode == "rn":
        return a * b
    product = _rounded(a * b, kind)
    return _directed(product, call_math("fma", a, b, -product), rounding_mode, kind)


def ieee_fdiv(x: Any, y: Any, rounding_mode: str = "rn") -> Scalar:
    """``x / y``, rounded as `rounding_mode` says."""
    (a, b), kind = _operands("ieee_fdiv", rounding_mode, (x, y))
    if rounding_mode == "rn":
        return a / b
    quotient = _rounded(a / b, kind)
    left = call_math("fma", -quotient, b, a)
    return _directed(quotient, if_then_else(b < 0.0, -left, left), rounding_mode, kind)


def ieee_frcp(x: Any, rounding_mode: str = "rn") -> Scalar:
    """``1 / x``, rounded as `rounding_mode` says."""
    (a,), kind = _operands("ieee_frcp", rounding_mode, (x,))
    return ieee_fdiv(cast(1.0, kind), a, rounding_mode)


def ieee_fsqrt(x: Any, rounding_mode: str = "rn") -> Scalar:
    """The square root, rounded as `rounding_mode` says."""
    (a,), kind = _operands("ieee_fsqrt", rounding_mode, (x,))
    if rounding_mode == "rn":
        return call_math("sqrt", a)
    root = _rounded(call_math("sqrt", a), kind)
    return _directed(root, call_math("fma", -root, root, a), rounding_mode, kind)


def ieee_fmaf(x: Any, y: Any, z: Any, rounding_mode: str = "rn") -> Scalar:
    """``x * y + z``, rounded once, as `rounding_mode` says.

    The rest is found from the product's two parts and the sum's (Boldo and Muller).
    """
    (a, b, c), kind = _operands("ieee_fmaf", rounding_mode, (x, y, z))
    value = call_math("fma", a, b, c)
    if rounding_mode == "rn":
        return value
    value = _rounded(value, kind)
    high = a * b
    low = call_math("fma", a, b, -high)
    inner = c + low
    inner_rest = _sum_rest(c, low, inner)
    outer = high + inner
    outer_rest = _sum_rest(high, inner, outer)
    return _directed(value, ((outer - value) + outer_rest) + inner_rest, rounding_mode, kind)


def ieee_frsqrt(x: Any) -> Scalar:
    """``1 / sqrt(x)``, to nearest up to the last place."""
    (a,), kind = _operands("ieee_frsqrt", "rn", (x,))
    if kind == float64:
        refuse("T.ieee_frsqrt", "frsqrt is not supported for float64", hint="1 / T.sqrt(x)")
    return call_math("rsqrt", a)


def round_(x: Any, rounding_mode: str = "ties-to-even") -> Any:
    """`x` rounded to a whole number; halves go to even, or away from zero.

    Args:
        x: a float; integers stay as they are.
        rounding_mode: ``"ties-to-even"`` (also nearbyint) or ``"ties-away-from-zero"``.

    Raises:
        LanguageError: another mode.
    """
    nearest = call_rounding("round", x)
    if rounding_mode in ("ties-to-even", "nearbyint"):
        return nearest
    if rounding_mode != "ties-away-from-zero":
        fail(
            "unknown rounding of T.round",
            expected="ties-to-even or ties-away-from-zero",
            got=rounding_mode,
        )
    value = Scalar(ops.as_expr(x))
    if not value.dtype.is_float:
        return value
    whole = call_rounding("trunc", value)
    far = absolute(value - whole) >= 0.5
    step = if_then_else(value < 0.0, cast(-1.0, value.dtype), cast(1.0, value.dtype))
    return if_then_else(far, whole + step, whole)


FUNCTIONS: dict[str, Callable[..., Scalar]] = {
    function.__name__: function
    for function in (
        ieee_add, ieee_sub, ieee_mul, ieee_fdiv, ieee_frcp, ieee_fsqrt, ieee_fmaf, ieee_frsqrt,
    )
}  # fmt: skip
"""The functions by name."""
FUNCTIONS["round"] = round_
