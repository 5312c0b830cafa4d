"""T.cast to a narrower float with a rounding direction, and with a choice for what is too large.

Targets convert to nearest even. What the direction asks more is made from the converted value: it
is compared with the value, and its bits stepped to the neighbour where it lies on the wrong side.
"""

from __future__ import annotations

import math
from typing import Any

from tilecore.ir.dtypes import DType, float32, float64, int8, int16, int32
from tilecore.ir.expr import const
from tilecore.language import operators as ops
from tilecore.language.locate import refuse
from tilecore.language.math_ops import (
    absolute,
    call_test,
    cast,
    if_then_else,
    infinity,
    max_value,
    reinterpret,
)
from tilecore.language.values import Scalar

_INTEGERS = {8: int8, 16: int16, 32: int32}


def narrow(value: Scalar, kind: DType, mode: str, sat: bool | None) -> Scalar:
    """`value` as the float `kind`.

    Args:
        value: a float32 or float64 scalar where a direction is asked for.
        kind: the dtype to convert to.
        mode: rn, rz, rp or rm.
        sat: see `tilecore.language.math_ops.cast`.

    Raises:
        UnsupportedError: a direction from or to other widths.
    """
    source = value.dtype.ir
    wide = value if source.is_float else cast(value, float32)
    largest = float(max_value(kind))
    result = cast(wide, kind)
    if mode != "rn":
        if (
            wide.dtype.ir not in (float32, float64)
            or kind.bits not in _INTEGERS
            or (kind.bits >= wide.dtype.ir.bits)
        ):
            refuse(
                f"T.cast(round={mode!r}) from {wide.dtype!s} to {kind}",
                "a direction is made for float32 and float64 to a narrower float of 8 bits or more",
            )
        result = _directed(wide, result, kind, mode, largest)
    if sat is None:
        return result
    sign: Any = if_then_else(wide < 0.0, -1.0, 1.0)
    if sat:
        limit = cast(cast(largest, wide.dtype) * sign, kind)
        return if_then_else(absolute(wide) > largest, limit, result)
    if math.isinf(float(infinity(kind))):
        return result
    return if_then_else(
        _overflows(wide, kind, mode, largest), Scalar(const(math.nan, kind)), result
    )


def _overflows(wide: Scalar, kind: DType, mode: str, largest: float) -> Scalar:
    """True where rounding with more exponents would give more than the largest value."""
    step = 2.0 ** (math.floor(math.log2(largest)) - kind.mantissa_bits)
    size = absolute(wide)
    if mode == "rn":  # the largest value has an even neighbour below: a tie stays with it
        return size > largest + step / 2
    if mode == "rz":
        return size >= largest + step
    away = wide > 0.0 if mode == "rp" else wide < 0.0
    return if_then_else(away, size > largest, size >= largest + step)


def _directed(wide: Scalar, near: Scalar, kind: DType, mode: str, largest: float) -> Scalar:
    integer = _INTEGERS[kind.bits]
    back = cast(near, wide.dtype)
    above, below = back > wide, back < wide
    towards_zero = ops.logical(
        "or", ops.logical("and", wide > 0.0, above), ops.logical("and", wide < 0.0, below)
    )
    wrong, up = {
        "rz": (Scalar(towards_zero), wide < 0.0),
        "rp": (below, Scalar(ops.truth(True))),
        "rm": (above, Scalar(ops.truth(False))),
    }[mode]
    bits = reinterpret(near, integer.name)
    grows = if_then_else(near < 0.0, Scalar(ops.logical_not(up)), up)
    moved = cast(if_then_else(grows, bits + 1, bits - 1), integer)
    low = 1 - (1 << (kind.bits - 1))  # the sign bit and the smallest magnitude
    from_zero = cast(if_then_else(up, 1, low), integer)
    is_zero = Scalar(ops.arithmetic("eq", cast(near, wide.dtype), 0.0))
    moved = if_then_else(is_zero, from_zero, moved)
    finite = ops.logical("and", call_test("isfinite", wide), wrong)
    return if_then_else(Scalar(finite), reinterpret(moved, kind.name), near)
