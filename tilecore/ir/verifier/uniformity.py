"""Barriers must be reached by all lanes: no lane-dependent condition around them.

Statements of the whole block may stand under a condition on the lane's index (`lane_branches` says
who does them), but not under one that nobody can decide ahead, nor in loops of differing length.
What depends on the lane is said in ``ir/lane_dependence.py``. A `Break` or `Continue` under such a
condition makes the rest of its loop one that not all lanes reach.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tilecore.errors import LanguageError
from tilecore.ir import stmts as S
from tilecore.ir.attached import ATTACH
from tilecore.ir.expr import Expr, Var
from tilecore.ir.lane_dependence import (
    conditions_of,
    definitions_of,
    depends_on_lane,
    lane_dependent_names,
    mentions_lane,
    nested_blocks,
    parts_of_condition,
)
from tilecore.ir.program import Level
from tilecore.ir.verifier.state import State
from tilecore.ir.visit import destinations, exprs_of, names_in, walk_stmts

_BLOCK_WIDE = (S.Parallel, S.Gemm, S.Reduce, S.Scan)
_WRITTEN: dict[type, str] = {
    S.Parallel: "T.Parallel",
    S.Gemm: "T.gemm",
    S.Reduce: "T.reduce",
    S.Scan: "T.cumsum",
}


def check_uniform(body: S.Block, state: State) -> None:
    """No barrier under a lane-dependent condition; tile statements only where all can join.

    Raises:
        TilecoreError: of the class that `State.fail` chooses.
    """
    names = lane_dependent_names(body)
    if names or mentions_lane(body):
        _Check(names, definitions_of(body), state).block(body, False, False)


@dataclass(frozen=True, slots=True)
class _Check:
    names: frozenset[str]
    definitions: dict[Var, Expr]
    state: State

    def block(self, block: S.Block, under: bool, apart: bool) -> None:
        """`under` a lane-dependent condition; `apart` where lanes cannot come together."""
        for stmt in block:
            is_barrier = isinstance(stmt, S.Intrinsic) and stmt.op == "sync_block"
            if (under and is_barrier) or (apart and isinstance(stmt, _BLOCK_WIDE)):
                what = _WRITTEN.get(type(stmt), "T.sync_threads")
                self.state.loc = getattr(stmt, "loc", None) or self.state.loc
                self.state.fail(
                    f"{what} under a condition that differs between lanes",
                    "a place that all lanes of the block reach",
                    "one that some may not: end the condition before it, and begin it again after",
                )
            if isinstance(stmt, S.Parallel) and self.state.level is Level.TILE:
                self.nest(stmt)
            if isinstance(stmt, S.Intrinsic) and stmt.op == ATTACH:
                self.state.loc = stmt.loc or self.state.loc
                if under or any(depends_on_lane(e, self.names) for e in exprs_of(stmt)):
                    self.state.fail("the address of a tensor differs between lanes")
            differs = any(depends_on_lane(c, self.names) for c in conditions_of(stmt))
            away = apart or (differs and not self.may_join(stmt))
            for inner in nested_blocks(stmt):
                is_loop = isinstance(stmt, S.For | S.While)
                leaves = is_loop and _leaves_apart(inner, self.names, False)
                self.block(inner, under or differs or leaves, away or leaves)

    def nest(self, nest: S.Parallel) -> None:
        """Which lane runs an iteration is not defined: what lanes have of their own has no meaning
        in one."""
        for stmt in walk_stmts((nest,)):
            used = [e for e in exprs_of(stmt) if depends_on_lane(e, self.names)]
            own = {buffer.name for buffer in destinations(stmt)} & self.names
            if not used and not own:
                continue
            name = next(iter(sorted(own or names_in(used) & self.names)), "the lane's index")
            raise LanguageError(
                f"what the block does together depends on {name}, which differs between lanes",
                expected="the same in all lanes",
                got=f"{name} in T.Parallel",
                loc=getattr(stmt, "loc", None) or nest.loc,
                hint="use the element's index in T.Parallel instead of the lane's",
            )

    def may_join(self, stmt: S.Stmt) -> bool:
        """Whether lanes that a condition leaves out may help with the block's statements."""
        if not isinstance(stmt, S.If) or self.state.level is not Level.TILE:
            return False
        return parts_of_condition(stmt.condition, self.definitions, self.names) is not None


def _leaves_apart(block: S.Block, names: Collection[str], under: bool) -> bool:
    """True when some lanes may leave the loop around `block`, or skip its rest, before others."""
    for stmt in block:
        if isinstance(stmt, S.Break | S.Continue) and under:
            return True
        if isinstance(stmt, S.If | S.WarpScope):
            inside = under or any(depends_on_lane(c, names) for c in conditions_of(stmt))
            if any(_leaves_apart(inner, names, inside) for inner in nested_blocks(stmt)):
                return True
    return False
