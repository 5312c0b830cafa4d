"""Waits at barriers that some lanes reach, where a block is executed in the order of its program.

A target that runs a block's lanes one after another, or that has all lanes of the block help with
what some of them were asked for, keeps the order of the text. A wait that only some lanes reach is
satisfied there when its arrivals stand before it, or in an earlier round of a loop that both are
in. Any other wait would never end, or would not be one. Who meets at a named barrier waits and
arrives; lanes of one condition meet one another wherever that condition stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilecore.errors import UnsupportedError
from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Region
from tilecore.ir.expr import Const, Expr
from tilecore.ir.lane_dependence import conditions_of, depends_on_lane, lane_dependent_names
from tilecore.ir.visit import child_blocks

WAIT, ARRIVALS = "barrier.wait", ("barrier.arrive", "barrier.arrive_expect")
MEETING = ("named_barrier.sync", "named_barrier.arrive")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an operation on a barrier stands.

    Attributes:
        stmt: the operation.
        barrier: its buffer, or its number.
        around: the statements and branches around it, outermost first, by identity.
        loops: which of those are loops.
        apart: position in `around` of the first that only some lanes reach; None without one.
        lanes: what chooses the lanes that reach it; the same for the same lanes.
    """

    stmt: S.Intrinsic
    barrier: Buffer | Expr
    around: tuple[int, ...]
    loops: tuple[bool, ...]
    apart: int | None
    lanes: object


def refuse_waits_out_of_order(
    body: S.Block, runs_at_once: Callable[[S.Stmt], bool] = lambda _: False
) -> None:
    """Raise for a wait that execution in the order of the text cannot satisfy.

    Args:
        body: of a kernel.
        runs_at_once: asked of the outermost statement around a wait that only some lanes reach:
            whether its branches are executed at the same time, by the lanes that take them.

    Raises:
        UnsupportedError: with the wait's place.
    """
    names = lane_dependent_names(body)

    def divides(stmt: S.Stmt) -> bool:
        if isinstance(stmt, S.WarpScope):
            return True
        return any(depends_on_lane(one, names) for one in conditions_of(stmt))

    parents: dict[int, S.Stmt] = {}
    places = list(_places(body, divides, (), (), None, None, parents))
    for at, wait in enumerate(places):
        if wait.stmt.op not in (WAIT, MEETING[0]) or wait.apart is None:
            continue
        at_once = runs_at_once(parents[wait.around[wait.apart]])
        arrivals = [
            _satisfies(place, wait, earlier=k < at, at_once=at_once)
            or (wait.stmt.op != WAIT and place.lanes == wait.lanes)
            for k, place in enumerate(places)
            if place.stmt.op != WAIT and place.barrier == wait.barrier
        ]
        waits = wait.stmt.op == WAIT
        if not (any(arrivals) or _passes_at_first(wait) if waits else all(arrivals)):
            name = getattr(wait.barrier, "name", "a named barrier")
            raise UnsupportedError(
                "warps that wait for one another are not supported here",
                expected="arrivals that stand before the wait, in the order of the text",
                got=f"a wait at {name} whose arrivals come later",
                loc=wait.stmt.loc,
                hint="T.Pipelined has the compiler plan who loads and who computes",
            )


def _places(
    block: S.Block,
    divides: Callable[[S.Stmt], bool],
    around: tuple[int, ...],
    loops: tuple[bool, ...],
    apart: int | None,
    lanes: object,
    parents: dict[int, S.Stmt],
) -> Iterator[_Place]:
    for stmt in block:
        if isinstance(stmt, S.Intrinsic) and stmt.op in (WAIT, *ARRIVALS, *MEETING):
            place = stmt.args[0]
            barrier = place.buffer if isinstance(place, Region) else place
            yield _Place(stmt, barrier, around, loops, apart, lanes)
        is_first = apart is None and divides(stmt)
        inside = len(around) if is_first else apart
        parents[id(stmt)] = stmt
        for k, inner in enumerate(child_blocks(stmt)):
            chosen = (_choice(stmt), k) if is_first else lanes
            steps = (*around, id(stmt), id(inner))
            turns = (*loops, isinstance(stmt, S.For | S.While), False)
            yield from _places(inner, divides, steps, turns, inside, chosen, parents)


def _choice(stmt: S.Stmt) -> object:
    match stmt:
        case S.If(condition=condition):
            return condition
        case S.WarpScope(first=first, last=last):
            return first, last
        case _:
            return id(stmt)


def _satisfies(arrival: _Place, wait: _Place, *, earlier: bool, at_once: bool) -> bool:
    """Whether an arrival happens before the wait needs it, when the text's order is kept."""
    apart = wait.apart
    assert apart is not None
    common = 0
    for one, other in zip(arrival.around, wait.around, strict=False):
        if one != other:
            break
        common += 1
    if common > apart + (not at_once):  # the same lanes, in their own order; or those beside them
        return True
    if any(wait.loops[apart:]):  # rounds that wait for rounds of other lanes
        return False
    return earlier or any(wait.loops[: min(common, apart)])


def _passes_at_first(wait: _Place) -> bool:
    """A wait for the phase before the first one, which nobody waits for in fact."""
    parity = wait.stmt.args[1]
    return isinstance(parity, Const) and int(parity.value) == 1 and not any(wait.loops)
