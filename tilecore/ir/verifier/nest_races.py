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
from tilecore.ir.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Select,
    Var,
    free_vars,
    mentioned,
    substitute,
)
from tilecore.ir.expr_text import format_expr
from tilecore.ir.lane_dependence import definitions_of
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
    places = _Places(extents, definitions_of(nest.body), _named_in(nest.body))
    loads: dict[Load, None] = {}
    for stmt in nest.body:
        if isinstance(stmt, S.Store | S.Let):
            indices = stmt.indices if isinstance(stmt, S.Store) else ()
            for top in (*indices, stmt.value):
                loads.update(dict.fromkeys(_certain_loads(top, written)))
    for store in stores:
        for load in loads:
            if load.buffer.name == store.buffer.name:
                places.compare(store, load)


def _named_in(body: S.Block) -> frozenset[Var]:
    """Names that each iteration gives a value of its own."""
    return frozenset(stmt.var for stmt in walk_stmts(body) if isinstance(stmt, S.Let | S.For))


def _certain_loads(expr: Expr, written: set[str]) -> Iterator[Load]:
    """Loads of these buffers that happen whenever the expression is evaluated."""
    if not any(isinstance(e, Load) and e.buffer.name in written for e in mentioned(expr)):
        return
    if isinstance(expr, Load) and expr.buffer.name in written:
        yield expr
    lazy = isinstance(expr, Select) or (isinstance(expr, Binary) and expr.op in ("and", "or"))
    for child in expr.children[:1] if lazy else expr.children:
        yield from _certain_loads(child, written)


Apart = dict[Var, int | None]
"""By how much the variables of iterations that meet differ; None stands for any amount."""


@dataclass(frozen=True, slots=True)
class _Places:
    """Places that iterations of a nest touch.

    Attributes:
        extents: of the nest's variables.
        definitions: what names of the nest stand for, where that reads no memory.
        named: all names of the nest: one without a definition differs as nobody knows.
    """

    extents: dict[Var, int]
    definitions: dict[Var, Expr]
    named: frozenset[Var]

    def compare(self, store: S.Store, load: Load) -> None:
        """Refuse a store and a load of one buffer by which iterations meet for certain."""
        met = self._meeting(store.indices, load.indices)
        if met is None:
            return
        written, read = (_place(store.buffer, at) for at in (store.indices, load.indices))
        free = [var.name for var, amount in met.items() if amount is None]
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

    def _meeting(self, stored: Sequence[Expr], loaded: Sequence[Expr]) -> Apart | None:
        """Different iterations that surely meet; None where there are none, or nobody can say."""
        apart: Apart = dict.fromkeys(var for var, extent in self.extents.items() if extent > 1)
        for to, source in zip(stored, loaded, strict=True):
            a, b = self._sum(to), self._sum(source)
            steps, gap = self._steps(a), b.plus(a, -1)
            if steps is None or steps != self._steps(b) or gap.terms:
                return None
            if not steps:
                if gap.constant:
                    return None
                continue
            ((var, step),) = steps.items()
            amount, rest = divmod(gap.constant, step)
            seen = apart.get(var)
            if rest or abs(amount) >= self.extents[var] or (seen is not None and seen != amount):
                return None
            if var in apart:
                apart[var] = amount
        return apart if any(amount != 0 for amount in apart.values()) else None

    def _sum(self, index: Expr) -> Linear:
        return Ranges().regrouped(substitute(index, self.definitions))

    def _steps(self, form: Linear) -> dict[Var, int] | None:
        """The one variable of the nest in a sum, with its factor; None for other forms."""
        found: dict[Var, int] = {}
        for term, coefficient in form.terms:
            if isinstance(term, Var) and term in self.extents:
                found[term] = coefficient
            elif self._differs(term):
                return None
        return found if len(found) < 2 else None

    def _differs(self, term: Expr) -> bool:
        """Whether iterations may disagree about a term."""
        names = free_vars(term)
        if any(var in self.extents or var in self.named for var in names):
            return True
        return any(isinstance(one, Load) for one in mentioned(term))


def _place(buffer: Buffer, indices: Sequence[Expr]) -> str:
    return f"{buffer.name}[{', '.join(map(format_expr, indices))}]"
