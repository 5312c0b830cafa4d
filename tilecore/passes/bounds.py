"""What is known about integer index expressions: intervals, divisors, and proofs from them.

All of it works on one normal form, a sum of coefficient times term plus a constant, so that
``by * 128 + row`` minus ``by * 128`` is seen to be ``row``. Nothing here guesses: None means
"unknown", and `Ranges.proves` answers True only for what always holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tilecore.ir.dtypes import DType
from tilecore.ir.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
    Var,
    binary,
    const,
    dtype_of_expr,
)

Interval = tuple[int | None, int | None]
"""Inclusive lower and upper bound; None is unbounded."""

UNKNOWN: Interval = (None, None)


@dataclass(frozen=True, slots=True)
class Linear:
    """``sum(coefficient * term) + constant``; terms are distinct and hold no further sums."""

    terms: tuple[tuple[Expr, int], ...]
    constant: int

    def minus(self, other: Linear) -> Linear:
        """The difference, with equal terms cancelled."""
        total = dict(self.terms)
        for term, coefficient in other.terms:
            total[term] = total.get(term, 0) - coefficient
        kept = tuple((term, c) for term, c in total.items() if c)
        return Linear(kept, self.constant - other.constant)


def linear(expr: Expr) -> Linear:
    """The normal form of an integer expression."""
    terms: dict[Expr, int] = {}
    constant = _collect(expr, 1, terms)
    return Linear(tuple((term, c) for term, c in terms.items() if c), constant)


def _collect(expr: Expr, scale: int, terms: dict[Expr, int]) -> int:
    """Add ``scale * expr`` to `terms`; return the constant part."""
    match expr:
        case Const(value=value):
            return scale * int(value)
        case Binary(op="add", a=a, b=b):
            return _collect(a, scale, terms) + _collect(b, scale, terms)
        case Binary(op="sub", a=a, b=b):
            return _collect(a, scale, terms) + _collect(b, -scale, terms)
        case Binary(op="mul", a=a, b=Const(value=value)):
            return _collect(a, scale * int(value), terms)
        case Binary(op="mul", a=Const(value=value), b=b):
            return _collect(b, scale * int(value), terms)
        case Unary(op="neg", a=a):
            return _collect(a, -scale, terms)
        case Cast(a=a, dtype=dtype) if _widens(dtype_of_expr(a), dtype):
            return _collect(a, scale, terms)
        case _:
            terms[expr] = terms.get(expr, 0) + scale
            return 0


def _widens(source: DType, target: DType) -> bool:
    return source.is_int and target.is_int and target.bits >= source.bits


def from_linear(form: Linear, dtype_like: Expr) -> Expr:
    """Back to an expression, in the dtype of `dtype_like`."""
    dtype = dtype_of_expr(dtype_like)
    total: Expr = const(0, dtype)
    for term, coefficient in form.terms:
        if dtype_of_expr(term) != dtype:
            term = Cast(term, dtype)
        total = binary("add", total, binary("mul", term, const(coefficient, dtype)))
    return binary("add", total, const(form.constant, dtype))


def _add(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _scale(interval: Interval, factor: int) -> Interval:
    low, high = interval
    if factor == 0:
        return (0, 0)
    if factor < 0:
        low, high = high, low
    return (None if low is None else low * factor, None if high is None else high * factor)


@dataclass(frozen=True, slots=True)
class Ranges:
    """Bounds of the variables in scope."""

    of: Mapping[str, Interval] = field(default_factory=dict)

    def with_range(self, var: Var, low: int | None, high: int | None) -> Ranges:
        """These ranges and one more variable's (inclusive bounds)."""
        return Ranges({**self.of, var.name: (low, high)})

    def with_loop(self, var: Var, start: Expr, extent: Expr, step: Expr) -> Ranges:
        """These ranges and a loop variable's."""
        low, high = self.interval(start)
        count = self.interval(extent)[1]
        if not isinstance(step, Const) or step.value <= 0:  # rare: nothing is known
            return self.with_range(var, None, None)
        stretch = None if count is None else max(0, count - 1) * int(step.value)
        return self.with_range(var, low, _add(high, stretch))

    def assuming(self, condition: Expr) -> Ranges:
        """These ranges where `condition` holds too (what it says of single variables)."""
        match condition:
            case Binary(op="and", a=a, b=b):
                return self.assuming(a).assuming(b)
            case Binary(op="lt" | "le" | "gt" | "ge" as op, a=a, b=b) if dtype_of_expr(a).is_int:
                if op in ("gt", "ge"):
                    a, b, op = b, a, {"gt": "lt", "ge": "le"}[op]
                # 0 <= gap, with gap = b - a (- 1): solve for each variable.
                gap = linear(b).minus(linear(a))
                slack = gap.constant - (1 if op == "lt" else 0)
                return self._solved(Linear(gap.terms, slack))
            case _:
                return self

    def _solved(self, gap: Linear) -> Ranges:
        result = self
        for var, coefficient in gap.terms:
            if not isinstance(var, Var) or abs(coefficient) != 1:
                continue
            rest = Linear(tuple(t for t in gap.terms if t[0] != var), gap.constant)
            high = self.interval_of(rest)[1]
            if high is None:
                continue
            low_now, high_now = self._term(var)
            if coefficient < 0:  # var <= rest
                high_now = high if high_now is None else min(high_now, high)
            else:  # var >= -rest
                low_now = -high if low_now is None else max(low_now, -high)
            result = result.with_range(var, low_now, high_now)
        return result

    def interval(self, expr: Expr) -> Interval:
        """Inclusive bounds of an integer expression."""
        return self.interval_of(linear(expr))

    def _term(self, term: Expr) -> Interval:
        match term:
            case Var(name=name, lower=lower, upper=upper):
                return self.of.get(name, (lower, upper))
            case Binary(op="floordiv", a=a, b=Const(value=value)) if value > 0:
                low, high = self.interval(a)
                step = int(value)
                return (
                    None if low is None else low // step,
                    None if high is None else high // step,
                )
            case Binary(op="floormod", a=a, b=Const(value=value)) if value > 0:
                step = int(value)
                low, high = self.interval(a)
                if low is not None and high is not None and low // step == high // step:
                    return low % step, high % step
                return (0, step - 1)
            case Binary(op="min", a=a, b=b):
                (low_a, high_a), (low_b, high_b) = self.interval(a), self.interval(b)
                highs = [h for h in (high_a, high_b) if h is not None]
                low = None if low_a is None or low_b is None else min(low_a, low_b)
                return low, min(highs) if highs else None
            case Binary(op="max", a=a, b=b):
                (low_a, high_a), (low_b, high_b) = self.interval(a), self.interval(b)
                lows = [x for x in (low_a, low_b) if x is not None]
                high = None if high_a is None or high_b is None else max(high_a, high_b)
                return max(lows) if lows else None, high
            case Binary(op="mul", a=a, b=b):
                return _product(self.interval(a), self.interval(b))
            case Binary(op="bitand", a=a, b=Const(value=value)) if value >= 0:
                return (0, int(value))
            case Binary(op="shr", a=a, b=Const(value=value)):
                count = int(value)
                low, high = self.interval(a)
                return (
                    None if low is None else low >> count,
                    None if high is None else high >> count,
                )
            case Binary(op="bitxor", a=a, b=b):
                return _xor_range(self.interval(a), self.interval(b))
            case Select(a=a, b=b):
                (low_a, high_a), (low_b, high_b) = self.interval(a), self.interval(b)
                low = None if low_a is None or low_b is None else min(low_a, low_b)
                return low, None if high_a is None or high_b is None else max(high_a, high_b)
            case Cast(a=a) if dtype_of_expr(a).is_int:
                return self.interval(a)
            case Call() | _:
                return UNKNOWN

    def proves(self, condition: Expr) -> bool:
        """True when the condition holds for all values in range."""
        match condition:
            case Const(value=value):
                return bool(value)
            case Binary(op="and", a=a, b=b):
                return self.proves(a) and self.proves(b)
            case Binary(op="or", a=a, b=b):
                return self.proves(a) or self.proves(b)
            case Binary(op="lt" | "le" | "gt" | "ge" as op, a=a, b=b) if dtype_of_expr(a).is_int:
                return self._proves_order(op, a, b)
            case _:
                return False

    def _proves_order(self, op: str, a: Expr, b: Expr) -> bool:
        if op in ("gt", "ge"):
            a, b, op = b, a, {"gt": "lt", "ge": "le"}[op]
        gap = self.interval_of(linear(b).minus(linear(a)))[0]  # b - a
        return gap is not None and gap >= (1 if op == "lt" else 0)

    def interval_of(self, form: Linear) -> Interval:
        """Inclusive bounds of a normal form."""
        low: int | None = form.constant
        high: int | None = form.constant
        for term, coefficient in form.terms:
            part = _scale(self._term(term), coefficient)
            low, high = _add(low, part[0]), _add(high, part[1])
        return low, high

    def simplify(self, expr: Expr) -> Expr:
        """The same value with divisions and remainders folded where ranges allow."""
        from tilecore.ir.expr import transform

        return transform(expr, self._simplify_node)

    def _simplify_node(self, node: Expr) -> Expr | None:
        match node:
            case Binary(op="floordiv" | "floormod" as op, a=a, b=Const(value=value)) if value > 0:
                return self._divide(op, a, int(value))
            case Binary(op="bitand", a=a, b=Const(value=value)) if _is_mask(int(value)):
                return self._masked(a, int(value))
            case Binary(op="lt" | "le" | "gt" | "ge", a=a) if dtype_of_expr(a).is_int:
                return const(True, node.dtype) if self.proves(node) else None
            case Binary(op="min" | "max" as op, a=a, b=b) if dtype_of_expr(a).is_int:
                if self._proves_order("le", a, b):
                    return a if op == "min" else b
                if self._proves_order("le", b, a):
                    return b if op == "min" else a
                return None
            case _:
                return None

    def _coarsened(self, op: str, form: Linear, divisor: int, like: Expr) -> Expr | None:
        """``(16 * x + r) // 64`` with 0 <= r < 16 as ``x // 4``, and the remainder likewise."""
        dtype = dtype_of_expr(like)
        for step in sorted({abs(c) for _, c in form.terms}, reverse=True):
            if step == 1 or divisor % step:
                continue
            big = tuple((t, c // step) for t, c in form.terms if c % step == 0)
            small = Linear(tuple((t, c) for t, c in form.terms if c % step), form.constant % step)
            low, high = self.interval_of(small)
            if low is None or high is None or low < 0 or high >= step:
                continue
            units = from_linear(Linear(big, form.constant // step), like)
            split = binary(op, units, const(divisor // step, dtype))
            split = self._simplify_node(split) or split
            if op == "floordiv":
                return split
            return binary("add", binary("mul", split, const(step, dtype)), from_linear(small, like))
        return None

    def _masked(self, a: Expr, mask: int) -> Expr | None:
        """``a & mask`` of low bits, without the terms that have none of them."""
        form = linear(a)
        kept = tuple((t, c) for t, c in form.terms if c % (mask + 1))
        rest = Linear(kept, form.constant % (mask + 1))
        low, high = self.interval_of(rest)
        small = from_linear(rest, a)
        if low is not None and high is not None and low >= 0 and high <= mask:
            return small
        if kept == form.terms and rest.constant == form.constant:
            return None
        return binary("bitand", small, const(mask, dtype_of_expr(a)))

    def _divide(self, op: str, a: Expr, divisor: int) -> Expr | None:
        """``a // divisor`` or ``a % divisor`` with the multiples of the divisor taken out."""
        merged = _merge_divisions(op, a, divisor)
        if merged is not None:
            return self._simplify_node(merged) or merged
        form = linear(a)
        whole = tuple((t, c // divisor) for t, c in form.terms if c % divisor == 0)
        rest = Linear(tuple((t, c) for t, c in form.terms if c % divisor), form.constant % divisor)
        low, high = self.interval_of(rest)
        if low is not None and high is not None and low // divisor == high // divisor:
            carry = low // divisor
            if op == "floordiv":
                return from_linear(Linear(whole, form.constant // divisor + carry), a)
            return from_linear(Linear(rest.terms, rest.constant - carry * divisor), a)
        coarse = self._coarsened(op, rest, divisor, a)
        if coarse is not None:
            if op == "floormod":
                return coarse
            return binary("add", from_linear(Linear(whole, form.constant // divisor), a), coarse)
        if not whole and form.constant // divisor == 0:
            return None
        remainder = from_linear(rest, a)
        again = binary(op, remainder, const(divisor, dtype_of_expr(a)))
        if op == "floormod":
            return again
        head = from_linear(Linear(whole, form.constant // divisor), a)
        return binary("add", head, again)


def _is_mask(value: int) -> bool:
    return value > 0 and value & (value + 1) == 0


def _merge_divisions(op: str, a: Expr, divisor: int) -> Expr | None:
    """One division instead of two: ``x // p // q``, ``x % p % q``, ``x % p // q``."""
    if not isinstance(a, Binary) or not isinstance(a.b, Const) or a.op not in _DIVISIONS:
        return None
    first = int(a.b.value)
    dtype = a.dtype
    if first <= 0:
        return None
    if a.op == "floordiv" and op == "floordiv":
        return binary("floordiv", a.a, const(first * divisor, dtype))
    if a.op == "floormod" and op == "floormod" and first % divisor == 0:
        return binary("floormod", a.a, const(divisor, dtype))
    if a.op == "floormod" and op == "floordiv" and first % divisor == 0:
        inner = binary("floordiv", a.a, const(divisor, dtype))
        return binary("floormod", inner, const(first // divisor, dtype))
    return None


_DIVISIONS = ("floordiv", "floormod")


def _product(a: Interval, b: Interval) -> Interval:
    if a[0] is not None and b[0] is not None and a[0] >= 0 and b[0] >= 0:
        high = None if a[1] is None or b[1] is None else a[1] * b[1]
        return a[0] * b[0], high
    if None in a or None in b:
        return UNKNOWN
    corners = [x * y for x in a for y in b]  # type: ignore[operator]
    return min(corners), max(corners)


def _xor_range(a: Interval, b: Interval) -> Interval:
    if a[0] is None or b[0] is None or a[1] is None or b[1] is None or a[0] < 0 or b[0] < 0:
        return UNKNOWN
    return 0, (1 << max(a[1].bit_length(), b[1].bit_length())) - 1


def all_of(conditions: Iterable[Expr]) -> Expr:
    """The conjunction; True when there is none."""
    from tilecore.ir.expr import TRUE

    result: Expr = TRUE
    for condition in conditions:
        result = binary("and", result, condition)
    return result
