"""Facts about index expressions: bounds, and how they move with one variable."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilecore.ir.expr import Binary, Cast, Const, Expr, Load, Unary, Var, walk

Interval = tuple[float, float]
"""Inclusive bounds; infinite where nothing is known."""

UNKNOWN: Interval = (-math.inf, math.inf)


def coefficient(expr: Expr, name: str, definitions: Mapping[str, Expr]) -> int | None:
    """By how much `expr` grows when variable `name` grows by one; None when that is not constant.

    `definitions` are the values of let-bound variables, looked through.
    """
    match expr:
        case Const():
            return 0
        case Var(name=other):
            if other == name:
                return 1
            return coefficient(definitions[other], name, definitions) if other in definitions else 0
        case Binary(op="add" | "sub" as op, a=a, b=b):
            left, right = coefficient(a, name, definitions), coefficient(b, name, definitions)
            if left is None or right is None:
                return None
            return left + right if op == "add" else left - right
        case Binary(op="mul", a=a, b=b):
            left, right = coefficient(a, name, definitions), coefficient(b, name, definitions)
            if left == 0 and right == 0:
                return 0
            if isinstance(b, Const) and left is not None:
                return left * int(b.value)
            if isinstance(a, Const) and right is not None:
                return right * int(a.value)
            return None
        case Unary(op="neg", a=a):
            inner = coefficient(a, name, definitions)
            return None if inner is None else -inner
        case Cast(a=a, dtype=dtype) if dtype.is_int and dtype.bits >= 32:
            return coefficient(a, name, definitions)
        case _:
            return None if depends_on(expr, name, definitions) else 0


def depends_on(expr: Expr, name: str, definitions: Mapping[str, Expr]) -> bool:
    """Whether `expr` mentions variable `name`, let-bound values included."""
    for node in walk(expr):
        if isinstance(node, Var):
            if node.name == name:
                return True
            if node.name in definitions and depends_on(definitions[node.name], name, definitions):
                return True
    return False


def has_load(expr: Expr) -> bool:
    """Whether evaluating `expr` reads memory."""
    return any(isinstance(node, Load) for node in walk(expr))


def interval(
    expr: Expr, ranges: Mapping[str, Interval], definitions: Mapping[str, Expr]
) -> Interval:
    """Bounds of an integer expression, from the bounds of its variables."""
    match expr:
        case Const(value=value):
            return (int(value), int(value))
        case Var(name=name, lower=lower, upper=upper):
            if name in ranges:
                return ranges[name]
            if name in definitions:
                return interval(definitions[name], ranges, definitions)
            return (-math.inf if lower is None else lower, math.inf if upper is None else upper)
        case Binary(op=op, a=a, b=b):
            return _binary_interval(
                op, interval(a, ranges, definitions), interval(b, ranges, definitions)
            )
        case Cast(a=a, dtype=dtype) if dtype.is_int and dtype.bits >= 32 and a.dtype.is_int:  # type: ignore[attr-defined]
            return interval(a, ranges, definitions)
        case _:
            return UNKNOWN


def _binary_interval(op: str, a: Interval, b: Interval) -> Interval:
    match op:
        case "add":
            return (a[0] + b[0], a[1] + b[1])
        case "sub":
            return (a[0] - b[1], a[1] - b[0])
        case "mul":
            corners = [_product(x, y) for x in a for y in b]
            return (min(corners), max(corners))
        case "min":
            return (min(a[0], b[0]), min(a[1], b[1]))
        case "max":
            return (max(a[0], b[0]), max(a[1], b[1]))
        case "floordiv" if b[0] == b[1] and b[0] > 0:
            return (_floor(a[0], b[0]), _floor(a[1], b[0]))
        case "floormod" if b[0] == b[1] and b[0] > 0:
            if a[0] >= 0 and a[1] < b[0]:
                return a
            return (0, b[0] - 1)
        case "bitand" if b[0] == b[1] and b[0] >= 0:
            return (0, b[0])
        case "shr" if b[0] == b[1] and 0 <= b[0] < 63:
            return (_floor(a[0], 2 ** b[0]), _floor(a[1], 2 ** b[0]))
        case _:
            return UNKNOWN


def _product(x: float, y: float) -> float:
    return 0 if x == 0 or y == 0 else x * y


def _floor(x: float, y: float) -> float:
    return x if math.isinf(x) else x // y
