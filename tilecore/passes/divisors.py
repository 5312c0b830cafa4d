"""What is known to divide an integer index expression."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilecore.ir.expr import Binary, Cast, Const, Expr, Select, Var, dtype_of_expr
from tilecore.passes.bounds import linear


def divisor(expr: Expr, known: Mapping[str, int] | None = None) -> int:
    """The largest number known to divide `expr`; 0 for the constant 0.

    `known` gives divisors of variables by name, besides their own ``multiple_of``.
    """
    form = linear(expr)
    result = abs(form.constant)
    for term, coefficient in form.terms:
        result = math.gcd(result, coefficient * _divisor_of_term(term, known or {}))
    return result


def _divisor_of_term(term: Expr, known: Mapping[str, int]) -> int:
    match term:
        case Var(name=name, multiple_of=multiple):
            return math.lcm(multiple, known.get(name, 1))
        case Binary(op="mul", a=a, b=b):
            return divisor(a, known) * divisor(b, known)
        case Binary(op="floormod" | "min" | "max", a=a, b=b):
            return math.gcd(divisor(a, known), divisor(b, known)) or 1
        case Binary(op="floordiv", a=a, b=Const(value=value)) if value > 0:
            top = divisor(a, known)
            return top // int(value) if top and top % int(value) == 0 else 1
        case Select(a=a, b=b):
            return math.gcd(divisor(a, known), divisor(b, known)) or 1
        case Cast(a=a) if dtype_of_expr(a).is_int:
            return divisor(a, known) or 1
        case _:
            return 1
