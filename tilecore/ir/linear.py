"""Integer sums in one normal form: coefficient times term, and a constant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Expr, Var, as_dtype, binary, const, free_vars


@dataclass(frozen=True, slots=True)
class Linear:
    """``sum(coefficient * term) + constant``, an exact integer (nothing wraps).

    Attributes:
        terms: distinct expressions with coefficients other than 0, in order of appearance.
        constant: what is added.
    """

    terms: tuple[tuple[Expr, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(terms: Iterable[tuple[Expr, int]], constant: int) -> Linear:
        """The normal form of a sum: equal terms merged, zeros dropped."""
        terms = tuple(terms)
        if len(terms) == 1:
            return Linear(terms if terms[0][1] else (), constant)
        total: dict[Expr, int] = {}
        for term, coefficient in terms:
            total[term] = total.get(term, 0) + coefficient
        return Linear(tuple((term, c) for term, c in total.items() if c), constant)

    def plus(self, other: Linear, scale: int = 1) -> Linear:
        """``self + scale * other``."""
        scaled = ((term, coefficient * scale) for term, coefficient in other.terms)
        return Linear.of((*self.terms, *scaled), self.constant + scale * other.constant)

    def shifted(self, amount: int) -> Linear:
        """``self + amount``."""
        return Linear(self.terms, self.constant + amount)

    def replaced(self, term: Expr, value: Linear) -> Linear:
        """The same sum with `value` in place of `term`."""
        coefficient = dict(self.terms).get(term, 0)
        kept = tuple((other, c) for other, c in self.terms if other != term)
        return Linear(kept, self.constant).plus(value, coefficient)

    def step(self, var: Var) -> int | None:
        """By how much the sum grows with `var`; None where that is no constant."""
        if any(var in free_vars(term) for term, _ in self.terms if term != var):
            return None
        return dict(self.terms).get(var, 0)

    def expr(self, dtype: DType) -> Expr:
        """The sum as an expression of `dtype`; it must fit into it."""
        total: Expr = const(0, dtype)
        for positive in (True, False):  # a - b reads better than b * -1 + a
            for term, coefficient in self.terms:
                if (coefficient > 0) is positive:
                    total = _added(total, term, coefficient, dtype)
        return _with_constant(total, self.constant, dtype)


def _added(total: Expr, term: Expr, coefficient: int, dtype: DType) -> Expr:
    product = binary("mul", as_dtype(term, dtype), const(abs(coefficient), dtype))
    if total == const(0, dtype) and coefficient > 0:
        return product
    return binary("add" if coefficient > 0 else "sub", total, product)


def _with_constant(total: Expr, constant: int, dtype: DType) -> Expr:
    if total == const(0, dtype):
        return const(constant, dtype)
    if constant < 0:
        return binary("sub", total, const(-constant, dtype))
    return binary("add", total, const(constant, dtype))
