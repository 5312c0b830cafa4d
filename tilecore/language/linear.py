"""Linear forms of index expressions: what is ``b - a`` when both contain the same terms?

Used for slices, ``A[i * 64 : (i + 1) * 64]`` has the constant extent 64, and to prove extents
equal. Integer arithmetic wraps, so the algebra holds for every value.
"""

from __future__ import annotations

from tilecore.ir.compound import nodes_of
from tilecore.ir.expr import Binary, Const, Expr, Unary, Var, binary, const
from tilecore.language.builder import current_or_none
from tilecore.language.operators import dtype_of, same_index_dtype

Terms = dict[Expr, int]


def linear_terms(expr: Expr) -> tuple[Terms, int]:
    """`expr` as a sum of coefficient * term, plus a constant. Terms are not further split."""
    terms: Terms = {}
    constant = _collect(expr, 1, terms, {})
    return {term: factor for term, factor in terms.items() if factor}, constant


def _collect(expr: Expr, factor: int, terms: Terms, known: dict[Expr, tuple[Terms, int]]) -> int:
    """Add ``factor * expr`` to `terms`; give back the constant part.

    `known` are the sums of names that were looked through, which others mention again.
    """
    match expr:
        case Const(value=value):
            return factor * int(value)
        case Binary(op="add", a=a, b=b):
            left = _collect(a, factor, terms, known)
            return left + _collect(b, factor, terms, known)
        case Binary(op="sub", a=a, b=b):
            left = _collect(a, factor, terms, known)
            return left + _collect(b, -factor, terms, known)
        case Binary(op="mul", a=a, b=Const(value=value)):
            return _collect(a, factor * int(value), terms, known)
        case Unary(op="neg", a=a):
            return _collect(a, -factor, terms, known)
        case _:
            named = _named_value(expr)
            if named is None:
                terms[expr] = terms.get(expr, 0) + factor
                return 0
            if expr not in known:
                inner: Terms = {}
                known[expr] = inner, _collect(named, 1, inner, known)
            inner, constant = known[expr]
            for term, count in inner.items():
                terms[term] = terms.get(term, 0) + factor * count
            return factor * constant


def _named_value(expr: Expr) -> Expr | None:
    """What a name stands for, so that ``start = i * 64`` does not hide equal terms."""
    builder = current_or_none()
    if builder is None or not isinstance(expr, Var):
        return None
    return builder.let_values.get(expr.name)


def difference(a: Expr, b: Expr) -> Expr:
    """``a - b`` with equal terms cancelled."""
    a, b = same_index_dtype(a, b)
    terms: Terms = {}
    known: dict[Expr, tuple[Terms, int]] = {}
    constant = _collect(a, 1, terms, known) + _collect(b, -1, terms, known)
    if not any(terms.values()):
        return const(constant, dtype_of(a))
    plain = binary("sub", a, b)
    left = {term: factor for term, factor in terms.items() if factor}
    rebuilt = _rebuild(left, constant, dtype_of(a))
    return rebuilt if nodes_of(rebuilt) < nodes_of(plain) else plain


def _rebuild(terms: Terms, constant: int, dtype: object) -> Expr:
    result: Expr | None = None
    for term, factor in sorted(terms.items(), key=lambda item: item[1] < 0):
        scaled = binary("mul", term, const(abs(factor), dtype))  # type: ignore[arg-type]
        if result is None:
            result = scaled if factor > 0 else Unary("neg", scaled, dtype_of(scaled))
        else:
            result = binary("add" if factor > 0 else "sub", result, scaled)
    offset = const(abs(constant), dtype)  # type: ignore[arg-type]
    if result is None:
        return const(constant, dtype)  # type: ignore[arg-type]
    return binary("add" if constant >= 0 else "sub", result, offset)


def is_equal(a: Expr, b: Expr) -> bool:
    """True when two index expressions are equal for every value of their variables."""
    if a == b:
        return True
    rest = difference(a, b)
    return isinstance(rest, Const) and rest.value == 0
