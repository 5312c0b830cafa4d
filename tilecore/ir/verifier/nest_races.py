"""Iterations of a `Parallel` that meet in one element for certain.

Iterations have no order, so an element that one writes and another one reads has no value that the
program says. What is refused here is what nobody can mean: a store that every iteration does and a
read that every iteration does, where indices alone say that two iterations meet. Under a condition,
in a loop, or with indices that lie in memory nobody can say ahead; the emulator looks at those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilecore.errors import LanguageError
from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import Binary, Const, Expr, Load, Select, Var, free_vars, mentioned
from tilecore.ir.expr_text import format_expr
from tilecore.ir.linear import Linear
from tilecore.ir.ranges import Ranges
from tilecore.ir.visit import walk_stmts


def check_nest_races(body: S.Block) -> None:
    """Refuse nests whose iterations meet for certain.

    Raises:
        LanguageError: with the line of the store, and both places.
    """
    for stmt in walk_stmts(body):
        if isinstance(stmt, S.Parallel):
            _check(stmt)


def _check(nest: S.Parallel) -> None:
    extents = {
        var: int(extent.value)
        for var, extent in zip(nest.vars, nest.extents, strict=True)
        if isinstance(extent, Const)
    }
    if len(extents) < len(nest.vars) or max(extents.values(), default=0) < 2:
        return
    stores = [s for s in nest.body if isinstance(s, S.Store) and s.buffer.scope is not Scope.LOCAL]
    written = {store.buffer.name for store in stores}
    if not written:
        return
    loads: dict[Load, S.Stmt] = {}
    for stmt in nest.body:
        if isinstance(stmt, S.Store | S.Let):
            indices = stmt.indices if isinstance(stmt, S.Store) else ()
            for top in (*indices, stmt.value):
                for load in _certain_loads(top, written):
                    loads.setdefault(load, stmt)
    for store in stores:
        for load in loads:
            if load.buffer.name == store.buffer.name:
                _compare(store, load, extents)


def _certain_loads(expr: Expr, written: set[str]) -> Iterator[Load]:
    """Loads of these buffers that happen whenever the expression is evaluated."""
    if not any(isinstance(e, Load) and e.buffer.name in written for e in mentioned(expr)):
        return
    if isinstance(expr, Load) and expr.buffer.name in written:
        yield expr
    lazy = isinstance(expr, Select) or (isinstance(expr, Binary) and expr.op in ("and", "or"))
    for child in expr.children[:1] if lazy else expr.children:
        yield from _certain_loads(child, written)


@dataclass(frozen=True, slots=True)
class _Apart:
    """Iterations that meet: by how much their variables differ; None stands for any amount."""

    by: dict[Var, int | None]


def _compare(store: S.Store, load: Load, extents: dict[Var, int]) -> None:
    met = _meeting(store.indices, load.indices, extents)
    if met is None:
        return
    written, read = (_place(store.buffer, at) for at in (store.indices, load.indices))
    free = [var.name for var, amount in met.by.items() if amount is None]
    if free:
        hint = "a total belongs in T.reduce_sum, T.alloc_reducer or T.atomic_add"
        got = f"{written} read and written whatever {' and '.join(free)} is"
    else:
        hint = "write the results to another buffer, and T.copy them back after the loop"
        got = f"{written} written, and {read} read by another iteration"
    raise LanguageError(
        f"iterations of T.Parallel meet in one element of {store.buffer.name}",
        expected="iterations that do not touch what another one writes: they have no order",
        got=got,
        hint=hint,
        loc=store.loc,
    )


def _place(buffer: Buffer, indices: Sequence[Expr]) -> str:
    return f"{buffer.name}[{', '.join(map(format_expr, indices))}]"


def _meeting(
    stored: Sequence[Expr], loaded: Sequence[Expr], extents: dict[Var, int]
) -> _Apart | None:
    """Different iterations that surely meet; None where there are none, or nobody can say."""
    ranges = Ranges()
    apart: dict[Var, int | None] = dict.fromkeys(v for v, n in extents.items() if n > 1)
    for to, source in zip(stored, loaded, strict=True):
        a, b = ranges.regrouped(to), ranges.regrouped(source)
        steps = _steps(a, extents)
        gap = b.plus(a, -1)
        if steps is None or steps != _steps(b, extents) or gap.terms:
            return None
        if not steps:
            if gap.constant:
                return None
            continue
        ((var, step),) = steps.items()
        amount, rest = divmod(gap.constant, step)
        seen = apart.get(var)
        if rest or abs(amount) >= extents[var] or (seen is not None and seen != amount):
            return None
        if var in apart:
            apart[var] = amount
    return _Apart(apart) if any(amount != 0 for amount in apart.values()) else None


def _steps(form: Linear, extents: dict[Var, int]) -> dict[Var, int] | None:
    """The one variable of the nest in a sum, with its factor; None for what has another form."""
    found: dict[Var, int] = {}
    for term, coefficient in form.terms:
        if isinstance(term, Var) and term in extents:
            found[term] = coefficient
        elif any(var in extents for var in free_vars(term)) or _reads_memory(term):
            return None
    return found if len(found) < 2 else None


def _reads_memory(term: Expr) -> bool:
    return any(isinstance(one, Load) for one in mentioned(term))
