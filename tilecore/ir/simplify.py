"""Integer and boolean expressions made smaller, with what `Ranges` knows.

Every rule keeps the value for all values of the variables in range, and never adds a fault: a
load or a division that was not evaluated before is not evaluated afterwards. Float arithmetic is
left alone.
"""

from __future__ import annotations

import math

from tilecore.ir.dtypes import DType, boolean
from tilecore.ir.expr import (
    FALSE,
    TRUE,
    Binary,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
    binary,
    const,
    dtype_of_expr,
    transform,
    walk,
)
from tilecore.ir.fold import wrap_int
from tilecore.ir.intervals import dtype_interval
from tilecore.ir.linear import Linear
from tilecore.ir.ranges import OPPOSITE, Ranges


def simplify(expr: Expr, ranges: Ranges) -> Expr:
    """The same value, in fewer operations where a rule applies."""
    if not expr.children:
        return _constant_if_known(expr, ranges)
    return transform(expr, lambda node: simplify_node(node, ranges))


def is_always_true(condition: Expr, ranges: Ranges) -> bool:
    """True when `condition` holds for all values in range; False says nothing."""
    return ranges.proves(condition)


def upper_bound(expr: Expr, ranges: Ranges) -> int:
    """An inclusive upper bound of an integer expression, at worst its dtype's."""
    return ranges.interval(expr)[1]


def known_multiple(expr: Expr, ranges: Ranges) -> int:
    """The largest number that is known to divide `expr`; 0 when it is always 0."""
    return ranges.multiple(expr)


def simplify_node(node: Expr, ranges: Ranges) -> Expr | None:
    """One node over simplified children; None when no rule applies."""
    match node:
        case Binary(op="floordiv" | "floormod" as op, a=a, b=b) if dtype_of_expr(a).is_int:
            return _divide(op, a, b, ranges)
        case Binary(op="min" | "max" as op, a=a, b=b) if dtype_of_expr(a).is_int:
            return _pick(op, a, b, ranges)
        case Binary(op="add" | "sub" | "mul", a=a) if dtype_of_expr(a).is_int:
            return _shorter_sum(node, ranges)
        case Binary(op="eq" | "ne" | "lt" | "le" | "gt" | "ge", a=a) if dtype_of_expr(a).is_int:
            return _decided(node, ranges)
        case Binary(op="and" | "or", a=a, b=b):
            return a if a == b else None
        case Binary(op="bitand", a=a, b=Const(value=mask), dtype=dtype) if dtype.is_int:
            low, high = ranges.interval(a)
            is_low_bits = mask >= 0 and int(mask) & (int(mask) + 1) == 0
            return a if is_low_bits and low >= 0 and high <= mask else None
        case Unary():
            return _unary(node)
        case Cast():
            return _cast(node, ranges)
        case Select():
            return _select(node, ranges)
        case _:
            return _constant_if_known(node, ranges)


def _constant_if_known(expr: Expr, ranges: Ranges) -> Expr:
    """A constant instead of an integer that can have one value only."""
    dtype = dtype_of_expr(expr)
    if dtype.is_int and not isinstance(expr, Const):
        low, high = ranges.interval(expr)
        if low == high:
            return const(low, dtype)
    return expr


def _decided(condition: Expr, ranges: Ranges) -> Expr | None:
    if ranges.proves(condition):
        return TRUE
    return FALSE if ranges.refutes(condition) else None


def _pick(op: str, a: Expr, b: Expr, ranges: Ranges) -> Expr | None:
    if ranges.proves(Binary("le", a, b, boolean)):
        return a if op == "min" else b
    if ranges.proves(Binary("le", b, a, boolean)):
        return b if op == "min" else a
    return None


def _size(expr: Expr) -> int:
    return sum(1 for _ in walk(expr))


def _shorter_sum(node: Expr, ranges: Ranges) -> Expr | None:
    """Equal terms cancelled or merged, if that leaves fewer nodes."""
    dtype = dtype_of_expr(node)
    form = ranges.linear(node)
    if form.terms == ((node, 1),):
        return None
    other = _sum(form, dtype)
    return other if other is not None and _size(other) < _size(node) else None


def _divide(op: str, a: Expr, b: Expr, ranges: Ranges) -> Expr | None:
    zero = const(0, dtype_of_expr(a))
    is_below = ranges.proves(Binary("le", zero, a, boolean)) and ranges.proves(
        Binary("lt", a, b, boolean)
    )
    if is_below:
        return zero if op == "floordiv" else a
    if not isinstance(b, Const) or int(b.value) <= 0:
        return None
    nested = _nested_division(op, a, int(b.value), ranges)
    return nested if nested is not None else _divide_sum(op, a, int(b.value), ranges)


def _nested_division(op: str, a: Expr, divisor: int, ranges: Ranges) -> Expr | None:
    """``x // c // d`` is ``x // (c * d)``; ``x % c % d`` is ``x % d`` where d divides c."""
    dtype = dtype_of_expr(a)
    match a:
        case Binary(op="floordiv", a=x, b=Const(value=c)) if op == "floordiv" and c > 0:
            if int(c) * divisor <= dtype_interval(dtype)[1]:
                return _simplified(op, x, int(c) * divisor, ranges)
        case Binary(op="floormod", a=x, b=Const(value=c)) if op == "floormod" and c > 0:
            if int(c) % divisor == 0:
                return _simplified(op, x, divisor, ranges)
        case _:
            pass
    return None


def _simplified(op: str, a: Expr, divisor: int, ranges: Ranges) -> Expr:
    again = binary(op, a, const(divisor, dtype_of_expr(a)))
    better = simplify_node(again, ranges)
    return again if better is None else better


def _divide_sum(op: str, a: Expr, divisor: int, ranges: Ranges) -> Expr | None:
    """Multiples of the divisor leave the sum; what stays behind is often below it."""
    dtype = dtype_of_expr(a)
    form = ranges.linear(a)
    exact = ranges.divided(op, form, divisor)
    if exact is not None:
        return _sum(exact, dtype)
    whole, rest = ranges.split(form, divisor)
    # (s * x + y) // (s * c) is x // c where y is below s; its remainder is s * (x % c) + y.
    shared = math.gcd(divisor, *(coefficient for _, coefficient in rest.terms))
    inner = Linear(tuple((t, c // shared) for t, c in rest.terms), rest.constant // shared)
    low, high = dtype_interval(dtype)
    reach = ranges.interval_of(inner)
    numerator = _sum(inner, dtype)
    is_exact = low <= reach[0] and reach[1] <= high
    if numerator is None or not (is_exact or ranges.is_index(numerator)):
        return None
    part = binary(op, numerator, const(divisor // shared, dtype))
    if op == "floordiv":
        result = _sum(whole.plus(Linear(((part, 1),))), dtype)
    else:
        result = _sum(Linear(((part, shared),), rest.constant % shared), dtype)
    original = binary(op, a, const(divisor, dtype))
    return result if result is not None and _size(result) < _size(original) else None


def _sum(form: Linear, dtype: DType) -> Expr | None:
    """A sum whose value fits `dtype` as an expression; its steps may wrap, that cancels out."""
    low, high = dtype_interval(dtype)
    if any(not low <= number <= high for number in (form.constant, *(c for _, c in form.terms))):
        return None
    return form.expr(dtype)


def _unary(node: Unary) -> Expr | None:
    match node:
        case Unary(op="not", a=Const(value=value)):
            return FALSE if value else TRUE
        case Unary(op="not", a=Unary(op="not", a=inner)):
            return inner
        case Unary(op="not", a=Binary(op=op, a=a, b=b)) if op in OPPOSITE:
            # Not for floats: with a nan, both a < b and a >= b are false.
            return binary(OPPOSITE[op], a, b) if dtype_of_expr(a).is_int else None
        case Unary(op="neg", a=Const(value=value), dtype=dtype) if dtype.is_int:
            return const(wrap_int(-int(value), dtype), dtype)
        case Unary(op="neg", a=Unary(op="neg", a=inner), dtype=dtype) if dtype.is_int:
            return inner
        case Unary(op="bitnot", a=Const(value=value), dtype=dtype) if dtype.is_int:
            return const(wrap_int(~int(value), dtype), dtype)
        case _:
            return None


def _cast(node: Cast, ranges: Ranges) -> Expr | None:
    source, target = dtype_of_expr(node.a), node.dtype
    if source == target:
        return node.a
    if isinstance(node.a, Const) and not source.is_float and target.is_int:
        return const(wrap_int(int(node.a.value), target), target)
    match node.a:
        case Cast(a=inner, dtype=middle) if middle.is_int and target.is_int:
            if not dtype_of_expr(inner).is_int:
                return None
            # The step in the middle loses nothing, or loses only what the last one loses too.
            if target.bits <= middle.bits or ranges.wraps_never(node.a):
                return inner if dtype_of_expr(inner) == target else Cast(inner, target)
        case _:
            pass
    return _constant_if_known(node, ranges) if target.is_int else None


def _select(node: Select, ranges: Ranges) -> Expr | None:
    if ranges.proves(node.condition):
        return node.a
    if ranges.refutes(node.condition):
        return node.b
    if node.a == node.b:
        return node.a
    match node:
        case Select(condition=condition, a=Const(value=True), b=Const(value=False), dtype=dtype):
            return condition if dtype.is_bool else None
        case _:
            return None
