"""Block-wide statements must be reached by all lanes: no lane-dependent condition around them.

A variable depends on the lane when its definition mentions the lane's index, another such
variable, or a local buffer that was given such a value; a local buffer also when it is written
under a lane-dependent condition.
"""

from __future__ import annotations

from tilecore.ir import stmts as S
from tilecore.ir.buffers import Scope
from tilecore.ir.expr import Call, Expr, Load, Var, walk
from tilecore.ir.verifier.state import State
from tilecore.ir.visit import walk_stmts

_LANE_CALLS = frozenset({"block.thread", "lane.id"})
_BLOCK_WIDE = (S.Parallel, S.Gemm, S.Reduce, S.Scan)


def check_uniform(body: S.Block, state: State) -> None:
    """No barrier and no block-wide tile statement under a lane-dependent condition.

    Raises:
        TilecoreError: of the class that `State.fail` chooses.
    """
    lane_dependent: set[str] = set()
    while _spread(body, lane_dependent, under=False):
        pass
    if lane_dependent or _mentions_lane(body):
        _check(body, lane_dependent, state, under=False)


def _mentions_lane(body: S.Block) -> bool:
    from tilecore.ir.visit import exprs_of

    return any(
        isinstance(node, Call) and node.op in _LANE_CALLS
        for stmt in walk_stmts(body)
        for top in exprs_of(stmt)
        for node in walk(top)
    )


def _depends(expr: Expr, names: set[str]) -> bool:
    for node in walk(expr):
        if isinstance(node, Call) and node.op in _LANE_CALLS:
            return True
        if isinstance(node, Var) and node.name in names:
            return True
        if isinstance(node, Load) and node.buffer.name in names:
            return True
    return False


def _conditions(stmt: S.Stmt) -> tuple[Expr, ...]:
    match stmt:
        case S.If(condition=condition) | S.While(condition=condition):
            return (condition,)
        case S.For(start=start, extent=extent):
            return (start, extent)
        case _:
            return ()


def _spread(block: S.Block, names: set[str], under: bool) -> bool:
    """Add what depends on the lane; True when something was added."""
    before = len(names)
    for stmt in block:
        inside = under or any(_depends(c, names) for c in _conditions(stmt))
        match stmt:
            case S.Let(var=var, value=value) if _depends(value, names):
                names.add(var.name)
            case S.Store(buffer=buffer, indices=indices, value=value):
                is_local = buffer.scope is Scope.LOCAL
                if is_local and (under or any(_depends(e, names) for e in (*indices, value))):
                    names.add(buffer.name)
            case S.Atomic(previous=previous) if previous is not None:
                names.add(previous.name)  # every lane has its own turn
            case S.Allocate(buffer=buffer, init=init) if init is not None:
                if _depends(init, names):
                    names.add(buffer.name)
            case S.For(var=var) if inside and not under:
                names.add(var.name)
            case S.Parallel():
                continue
            case _:
                pass
        for inner in _inner(stmt):
            _spread(inner, names, inside)
    return len(names) > before


def _inner(stmt: S.Stmt) -> tuple[S.Block, ...]:
    match stmt:
        case S.If(then=then, otherwise=otherwise):
            return then, otherwise
        case S.For(body=body) | S.While(body=body) | S.WarpScope(body=body):
            return (body,)
        case _:
            return ()


def _check(block: S.Block, names: set[str], state: State, under: bool) -> None:
    for stmt in block:
        is_barrier = isinstance(stmt, S.Intrinsic) and stmt.op == "sync_block"
        if under and (is_barrier or isinstance(stmt, _BLOCK_WIDE)):
            what = "sync_block" if is_barrier else type(stmt).__name__
            state.loc = getattr(stmt, "loc", None) or state.loc
            state.fail(f"{what} under a condition that differs between lanes")
        inside = under or any(_depends(c, names) for c in _conditions(stmt))
        for inner in _inner(stmt):
            _check(inner, names, state, inside)
