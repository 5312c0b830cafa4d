"""What passes know about variables, and what follows from it.

A pass extends its `Ranges` on the way down (`with_loop`, `assume`...) and asks `proves` and
`refutes`, or what `Knowledge` answers: `interval`, `multiple`, `linear`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tilecore.ir.expr import (
    Binary,
    Const,
    Expr,
    Unary,
    Var,
    const,
    dtype_of_expr,
    free_vars,
    reads_memory,
)
from tilecore.ir.intervals import (
    clip,
    dtype_interval,
    promised,
)
from tilecore.ir.knowledge import Knowledge, is_int
from tilecore.ir.linear import Linear

_NO_LIMITS: tuple[Linear | None, Linear | None] = (None, None)
_NAMES_BEHIND = 16  # definitions looked through, one after the other: each knowledge does it anew
_PROOF_DEPTH = 3  # symbolic limits put in one after the other: row, block, size


@dataclass(frozen=True, slots=True)
class Ranges(Knowledge):
    """`Knowledge` that can be extended and can prove conditions."""

    # --- what passes say -----------------------------------------------------------------------

    def with_sizes(self, symbols: Iterable[Var]) -> Ranges:
        """Dynamic sizes: 0 or more, within their promises."""
        added = {var.name: promised(var) for var in symbols}
        added = {name: (max(low, 0), high) for name, (low, high) in added.items()}
        return replace(self, bounds={**self.bounds, **added}, sizes=self.sizes | added.keys())

    def with_index(self, var: Var, extent: Expr) -> Ranges:
        """A grid or `Parallel` variable: ``0 <= var < extent``."""
        zero, one = const(0, var.dtype), const(1, var.dtype)
        return self.with_loop(var, zero, extent, one)

    def with_loop(self, var: Var, start: Expr, extent: Expr, step: Expr) -> Ranges:
        """A `For` variable inside its loop, where at least one round runs."""
        bounds, multiples = dict(self.bounds), dict(self.multiples)
        limits = dict(self.limits)
        bounds[var.name] = dtype_interval(var.dtype)
        if isinstance(step, Const) and int(step.value) > 0:
            stride = int(step.value)
            rounds = self.interval(extent)[1]
            low, high = self.interval(start)
            reach = (low, high + max(0, rounds - 1) * stride)
            bounds[var.name] = clip(reach, dtype_interval(var.dtype))
            if not reads_memory(start) and not reads_memory(extent):
                first = self.linear(start)
                limits[var.name] = (first, first.plus(self.linear(extent).shifted(-1), stride))
        multiples[var.name] = math.gcd(self.multiple(start), self.multiple(step)) or 1
        sizes = self.sizes | {var.name}
        return replace(self, bounds=bounds, limits=limits, multiples=multiples, sizes=sizes)

    def with_value(self, var: Var, value: Expr) -> Ranges:
        """A `Let` variable; nothing is noted about one that is no integer."""
        if not var.dtype.is_int:
            return self
        bounds = {**self.bounds, var.name: clip(self._within_limits(value), promised(var))}
        multiples = {**self.multiples, var.name: self.multiple(value) or 1}
        values, behind = self.values, self.behind
        if not reads_memory(value):
            names = 1 + max([behind.get(v.name, 0) for v in free_vars(value)], default=0)
            if names <= _NAMES_BEHIND:
                values, behind = {**values, var.name: value}, {**behind, var.name: names}
        is_index = self.is_index(value) and not self.overflows(value)
        sizes = self.sizes | {var.name} if is_index else self.sizes
        return replace(
            self, bounds=bounds, multiples=multiples, values=values, behind=behind, sizes=sizes
        )

    def _within_limits(self, value: Expr) -> tuple[int, int]:
        """Bounds of a value, also by the limits of one loop variable or remainder in it: a loop of
        ``n - begin`` rounds keeps ``begin + step`` below n, as does ``begin + k % (n - begin)``."""
        low, high = self.interval(value)
        form = self.linear(value)
        for term, coefficient in form.terms:
            limits = self._limits_of(term)
            for limit, upward in zip(limits, (coefficient < 0, coefficient > 0), strict=True):
                if limit is None:
                    continue
                least, most = self.interval_of(self._rejoin(form.replaced(term, limit)))
                if upward and low <= most < high:
                    high = most
                elif not upward and low < least <= high:
                    low = least
        return low, high

    def _limits_of(self, term: Expr) -> tuple[Linear | None, Linear | None]:
        """Least and greatest value of a loop variable, or of a remainder, as sums."""
        match term:
            case Var(name=name):
                return self.limits.get(name, _NO_LIMITS)
            case Binary(op="floormod", b=b) if not isinstance(b, Const) and self.interval(b)[0] > 0:
                return Linear(), self.linear(b).shifted(-1)
            case _:
                return _NO_LIMITS

    def with_range(self, var: Var, low: int, high: int) -> Ranges:
        """An index with inclusive bounds, such as a lane's number."""
        bounds = {**self.bounds, var.name: (low, high)}
        return replace(self, bounds=bounds, sizes=self.sizes | {var.name})

    def with_new(self, var: Var, low: int, high: int) -> Ranges:
        """`with_range` of a variable that nobody asked about before: what was found of other
        expressions stays true, and known."""
        grown = self.with_range(var, low, high)
        object.__setattr__(grown, "_sums", self._sums)
        object.__setattr__(grown, "_intervals", self._intervals)
        return grown

    def without_assumptions_since(self, before: Ranges) -> Ranges:
        """What was known `before`, and the variables that were added since."""
        return replace(self, bounds={**self.bounds, **before.bounds}, facts=before.facts)

    def assume(self, condition: Expr) -> Ranges:
        """These facts where `condition` holds. What depends on memory is not noted."""
        match condition:
            case Binary(op="and", a=a, b=b):
                return self.assume(a).assume(b)
            case Unary(op="not", a=Binary(op="or", a=a, b=b)):
                return self.assume(_negated(a)).assume(_negated(b))
            case Unary(op="not", a=Unary(op="not", a=a)):
                return self.assume(a)
            case Unary(op="not", a=Binary(op=op, a=a, b=b)) if op in OPPOSITE and is_int(a):
                return self.assume(Binary(OPPOSITE[op], a, b, condition.dtype))
            case Binary(op="eq" | "lt" | "le" | "gt" | "ge" as op, a=a, b=b):
                if not is_int(a) or reads_memory(condition):
                    return self
                new = [_gap(self, op, a, b)]
                if op == "eq":
                    new = [_gap(self, "le", a, b), _gap(self, "ge", a, b)]
                narrowed = replace(self, facts=(*self.facts, *new))
                for fact in new:
                    narrowed = narrowed._narrowed(fact)
                return narrowed
            case _:
                return self

    def _narrowed(self, fact: Linear) -> Ranges:
        """Bounds of single variables that follow from a sum which is 0 or more."""
        bounds = dict(self.bounds)
        for var, coefficient in fact.terms:
            if not isinstance(var, Var) or abs(coefficient) != 1:
                continue
            most = self.interval_of(fact.replaced(var, Linear()))[1]
            low, high = self.interval(var)
            # The sum says var <= most, or var >= -most.
            low, high = (low, min(high, most)) if coefficient < 0 else (max(low, -most), high)
            if low <= high:  # else this place is never reached
                bounds[var.name] = (low, high)
        return replace(self, bounds=bounds)

    # --- proofs --------------------------------------------------------------------------------

    def proves(self, condition: Expr) -> bool:
        """True when the condition holds for all values in range; False says nothing."""
        match condition:
            case Const(value=value):
                return bool(value)
            case Binary(op="and", a=a, b=b):
                return self.proves(a) and self.proves(b)
            case Binary(op="or", a=a, b=b):
                return self.proves(a) or self.proves(b)
            case Unary(op="not", a=a):
                return self.refutes(a)
            case Binary(op="eq", a=a, b=b) if is_int(a):
                return self._proves_order("le", a, b) and self._proves_order("ge", a, b)
            case Binary(op="ne", a=a, b=b) if is_int(a):
                return self._differ(a, b)
            case Binary(op="lt" | "le" | "gt" | "ge" as op, a=a, b=b) if is_int(a):
                return self._proves_order(op, a, b)
            case _:
                return False

    def refutes(self, condition: Expr) -> bool:
        """True when the condition is false for all values in range."""
        match condition:
            case Const(value=value):
                return not value
            case Binary(op="and", a=a, b=b):
                return self.refutes(a) or self.refutes(b)
            case Binary(op="or", a=a, b=b):
                return self.refutes(a) and self.refutes(b)
            case Unary(op="not", a=a):
                return self.proves(a)
            case Binary(op="eq" | "ne" | "lt" | "le" | "gt" | "ge" as op, a=a, b=b) if is_int(a):
                return self.proves(Binary(OPPOSITE[op], a, b, condition.dtype))
            case _:
                return False

    def _proves_order(self, op: str, a: Expr, b: Expr) -> bool:
        return self.is_nonnegative(_gap(self, op, a, b))

    def _differ(self, a: Expr, b: Expr) -> bool:
        if self._proves_order("lt", a, b) or self._proves_order("gt", a, b):
            return True
        gap = self.linear(a).plus(self.linear(b), -1)
        step = self.multiple_of(Linear(gap.terms))
        return step > 1 and gap.constant % step != 0

    def is_nonnegative(self, form: Linear, depth: int = _PROOF_DEPTH) -> bool:
        """True when the sum is 0 or more for all values in range; False says nothing."""
        if self.interval_of(form)[0] >= 0:
            return True
        if any(self.interval_of(form.plus(fact, -1))[0] >= 0 for fact in self.facts):
            return True
        if depth == 0:
            return False
        for term, coefficient in form.terms:
            low, high = self._limits_of(term)
            limit = low if coefficient > 0 else high
            if limit is not None:
                closer = self._rejoin(form.replaced(term, limit))
                if self.is_nonnegative(closer, depth - 1):
                    return True
            if self._nonnegative_with(form, term, coefficient, depth - 1):
                return True
        return False

    def _nonnegative_with(self, form: Linear, term: Expr, coefficient: int, depth: int) -> bool:
        """True when the sum is 0 or more with either side of a minimum or maximum in it: with both
        where the lesser sum is meant, else one is enough."""
        match term:
            case Binary(op="min" | "max" as op, a=a, b=b) if is_int(term):
                sides = (self._rejoin(form.replaced(term, self.linear(x))) for x in (a, b))
                enough = all if (op == "min") == (coefficient > 0) else any
                return enough(self.is_nonnegative(side, depth) for side in sides)
            case _:
                return False


# The comparison of integers that holds exactly where another does not (a nan breaks it for floats).
OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def _negated(condition: Expr) -> Expr:
    return Unary("not", condition, dtype_of_expr(condition))


def _gap(ranges: Ranges, op: str, a: Expr, b: Expr) -> Linear:
    """A sum that is 0 or more exactly if ``a op b``."""
    if op in ("gt", "ge"):
        a, b = b, a
    return ranges.linear(b).plus(ranges.linear(a), -1).shifted(-1 if op in ("lt", "gt") else 0)
