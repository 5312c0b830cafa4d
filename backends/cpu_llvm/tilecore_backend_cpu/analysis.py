"""Facts about index expressions: bounds, and how they move with one variable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Binary, Cast, Const, Expr, Unary, Var, dtype_of_expr, mentioned
from tilecore.ir.intervals import dtype_interval

Interval = tuple[float, float]
"""Inclusive bounds; infinite where nothing is known."""

UNKNOWN: Interval = (-math.inf, math.inf)


def coefficient(expr: Expr, name: str, definitions: Mapping[str, Expr]) -> int | None:
    """By how much `expr` grows when variable `name` grows by one; None when that is not constant.

    `definitions` are the values of let-bound variables, looked through.
    """
    return _coefficient(expr, name, definitions, {})


def _coefficient(
    expr: Expr, name: str, definitions: Mapping[str, Expr], known: dict[str, int | None]
) -> int | None:
    """`coefficient`; `known` are those of let-bound variables that were looked through."""
    match expr:
        case Const():
            return 0
        case Var(name=other):
            if other == name:
                return 1
            if other not in definitions:
                return 0
            if other not in known:
                known[other] = _coefficient(definitions[other], name, definitions, known)
            return known[other]
        case Binary(op="add" | "sub" as op, a=a, b=b):
            left = _coefficient(a, name, definitions, known)
            right = _coefficient(b, name, definitions, known)
            if left is None or right is None:
                return None
            return left + right if op == "add" else left - right
        case Binary(op="mul", a=a, b=b):
            left = _coefficient(a, name, definitions, known)
            right = _coefficient(b, name, definitions, known)
            if left == 0 and right == 0:
                return 0
            if isinstance(b, Const) and left is not None:
                return left * int(b.value)
            if isinstance(a, Const) and right is not None:
                return right * int(a.value)
            return None
        case Unary(op="neg", a=a):
            inner = _coefficient(a, name, definitions, known)
            return None if inner is None else -inner
        case Cast(a=a, dtype=dtype) if dtype.is_int and dtype.bits >= 32:
            return _coefficient(a, name, definitions, known)
        case _:
            return None if depends_on(expr, name, definitions) else 0


def mentioned_through(expr: Expr, definitions: Mapping[str, Expr]) -> Iterator[Expr]:
    """What `expr` mentions (`ir.expr.mentioned`), and what let-bound values in it do, and so on."""
    seen: set[str] = set()
    stack = [expr]
    while stack:
        for node in mentioned(stack.pop()):
            yield node
            if isinstance(node, Var) and node.name in definitions and node.name not in seen:
                seen.add(node.name)
                stack.append(definitions[node.name])


def depends_on(expr: Expr, name: str, definitions: Mapping[str, Expr]) -> bool:
    """Whether `expr` mentions variable `name`, let-bound values included."""
    nodes = mentioned_through(expr, definitions)
    return any(isinstance(node, Var) and node.name == name for node in nodes)


def interval(
    expr: Expr, ranges: Mapping[str, Interval], definitions: Mapping[str, Expr]
) -> Interval:
    """Bounds of an integer expression, from the bounds of its variables."""
    return _interval(expr, ranges, definitions, {})


def _interval(
    expr: Expr,
    ranges: Mapping[str, Interval],
    definitions: Mapping[str, Expr],
    known: dict[str, Interval],
) -> Interval:
    """`interval`; `known` are those of let-bound variables that were looked through."""
    match expr:
        case Const(value=value):
            return (int(value), int(value))
        case Var(name=name, lower=lower, upper=upper):
            if name in ranges:
                return ranges[name]
            if name in definitions:
                if name not in known:
                    known[name] = _interval(definitions[name], ranges, definitions, known)
                return known[name]
            return (-math.inf if lower is None else lower, math.inf if upper is None else upper)
        case Binary(op=op, a=a, b=b):
            left = _interval(a, ranges, definitions, known)
            found = _binary_interval(op, left, _interval(b, ranges, definitions, known))
            return UNKNOWN if _may_wrap(found, dtype_of_expr(expr)) else found
        case Cast(a=a, dtype=dtype) if dtype.is_int and dtype.bits >= 32 and a.dtype.is_int:  # type: ignore[attr-defined]
            return _interval(a, ranges, definitions, known)
        case _:
            return UNKNOWN


def _may_wrap(found: Interval, dtype: DType) -> bool:
    """Whether a finite bound is beyond `dtype`: squares of squares grow without end otherwise."""
    low, high = dtype_interval(dtype) if dtype.is_int else UNKNOWN
    return any(not (low <= bound <= high) and math.isfinite(bound) for bound in found)


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
