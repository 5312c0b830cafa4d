"""What differs between the lanes of a block, in programs written per lane.

A name depends on the lane when its definition mentions the lane's index (`block.thread`), an
exchange between lanes, another such name, or a local buffer that was given such a value; a local
buffer also when it is written under a condition that depends on the lane.
"""

from __future__ import annotations

from collections.abc import Collection

from tilecore.ir import stmts as S
from tilecore.ir.buffers import Scope
from tilecore.ir.compound import is_small
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import (
    TRUE,
    Binary,
    Call,
    Expr,
    Load,
    Var,
    binary,
    mentioned,
    substitute,
)
from tilecore.ir.visit import exprs_of, walk_stmts

LANE_INDEX = "block.thread"
EXCHANGES = frozenset({
    "warp.shuffle", "warp.shuffle_xor", "warp.shuffle_up", "warp.shuffle_down", "warp.ballot",
})  # fmt: skip
"""Calls that bring a lane the values of others of its warp (``ir/README.md``)."""
LANE_CALLS = frozenset({LANE_INDEX, "lane.id"}) | EXCHANGES

WARP = 32
"""Lanes of a warp in the language, on every target: exchanges stay inside groups of 32 lanes."""


def mentions_lane(body: S.Block) -> bool:
    """True when a body asks for the lane's index in any form."""
    return _calls(body, LANE_CALLS)


def is_per_lane(body: S.Block) -> bool:
    """True when the author wrote a body per lane: with the lane's index, or with exchanges."""
    return _calls(body, LANE_CALLS - {"lane.id"})


def _calls(body: S.Block, ops: Collection[str]) -> bool:
    return any(
        isinstance(node, Call) and node.op in ops
        for stmt in walk_stmts(body)
        for top in exprs_of(stmt)
        for node in mentioned(top)
    )


def depends_on_lane(expr: Expr, names: Collection[str]) -> bool:
    """Whether lanes may disagree about `expr`; `names` are those that depend on the lane."""
    for node in mentioned(expr):
        if isinstance(node, Call) and node.op in LANE_CALLS:
            return True
        if isinstance(node, Var) and node.name in names:
            return True
        if isinstance(node, Load) and node.buffer.name in names:
            return True
    return False


def lane_dependent_names(body: S.Block) -> frozenset[str]:
    """Variables and local buffers of a block's body that may differ between lanes."""
    names: set[str] = set()
    while mentions_lane(body) and _spread(body, names, under=False):
        pass
    return frozenset(names)


def is_pure(expr: Expr) -> bool:
    """Whether an expression has one value wherever its variables have theirs."""
    return not any(
        isinstance(node, Load) or (isinstance(node, Call) and node.op in EXCHANGES)
        for node in mentioned(expr)
    )


def definitions_of(body: S.Block) -> dict[Var, Expr]:
    """What variables stand for, where that is computed from no memory.

    In terms of variables that stand for nothing, as long as that is not too large.
    """
    found: dict[Var, Expr] = {}
    for stmt in walk_stmts(body):
        if isinstance(stmt, S.Let) and is_pure(stmt.value):
            value = substitute(stmt.value, found)
            found[stmt.var] = value if is_small(value) else stmt.value
    return found


def parts_of_condition(
    condition: Expr, definitions: dict[Var, Expr], names: Collection[str]
) -> tuple[Expr, Expr] | None:
    """A condition as one on the lane's index alone, and one that is the same in all lanes.

    None when it is not the conjunction of two such: nobody can say ahead which lanes it chooses.
    """
    if isinstance(condition, Binary) and condition.op == "and":
        parts = [parts_of_condition(e, definitions, names) for e in condition.children]
        if parts[0] is None or parts[1] is None:
            return None
        (a_lane, a_same), (b_lane, b_same) = parts[0], parts[1]
        return binary("and", a_lane, b_lane), binary("and", a_same, b_same)
    if not depends_on_lane(condition, names):
        return TRUE, condition
    spelt = substitute(condition, definitions)
    if all(node == Call(LANE_INDEX, (), int32) or node.children for node in mentioned(spelt)):
        return spelt, TRUE
    return None


def conditions_of(stmt: S.Stmt) -> tuple[Expr, ...]:
    """What decides how often, or whether, the blocks nested in `stmt` run."""
    match stmt:
        case S.If(condition=condition) | S.While(condition=condition):
            return (condition,)
        case S.For(start=start, extent=extent, step=step):
            return (start, extent, step)
        case _:
            return ()


def nested_blocks(stmt: S.Stmt) -> tuple[S.Block, ...]:
    """Blocks at block scope nested directly in `stmt`: those of control flow."""
    match stmt:
        case S.If(then=then, otherwise=otherwise):
            return then, otherwise
        case S.For(body=body) | S.While(body=body) | S.WarpScope(body=body):
            return (body,)
        case _:
            return ()


def _spread(block: S.Block, names: set[str], under: bool) -> bool:
    """Add what depends on the lane; True when something was added."""
    before = len(names)
    for stmt in block:
        inside = under or any(depends_on_lane(c, names) for c in conditions_of(stmt))
        match stmt:
            case S.Let(var=var, value=value) if depends_on_lane(value, names):
                names.add(var.name)
            case S.Store(buffer=buffer, indices=indices, value=value):
                is_local = buffer.scope is Scope.LOCAL
                if is_local and (
                    under or any(depends_on_lane(e, names) for e in (*indices, value))
                ):
                    names.add(buffer.name)
            case S.Copy(src=src, dst=dst) if dst.buffer.scope is Scope.LOCAL:
                given = any(depends_on_lane(e, names) for e in (*src.starts, *dst.starts))
                if under or given or src.buffer.name in names:
                    names.add(dst.buffer.name)
            case S.Fill(dst=dst, value=value) if dst.buffer.scope is Scope.LOCAL:
                if under or any(depends_on_lane(e, names) for e in (value, *dst.starts)):
                    names.add(dst.buffer.name)
            case S.Reduce(src=src, dst=dst) | S.Scan(src=src, dst=dst):
                if dst.buffer.scope is Scope.LOCAL and (under or src.buffer.name in names):
                    names.add(dst.buffer.name)
            case S.Alias(buffer=buffer, source=source):
                if {buffer.name, source.name} & names:
                    names |= {buffer.name, source.name}
            case S.Atomic(previous=previous) if previous is not None:
                names.add(previous.name)  # every lane has its own turn
            case S.Allocate(buffer=buffer, init=init) if init is not None:
                if depends_on_lane(init, names):
                    names.add(buffer.name)
            case S.For(var=var) if inside and not under:
                names.add(var.name)
            case S.Parallel(body=body):
                _spread_nest(body, names)
            case _:
                pass
        for inner in nested_blocks(stmt):
            _spread(inner, names, inside)
    return len(names) > before


def _spread_nest(body: S.Block, names: set[str]) -> None:
    """Local buffers from outside a nest that its iterations write with a lane's values."""
    own = {s.buffer.name for s in walk_stmts(body) if isinstance(s, S.Allocate)}
    for stmt in walk_stmts(body):
        if isinstance(stmt, S.Store) and stmt.buffer.scope is Scope.LOCAL:
            values = (*stmt.indices, stmt.value)
            if stmt.buffer.name not in own and any(depends_on_lane(e, names) for e in values):
                names.add(stmt.buffer.name)


__all__ = [
    "EXCHANGES",
    "LANE_CALLS",
    "LANE_INDEX",
    "WARP",
    "conditions_of",
    "definitions_of",
    "depends_on_lane",
    "is_per_lane",
    "is_pure",
    "lane_dependent_names",
    "mentions_lane",
    "nested_blocks",
    "parts_of_condition",
]
