"""Intervals of integers and how operations map them, before anything wraps."""

from __future__ import annotations

from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Var

Interval = tuple[int, int]
"""Inclusive lower and upper bound."""


_KNOWN: dict[str, Interval] = {}  # by the dtype's name: asked for at every node of an expression


def dtype_interval(dtype: DType) -> Interval:
    """All values of an integer or bool dtype."""
    known = _KNOWN.get(dtype.name)
    if known is None:
        known = _KNOWN[dtype.name] = _all_values(dtype)
    return known


def _all_values(dtype: DType) -> Interval:
    if dtype.is_bool:
        return 0, 1
    if dtype.is_signed:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def promised(var: Var) -> Interval:
    """What the author promises of an integer variable, at worst its dtype's values."""
    low, high = dtype_interval(var.dtype)
    return (
        low if var.lower is None else max(low, var.lower),
        high if var.upper is None else min(high, var.upper),
    )


def within(inner: Interval, outer: Interval) -> bool:
    """True when `outer` covers `inner`."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def clip(interval: Interval, limits: Interval) -> Interval:
    """What both intervals have in common."""
    return max(interval[0], limits[0]), min(interval[1], limits[1])


def power_of_two_in(number: int) -> int:
    """The largest power of two that divides `number`; 0 for 0."""
    return number & -number


def arithmetic(op: str, a: Interval, b: Interval) -> Interval:
    """``add``, ``sub``, ``mul``, ``min`` or ``max`` of two intervals."""
    if op == "add":
        return a[0] + b[0], a[1] + b[1]
    if op == "sub":
        return a[0] - b[1], a[1] - b[0]
    if op == "mul":
        corners = [x * y for x in a for y in b]
        return min(corners), max(corners)
    pick = min if op == "min" else max
    return pick(a[0], b[0]), pick(a[1], b[1])


def division(op: str, a: Interval, b: Interval) -> Interval | None:
    """``floordiv`` or ``floormod`` by what is positive; None for anything else."""
    if op == "div" or b[0] <= 0:
        return None
    if op == "floordiv":
        corners = [x // y for x in a for y in b]
        return min(corners), max(corners)
    if a[0] >= 0 and a[1] < b[0]:
        return a
    if b[0] == b[1] and a[0] // b[0] == a[1] // b[0]:
        return a[0] % b[0], a[1] % b[0]
    return 0, min(b[1] - 1, a[1]) if a[0] >= 0 else b[1] - 1


def bitwise(op: str, a: Interval, b: Interval) -> Interval | None:
    """``bitand``, ``bitor`` or ``bitxor``; None when negative numbers could be in it."""
    if op == "bitand":
        caps = [high for low, high in (a, b) if low >= 0]
        return (0, min(caps)) if caps else None
    if a[0] < 0 or b[0] < 0:
        return None
    top = (1 << max(a[1].bit_length(), b[1].bit_length())) - 1
    return (max(a[0], b[0]) if op == "bitor" else 0), top
