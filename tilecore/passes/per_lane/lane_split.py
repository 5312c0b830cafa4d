"""Programs written per lane: what stays at block scope when lanes run in turn.

Barriers, statements of the whole block and exchanges between lanes end a lane's turn. The control
flow around them has to stand outside the loops over lanes, and with it whatever decides about that
control flow: those variables are kept once for the block, so they must be the same in all lanes.

    u = alloc_var(); for k in range(u): { x += s[k]; sync_block() }

Here the loop, `k` and `u` stay outside; `x` is a lane's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tilecore.ir import stmts as S
from tilecore.ir.buffers import Scope
from tilecore.ir.expr import Call, Expr
from tilecore.ir.lane_dependence import (
    EXCHANGES,
    conditions_of,
    depends_on_lane,
    lane_dependent_names,
    nested_blocks,
)
from tilecore.ir.visit import exprs_of, names_in, regions_of, walk_stmts

_OF_THE_BLOCK = (S.Parallel, S.Copy, S.Fill, S.Gemm, S.Reduce, S.Scan, S.Intrinsic)


@dataclass(slots=True)
class Split:
    """The division of one kernel's body.

    Attributes:
        varying: names that may differ between lanes.
        declared: variables and local buffers that the body declares, by name.
        once: those of them that are kept once for the block.
        apart: identities of the statements that stand outside the loops over lanes.
    """

    varying: frozenset[str]
    declared: frozenset[str] = frozenset()
    once: set[str] = field(default_factory=set)
    apart: set[int] = field(default_factory=set)

    def is_apart(self, stmt: S.Stmt) -> bool:
        """Whether a statement stands outside the loops over lanes."""
        return id(stmt) in self.apart

    def varies(self, exprs: Iterable[Expr]) -> bool:
        """Whether lanes may disagree about one of the expressions."""
        return any(depends_on_lane(expr, self.varying) for expr in exprs)


def split_body(body: S.Block) -> Split:
    """Find the statements that stay at block scope, and the names that they need there."""
    split = Split(lane_dependent_names(body), frozenset(_declared(body)))
    before = -1
    while before != len(split.apart) + len(split.once):
        before = len(split.apart) + len(split.once)
        for stmt in body:
            _visit(stmt, split, None, False)
    return split


def exchange_of(stmt: S.Stmt) -> Call | None:
    """The exchange between lanes that a `Let` consists of."""
    if isinstance(stmt, S.Let) and isinstance(stmt.value, Call) and stmt.value.op in EXCHANGES:
        return stmt.value
    return None


def is_of_the_block(stmt: S.Stmt) -> bool:
    """A statement that all lanes do together."""
    return isinstance(stmt, _OF_THE_BLOCK) or (
        isinstance(stmt, S.Atomic) and isinstance(stmt.value, S.Region)
    )


def mentioned(stmt: S.Stmt) -> set[str]:
    """Every name in a statement and its nested blocks."""
    names: set[str] = set()
    for inner in walk_stmts((stmt,)):
        names |= names_in(exprs_of(inner)) | {r.buffer.name for r in regions_of(inner)}
        if isinstance(inner, S.Store | S.Allocate | S.Alias):
            names.add(inner.buffer.name)
        if isinstance(inner, S.Alias):
            names.add(inner.source.name)
    return names


def _declared(body: S.Block) -> Iterator[str]:
    for stmt in walk_stmts(body):
        match stmt:
            case S.Let(var=var) | S.For(var=var):
                yield var.name
            case S.Allocate(buffer=buffer) if buffer.scope is Scope.LOCAL:
                yield buffer.name
            case S.Atomic(previous=previous) if previous is not None:
                yield previous.name
            case _:
                pass


def _visit(stmt: S.Stmt, split: Split, loop: S.Stmt | None, under: bool) -> bool:
    """Mark `stmt` and what is nested in it; whether it stands apart."""
    inside = under or split.varies(conditions_of(stmt))
    around = stmt if isinstance(stmt, S.For | S.While) else loop
    nested = [
        _visit(inner, split, around, inside) for block in nested_blocks(stmt) for inner in block
    ]
    if not (any(nested) or _is_apart_itself(stmt, split, loop, under)):
        return False
    split.apart.add(id(stmt))
    split.once |= _needed(stmt, split) & split.declared
    return True


def _is_apart_itself(stmt: S.Stmt, split: Split, loop: S.Stmt | None, under: bool) -> bool:
    match stmt:
        case S.Let(var=var):
            return var.name in split.once or exchange_of(stmt) is not None
        case S.Allocate(buffer=buffer):
            return buffer.scope is not Scope.LOCAL or buffer.name in split.once
        case S.Store(buffer=buffer, indices=indices, value=value):
            if buffer.scope is Scope.LOCAL:
                return buffer.name in split.once
            return not under and not split.varies((*indices, value))  # once for the block
        case S.Break() | S.Continue():
            return loop is not None and split.is_apart(loop)
        case S.For(var=var):
            return var.name in split.once
        case S.Print(value=value):
            return not under and (isinstance(value, S.Region) or not split.varies(exprs_of(stmt)))
        case S.Alias() | S.WarpScope():
            return True
        case _:
            return is_of_the_block(stmt)


def _needed(stmt: S.Stmt, split: Split) -> set[str]:
    """Names that a statement outside the loops over lanes reads there."""
    match stmt:
        case S.If(condition=condition):
            return set() if split.varies((condition,)) else names_in((condition,))
        case S.While(condition=condition):
            return set() if is_masked_loop(stmt, split) else names_in((condition,))
        case S.For(var=var):
            if is_masked_loop(stmt, split):
                return set()
            return names_in(conditions_of(stmt)) | {var.name}
        case S.WarpScope() | S.Break() | S.Continue():
            return set()
        case S.Let() if exchange_of(stmt) is not None:
            return set()
        case S.Let(var=var, value=value):
            return names_in((value,)) | {var.name}
        case _:
            return mentioned(stmt)


def is_masked_loop(stmt: S.For | S.While, split: Split) -> bool:
    """A loop around exchanges whose rounds differ between lanes."""
    return split.varies(conditions_of(stmt)) or _leaves_apart(stmt.body, split, False)


def _leaves_apart(block: S.Block, split: Split, under: bool) -> bool:
    for stmt in block:
        if isinstance(stmt, S.Break | S.Continue) and under:
            return True
        if isinstance(stmt, S.If):
            inside = under or split.varies((stmt.condition,))
            if any(_leaves_apart(inner, split, inside) for inner in nested_blocks(stmt)):
                return True
    return False
