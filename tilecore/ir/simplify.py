"""Integer and boolean expressions made smaller, with what `Ranges` knows.

Every rule keeps the value for all values of the variables in range, and never adds a fault: a
load or a division that was not evaluated before is not evaluated afterwards. Float arithmetic is
left alone.
"""

from __future__ import annotations

import math
import operator

from tilecore.ir.compound import nodes_of
from tilecore.ir.dtypes import DType, boolean
from tilecore.ir.expr import (
    COMPARISON,
    FALSE,
    TRUE,
    Binary,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
    as_dtype,
    binary,
    const,
    dtype_of_expr,
    rebuild,
)
from tilecore.ir.fold import wrap_int
from tilecore.ir.intervals import dtype_interval
from tilecore.ir.linear import Linear
from tilecore.ir.ranges import OPPOSITE, Ranges

NOTHING_KNOWN = Ranges()
"""Of variables, only what they promise themselves."""


def simplify(expr: Expr, ranges: Ranges, apart: bool = False) -> Expr:
    """The same value, in fewer operations where a rule applies.

    With `apart`, divisions of sums are taken apart even where that is longer:
    ``(c * 128 + lane) // 8`` becomes ``c * 16 + lane // 8``, whose parts can be computed, and
    shared, at different places.
    """
    return _Simplifier(ranges, apart).of(expr)


class _Simplifier:
    """Simplifies bottom-up, each expression once for as long as the same ranges hold."""

    def __init__(self, ranges: Ranges, apart: bool) -> None:
        self._ranges = ranges
        self._apart = apart
        self._known = ranges.simplified(apart)

    def of(self, expr: Expr) -> Expr:
        """The simplified expression."""
        if not expr.children:
            return _constant_if_known(expr, self._ranges)
        known = self._known.get(expr)
        if known is None:
            known = self._known[expr] = self._found(expr)
        return known

    def _found(self, expr: Expr) -> Expr:
        if type(expr) is Binary:  # nearly all nodes that have children
            a, b = self.of(expr.a), self.of(expr.b)
            node = expr if a is expr.a and b is expr.b else binary(expr.op, a, b)
        else:
            children = tuple([self.of(child) for child in expr.children])
            same = all(map(operator.is_, children, expr.children))
            node = expr if same else rebuild(expr, children)
        if node is not expr and not node.children:
            return node  # folded to a leaf, which was simplified as somebody's child
        result = simplify_node(node, self._ranges, self._apart)
        return node if result is None else result


def is_always_true(condition: Expr, ranges: Ranges) -> bool:
    """True when `condition` holds for all values in range; False says nothing."""
    return ranges.proves(condition)


def upper_bound(expr: Expr, ranges: Ranges) -> int:
    """An inclusive upper bound of an integer expression, at worst its dtype's."""
    return ranges.interval(expr)[1]


def known_multiple(expr: Expr, ranges: Ranges = NOTHING_KNOWN) -> int:
    """The largest number that is known to divide `expr`; 0 when it is always 0."""
    return ranges.multiple(expr)


def simplify_node(node: Expr, ranges: Ranges, apart: bool = False) -> Expr | None:
    """One node over simplified children; None when no rule applies."""
    if isinstance(node, Binary):
        return _binary(node, ranges, apart)
    match node:
        case Unary():
            return _unary(node)
        case Cast():
            return _cast(node, ranges)
        case Select():
            return _select(node, ranges)
        case _:
            return _constant_if_known(node, ranges)


def _binary(node: Binary, ranges: Ranges, apart: bool) -> Expr | None:
    op, a, b = node.op, node.a, node.b
    if op in ("and", "or"):
        return a if a == b else None
    if dtype_of_expr(a).is_int:
        if op in ("add", "sub", "mul"):
            return None if apart else _shorter_sum(node, ranges)
        if op in ("floordiv", "floormod"):
            return _divide(op, a, b, ranges, apart)
        if op in ("min", "max"):
            return _pick(op, a, b, ranges)
        if op in COMPARISON:
            return _decided(node, ranges)
        if op == "bitand" and isinstance(b, Const):
            mask = int(b.value)
            is_low_bits = mask > 0 and mask & (mask + 1) == 0
            return _masked(a, mask, ranges) if is_low_bits else None
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


def _shorter_sum(node: Expr, ranges: Ranges) -> Expr | None:
    """Equal terms cancelled or merged, if that leaves fewer nodes."""
    dtype = dtype_of_expr(node)
    form = ranges.linear(node)
    if form.terms == ((node, 1),):
        return None
    other = _sum(form, dtype)
    return other if other is not None and nodes_of(other) < nodes_of(node) else None


def _divide(op: str, a: Expr, b: Expr, ranges: Ranges, apart: bool) -> Expr | None:
    if isinstance(b, Const) and int(b.value) > 0:
        nested = _nested_division(op, a, int(b.value))
        if nested is not None:
            return simplify_node(nested, ranges, apart) or nested
        divided = _divide_sum(op, a, int(b.value), ranges, apart)
        if divided is not None or apart:
            return divided
    zero = const(0, dtype_of_expr(a))
    is_below = ranges.proves(Binary("le", zero, a, boolean)) and ranges.proves(
        Binary("lt", a, b, boolean)
    )
    if is_below:
        return zero if op == "floordiv" else a
    return None


def _masked(a: Expr, mask: int, ranges: Ranges) -> Expr | None:
    """``a & mask`` of low bits, without the terms that have none of them."""
    low, high = ranges.interval(a)
    if low >= 0 and high <= mask:
        return a
    dtype = dtype_of_expr(a)
    form = ranges.regrouped(a)  # what wraps has lost higher bits only
    kept = Linear(
        tuple((t, c) for t, c in form.terms if c % (mask + 1)), form.constant % (mask + 1)
    )
    small = _sum(kept, dtype)
    if small is None or kept == form:
        return None
    low, high = ranges.interval_of(kept)
    if low >= 0 and high <= mask:
        return small
    return binary("bitand", small, const(mask, dtype))


def _nested_division(op: str, a: Expr, divisor: int) -> Expr | None:
    """One division less, or a smaller number to divide.

    ``x // c // d`` is ``x // (c * d)``; where d divides c, ``x % c % d`` is ``x % d`` and
    ``x % c // d`` is ``x // d % (c / d)``.
    """
    dtype = dtype_of_expr(a)
    match a:
        case Binary(op="floordiv", a=x, b=Const(value=c)) if op == "floordiv" and c > 0:
            if int(c) * divisor <= dtype_interval(dtype)[1]:
                return binary(op, x, const(int(c) * divisor, dtype))
        case Binary(op="floormod", a=x, b=Const(value=c)) if c > 0 and int(c) % divisor == 0:
            if op == "floormod":
                return binary(op, x, const(divisor, dtype))
            quotient = binary("floordiv", x, const(divisor, dtype))
            return binary("floormod", quotient, const(int(c) // divisor, dtype))
        case _:
            pass
    return None


def _divide_sum(op: str, a: Expr, divisor: int, ranges: Ranges, apart: bool) -> Expr | None:
    """Multiples of the divisor leave the sum; what stays behind is often below it."""
    dtype = dtype_of_expr(a)
    form = ranges.linear(a)
    whole, rest = ranges.split(form, divisor)
    low, high = ranges.interval_of(rest)
    if (carry := low // divisor) == high // divisor:
        exact = whole.shifted(carry) if op == "floordiv" else rest.shifted(-carry * divisor)
        return _sum(exact, dtype)
    largest = None if apart else nodes_of(a) + 2
    parts = _coarsened(op, rest, divisor, ranges, dtype, apart)
    if parts is None and apart and whole != Linear():
        remainder = _sum(rest, dtype)
        if remainder is not None and ranges.is_exact(rest, remainder):
            parts = binary(op, remainder, const(divisor, dtype))
    head = _sum(whole, dtype) if op == "floordiv" else const(0, dtype)
    if parts is not None and head is not None:
        result = binary("add", head, parts)
        if largest is None or nodes_of(result) <= largest:
            return result
    if largest is None:
        return None
    # (s * x + y) // (s * c) is x // c where y is 0; its remainder is s * (x % c).
    shared = math.gcd(divisor, *(coefficient for _, coefficient in rest.terms))
    inner = Linear(tuple((t, c // shared) for t, c in rest.terms), rest.constant // shared)
    numerator = _sum(inner, dtype)
    if numerator is None or not ranges.is_exact(inner, numerator):
        return None
    part = binary(op, numerator, const(divisor // shared, dtype))
    if op == "floordiv":
        result = _sum(whole.plus(Linear(((part, 1),))), dtype)
    else:
        result = _sum(Linear(((part, shared),), rest.constant % shared), dtype)
    return result if result is not None and nodes_of(result) < largest else None


def _coarsened(
    op: str, form: Linear, divisor: int, ranges: Ranges, dtype: DType, apart: bool
) -> Expr | None:
    """``(s * x + y) // (s * c)`` with ``0 <= y < s`` is ``x // c``; ``%``: ``s * (x % c) + y``."""
    for step in sorted({abs(c) for _, c in form.terms}, reverse=True):
        if step == 1 or divisor % step:
            continue
        big = Linear(tuple((t, c // step) for t, c in form.terms if c % step == 0))
        big = big.shifted(form.constant // step)
        small = Linear(tuple((t, c) for t, c in form.terms if c % step), form.constant % step)
        low, high = ranges.interval_of(small)
        if low < 0 or high >= step:
            continue
        units, rest = _sum(big, dtype), _sum(small, dtype)
        if units is None or rest is None or not ranges.is_exact(big, units):
            continue
        part = binary(op, units, const(divisor // step, dtype))
        part = simplify_node(part, ranges, apart) or part
        if op == "floordiv":
            return part
        return binary("add", binary("mul", part, const(step, dtype)), rest)
    return None


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
                return as_dtype(inner, target)
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
