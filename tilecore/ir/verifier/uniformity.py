"""Block-wide statements must be reached by all lanes: no lane-dependent condition around them.

What depends on the lane is said in ``ir/lane_dependence.py``. A `Break` or `Continue` under such a
condition makes the rest of its loop one that not all lanes reach.
"""

from __future__ import annotations

from collections.abc import Collection

from tilecore.ir import stmts as S
from tilecore.ir.lane_dependence import (
    conditions_of,
    depends_on_lane,
    lane_dependent_names,
    mentions_lane,
    nested_blocks,
)
from tilecore.ir.verifier.state import State

_BLOCK_WIDE = (S.Parallel, S.Gemm, S.Reduce, S.Scan)


def check_uniform(body: S.Block, state: State) -> None:
    """No barrier and no block-wide tile statement under a lane-dependent condition.

    Raises:
        TilecoreError: of the class that `State.fail` chooses.
    """
    names = lane_dependent_names(body)
    if names or mentions_lane(body):
        _check(body, names, state, under=False)


def _check(block: S.Block, names: Collection[str], state: State, under: bool) -> None:
    for stmt in block:
        is_barrier = isinstance(stmt, S.Intrinsic) and stmt.op == "sync_block"
        if under and (is_barrier or isinstance(stmt, _BLOCK_WIDE)):
            what = "sync_block" if is_barrier else type(stmt).__name__
            state.loc = getattr(stmt, "loc", None) or state.loc
            state.fail(f"{what} under a condition that differs between lanes")
        inside = under or any(depends_on_lane(c, names) for c in conditions_of(stmt))
        for inner in nested_blocks(stmt):
            is_loop = isinstance(stmt, S.For | S.While)
            _check(inner, names, state, inside or (is_loop and _leaves_apart(inner, names, False)))


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
