"""What is known about integer expressions: intervals, divisors and exact sums.

`Knowledge` is the half of `ranges.Ranges` that answers; nothing is guessed, an answer holds for
every value of the variables.

Arithmetic wraps, so ``(x * 8) // 8`` is not x for every x. Sums and products are taken apart only
where their interval shows that they fit their dtype, or where they consist of nothing but
dynamic sizes, grid and loop variables and constants (`Knowledge.sizes`): index arithmetic that
overflows its dtype has no meaning that anyone could rely on. Unless its variables are known to be
small: then it overflows because somebody wanted it to, as in a hash of a loop's index.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

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
    walk,
)
from tilecore.ir.intervals import (
    Interval,
    arithmetic,
    bitwise,
    clip,
    division,
    dtype_interval,
    power_of_two_in,
    promised,
    within,
)
from tilecore.ir.linear import Linear

LARGEST_SIZE = 1 << 24
"""More elements than a tile or an array on the chip has: a bound beyond it bounds nothing."""

_SMALL = 1 << 30
"""What no variable reaches that is known at compile time; one of the call's may have any value."""

_INDEX_OPS = frozenset({"add", "sub", "mul", "floordiv", "floormod", "min", "max"})


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Facts about variables, by name.

    Attributes:
        bounds: inclusive numeric bounds.
        limits: inclusive lower and upper bound as sums of other variables.
        multiples: numbers that divide the variable, besides its own ``multiple_of``.
        values: definitions of `Let` variables that read no memory.
        behind: how many of `values` are looked through for a name, one after the other.
        sizes: dynamic sizes, grid and loop variables: sums of these are taken not to wrap.
        facts: sums that are known to be 0 or more.
    """

    bounds: Mapping[str, Interval] = field(default_factory=dict)
    limits: Mapping[str, tuple[Linear | None, Linear | None]] = field(default_factory=dict)
    multiples: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Expr] = field(default_factory=dict)
    behind: Mapping[str, int] = field(default_factory=dict)
    sizes: frozenset[str] = frozenset()
    facts: tuple[Linear, ...] = ()
    _sums: dict[Expr, Linear] = field(default_factory=dict, init=False, repr=False, compare=False)
    _intervals: dict[Expr, Interval] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _indices: dict[Expr, bool] = field(default_factory=dict, init=False, repr=False, compare=False)
    _multiples: dict[Expr, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _simplified: tuple[dict[Expr, Expr], dict[Expr, Expr]] = field(
        default_factory=lambda: ({}, {}), init=False, repr=False, compare=False
    )

    def simplified(self, apart: bool) -> dict[Expr, Expr]:
        """What `simplify` has made of expressions under these facts; it adds to it."""
        return self._simplified[apart]

    # --- intervals -----------------------------------------------------------------------------

    def interval(self, expr: Expr) -> Interval:
        """Inclusive bounds of an integer or bool expression (of its wrapped value)."""
        if isinstance(expr, Const):
            return int(expr.value), int(expr.value)
        if isinstance(expr, Var):
            everything = dtype_interval(expr.dtype)
            return clip(self.bounds.get(expr.name, everything), promised(expr))
        known = self._intervals.get(expr)
        if known is None:
            known = self._intervals[expr] = self._found(expr)
        return known

    def _found(self, expr: Expr) -> Interval:
        """`interval` of what has parts."""
        everything = dtype_interval(dtype_of_expr(expr))
        exact = self._exact(expr)
        if exact is None:
            return everything
        if within(exact, everything):
            return exact
        return clip(exact, everything) if self._is_position(expr) else everything

    def _exact(self, expr: Expr) -> Interval | None:
        """Bounds before wrapping; None when nothing better than the dtype is known."""
        match expr:
            case Binary(op="add" | "sub" | "mul" | "min" | "max" as op, a=a, b=b) if is_int(a):
                return arithmetic(op, self.interval(a), self.interval(b))
            case Binary(op="floordiv" | "floormod" | "div" as op, a=a, b=b) if is_int(a):
                return division(op, self.interval(a), self.interval(b))
            case Binary(op="shl" | "shr" as op, a=a, b=Const(value=count)) if 0 <= count < 64:
                low, high = self.interval(a)
                factor = 1 << int(count)
                if op == "shl":
                    return low * factor, high * factor
                return low // factor, high // factor
            case Binary(op="bitand" | "bitor" | "bitxor" as op, a=a, b=b) if is_int(a):
                return bitwise(op, self.interval(a), self.interval(b))
            case Unary(op="neg", a=a) if is_int(a):
                low, high = self.interval(a)
                return -high, -low
            case Cast(a=a) if not dtype_of_expr(a).is_float and is_int(expr):
                return self.interval(a)
            case Call(op="lane.at_use" | "lane.uniform", args=(a, *_)):
                return self.interval(a)
            case Select(a=a, b=b) if not dtype_of_expr(a).is_float:
                (low_a, high_a), (low_b, high_b) = self.interval(a), self.interval(b)
                return min(low_a, low_b), max(high_a, high_b)
            case _:
                return None

    def is_index(self, expr: Expr) -> bool:
        """True for arithmetic of nothing but sizes, grid and loop variables and constants.

        Only in signed dtypes of 32 bits or more: narrower and unsigned ones are made to wrap.
        """
        if dtype_of_expr(expr).kind != "int" or dtype_of_expr(expr).bits < 32:
            return False
        if isinstance(expr, Const):
            return True
        if isinstance(expr, Var):
            return expr.name in self.sizes
        known = self._indices.get(expr)
        if known is None:
            known = self._indices[expr] = self._is_index(expr)
        return known

    def _is_index(self, expr: Expr) -> bool:
        """`is_index` of what has parts."""
        match expr:
            case Binary(op=op, a=a, b=b):
                return op in _INDEX_OPS and self.is_index(a) and self.is_index(b)
            case Unary(op="neg", a=a):
                return self.is_index(a)
            case Cast(a=a, dtype=dtype):
                source = dtype_of_expr(a)
                is_wider = within(dtype_interval(source), dtype_interval(dtype))
                return source.is_int and dtype.is_int and is_wider and self.is_index(a)
            case _:
                return False

    def wraps_never(self, expr: Expr) -> bool:
        """True when the value of this node is the exact result of its operation."""
        exact = self._exact(expr)
        if exact is None:
            return False
        return within(exact, dtype_interval(dtype_of_expr(expr))) or self._is_position(expr)

    def overflows(self, expr: Expr) -> bool:
        """True when small variables alone take the expression out of its dtype."""
        exact = self._exact(expr)
        if exact is None or within(exact, dtype_interval(dtype_of_expr(expr))):
            return False
        names = [node for node in walk(expr) if isinstance(node, Var)]
        return all(-_SMALL < low <= high < _SMALL for low, high in map(self.interval, names))

    def _is_position(self, expr: Expr) -> bool:
        """True for index arithmetic that nobody could want to overflow."""
        return self.is_index(expr) and not self.overflows(expr)

    def size(self, extent: Expr) -> int | None:
        """The largest value of an extent; None when no useful bound is known."""
        high = self.interval(extent)[1]
        return high if high < LARGEST_SIZE else None

    # --- sums ----------------------------------------------------------------------------------

    def linear(self, expr: Expr) -> Linear:
        """The expression as an exact sum; its terms hold no sums that do not wrap."""
        if isinstance(expr, Const):
            return Linear((), int(expr.value))
        if isinstance(expr, Var) and expr.name not in self.values:
            return Linear(((expr, 1),))
        known = self._sums.get(expr)
        if known is None:
            terms: list[tuple[Expr, int]] = []
            constant = self._collect(expr, 1, terms)
            known = self._sums[expr] = self._rejoin(Linear.of(terms, constant))
        return known

    def regrouped(self, expr: Expr) -> Linear:
        """A sum that equals the expression in the arithmetic of its dtype, which may wrap.

        For addresses in another order, not for bounds. Divisions stay as they are written.
        """
        terms: list[tuple[Expr, int]] = []
        constant = self._regroup(expr, 1, terms)
        return Linear.of(terms, constant)

    def _regroup(self, expr: Expr, scale: int, terms: list[tuple[Expr, int]]) -> int:
        match expr:
            case Binary(op="add" | "sub" as op, a=a, b=b) if is_int(expr):
                sign = 1 if op == "add" else -1
                return self._regroup(a, scale, terms) + self._regroup(b, sign * scale, terms)
            case Binary(op="mul", a=a, b=Const(value=value)) if is_int(expr):
                return self._regroup(a, scale * int(value), terms)
            case Binary(op="mul", a=Const(value=value), b=b) if is_int(expr):
                return self._regroup(b, scale * int(value), terms)
            case Unary(op="neg", a=a) if is_int(expr):
                return self._regroup(a, -scale, terms)
            case Const() | Cast():
                return self._collect(expr, scale, terms)
            case _:
                terms.append((expr, scale))
                return 0

    def _collect(self, expr: Expr, scale: int, terms: list[tuple[Expr, int]]) -> int:
        """Add ``scale * expr`` to `terms`; give back the constant part."""
        match expr:
            case Const(value=value):
                return scale * int(value)
            case Var(name=name) if name in self.values:
                form = self.linear(self.values[name])  # many may mention it: remembered
                terms += [(term, scale * coefficient) for term, coefficient in form.terms]
                return scale * form.constant
            case Binary(op="add" | "sub" as op, a=a, b=b) if self.wraps_never(expr):
                sign = 1 if op == "add" else -1
                return self._collect(a, scale, terms) + self._collect(b, sign * scale, terms)
            case Binary(op="mul", a=a, b=Const(value=value)) if self.wraps_never(expr):
                return self._collect(a, scale * int(value), terms)
            case Binary(op="mul", a=Const(value=value), b=b) if self.wraps_never(expr):
                return self._collect(b, scale * int(value), terms)
            case Binary(op="shl", a=a, b=Const(value=value)) if self.wraps_never(expr):
                return self._collect(a, scale << int(value), terms)
            case Unary(op="neg", a=a) if self.wraps_never(expr):
                return self._collect(a, -scale, terms)
            case Cast(a=a) if dtype_of_expr(a).is_int and self.wraps_never(expr):
                return self._collect(a, scale, terms)
            case Binary(op="floordiv" | "floormod" as op, a=a, b=Const(value=value)) if value > 0:
                exact = self.divided(op, self.linear(a), int(value))
                if exact is not None:
                    terms += [(term, scale * coefficient) for term, coefficient in exact.terms]
                    return scale * exact.constant
            case _:
                pass
        terms.append((expr, scale))
        return 0

    def is_exact(self, form: Linear, expr: Expr) -> bool:
        """True when `expr`, which is written from `form`, has its value and has not wrapped."""
        fits = within(self.interval_of(form), dtype_interval(dtype_of_expr(expr)))
        return fits or self._is_position(expr)

    def split(self, form: Linear, divisor: int) -> tuple[Linear, Linear]:
        """``(whole, rest)`` with ``form == divisor * whole + rest``, as little rest as is known."""
        whole: list[tuple[Expr, int]] = []
        rest: list[tuple[Expr, int]] = []
        for term, coefficient in form.terms:
            shared = math.gcd(coefficient, divisor)
            if shared == divisor:
                whole.append((term, coefficient // divisor))
            elif self._term_multiple(term) % (divisor // shared) == 0:
                part = const(divisor // shared, dtype_of_expr(term))
                whole.append((binary("floordiv", term, part), coefficient // shared))
            else:
                rest.append((term, coefficient))
        carried, left = divmod(form.constant, divisor)
        return Linear.of(whole, carried), Linear.of(rest, left)

    def divided(self, op: str, form: Linear, divisor: int) -> Linear | None:
        """A sum ``//`` or ``%`` a positive number, if the result is a sum without division."""
        whole, rest = self.split(form, divisor)
        low, high = self.interval_of(rest)
        carry = low // divisor
        if carry != high // divisor:
            return None
        return whole.shifted(carry) if op == "floordiv" else rest.shifted(-carry * divisor)

    def _rejoin(self, form: Linear) -> Linear:
        """``x // c * c + x % c`` is x, and so is ``x // c * c`` where c divides x."""
        for term, coefficient in form.terms:
            match term:
                case Binary(op="floormod", a=a, b=Const(value=c)) if c > 0:
                    whole = binary("floordiv", a, term.b)
                    if dict(form.terms).get(whole) == coefficient * int(c):
                        rest = form.replaced(term, Linear()).replaced(whole, Linear())
                        return self._rejoin(rest.plus(self.linear(a), coefficient))
                case Binary(op="floordiv", a=a, b=Const(value=c)) if c > 0:
                    if coefficient % int(c) == 0 and self.multiple(a) % int(c) == 0:
                        rest = form.replaced(term, Linear())
                        return self._rejoin(rest.plus(self.linear(a), coefficient // int(c)))
                case _:
                    pass
        return form

    def interval_of(self, form: Linear) -> Interval:
        """Bounds of a sum."""
        low = high = form.constant
        for term, coefficient in form.terms:
            ends = [coefficient * end for end in self.interval(term)]
            low, high = low + min(ends), high + max(ends)
        return low, high

    # --- divisors ------------------------------------------------------------------------------

    def multiple(self, expr: Expr) -> int:
        """The largest number that is known to divide `expr`; 0 when it is always 0."""
        if not is_int(expr):
            return 1
        known = self._multiples.get(expr)
        if known is None:
            known = self._multiples[expr] = self.multiple_of(self.linear(expr))
        return known

    def multiple_of(self, form: Linear) -> int:
        """The largest number that is known to divide a sum; 0 when it is always 0."""
        result = abs(form.constant)
        for term, coefficient in form.terms:
            result = math.gcd(result, coefficient * self._term_multiple(term))
        return result

    def _term_multiple(self, term: Expr) -> int:
        match term:
            case Var(name=name, multiple_of=promise):
                return math.lcm(max(1, promise), self.multiples.get(name, 1))
            case Binary(op="add" | "sub", a=a, b=b):
                return self._wrapped(term, math.gcd(self.multiple(a), self.multiple(b)))
            case Binary(op="mul", a=a, b=b):
                return self._wrapped(term, self.multiple(a) * self.multiple(b))
            case Binary(op="floormod" | "min" | "max", a=a, b=b):
                return math.gcd(self.multiple(a), self.multiple(b))
            case Binary(op="floordiv", a=a, b=Const(value=value)) if value:
                top = self.multiple(a)
                return top // abs(int(value)) if top % int(value) == 0 else 1
            case Binary(op="bitand", a=a, b=b):
                return max(power_of_two_in(self.multiple(a)), power_of_two_in(self.multiple(b)))
            case Select(a=a, b=b):
                return math.gcd(self.multiple(a), self.multiple(b))
            case Cast(a=a) if dtype_of_expr(a).is_int:
                return self._wrapped(term, self.multiple(a))
            case _:
                return 1

    def _wrapped(self, expr: Expr, multiple: int) -> int:
        """Of a divisor, what survives wrapping: all of it, or its power of two."""
        return multiple if self.wraps_never(expr) else power_of_two_in(multiple)


def is_int(expr: Expr) -> bool:
    """True for an expression of an integer dtype."""
    return dtype_of_expr(expr).is_int
