"""What a team does when contractions are taken by turns (`take_turns`).

Tile t is that of team ``t % teams``. With two teams, each goes through its own tiles and, before
each, adds up the other's tile in front of it:

    team 0, tile 0:   scores; work; hand over; out += own weights
    own tile t > 0:   wait for what tile t - 1 left; out += its weights; release its slot
                      wait for the tile; scores; work; hand over; out += own weights; release
    if the last tile is the other's: wait for it; out += its weights

A team hands over by writing to shared memory and arriving at `ready`; its phase t is tile t. Since
a team hands tile t over when it is done with tile t - 1, what it overwrites is read by nobody.

Where slots are filled and released in two parts, one for the columns that each team adds up, team 1
starts its scores first, and adds up the other's tile behind them, under its work on the scores:
what one team waits for then runs beside what the other does. With three slots or more both teams
do so: a tile stays longer, and the next one has a place already. Scores of one team then run under
all work of the other.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import FALSE, Expr, Var, binary, const
from tilecore.ir.stmts import Block, Copy, For, Gemm, If, Intrinsic, LoopKind, Parallel, Stmt
from tilecore.ir.visit import substitute_block
from tilecore.passes.lowering.lower_memory_contraction import GOES_ON, STAYS_OPEN
from tilecore.passes.lowering.skip_scaling import FLYING
from tilecore.passes.memory_effects import ORDERS
from tilecore.passes.roles.ring import FIRST_LANE, Group, point, rebuffered
from tilecore.passes.roles.schedule_pieces import asynchronous, renamed, slots_of, wait_for
from tilecore.passes.scopes import Names, static, with_hint
from tilecore.passes.turns.team_columns import columns_of
from tilecore.passes.turns.teams import TEAMS

SLOTS_FOR_BOTH = 3
"""Slots from which on both teams start their scores before they add up the other's tile."""


@dataclass(frozen=True, slots=True)
class Turns:
    """The parts of a loop's body for one team.

    Attributes:
        loop: the loop.
        groups: its copies: one group, or one a team for the columns that the team adds up.
        team: the team's number.
        ready: the barrier whose phase t says that tile t was handed over.
        lets: scalars of a tile.
        first: the contraction that makes scores.
        work: what is done with them.
        leave: copies of what is handed over.
        tail: work on the result before a tile is added.
        own: the contraction that adds the team's own tile.
        take: copies of what the other team handed over.
        others: the contraction that adds the other's tile.
        held: the last columns of `first` with the left operand in registers, if there are such.
    """

    loop: For
    groups: tuple[Group, ...]
    team: Var
    ready: Buffer
    lets: Block
    first: Gemm
    work: Block
    leave: Block
    tail: Block
    own: Gemm
    take: Block
    others: Gemm
    held: Gemm | None = None


def turns_of(loop: For, group: Group, team: Var, ready: Buffer) -> Turns:
    """The parts of a loop as `take_turns` writes it."""
    branch = loop.body[-1]
    assert isinstance(branch, If)
    taken = {id(copy) for copy in group.copies}
    lets = tuple(s for s in loop.body[:-1] if id(s) not in taken)
    first, *rest, own = branch.then
    *middle, others = branch.otherwise
    assert isinstance(first, Gemm) and isinstance(own, Gemm) and isinstance(others, Gemm)
    take = tuple(s for s in middle if isinstance(s, Copy))
    tail = tuple(s for s in middle if not isinstance(s, Copy))
    count = len(rest) - len(tail)
    to_shared = [isinstance(s, Copy) and s.dst.buffer.scope is Scope.SHARED for s in rest]
    leaving = to_shared.index(True)
    work, leave = tuple(rest[:leaving]), tuple(rest[leaving:count])
    return Turns(loop, (group,), team, ready, lets, first, work, leave, tail, own, take, others)


def turns_loop(turns: Turns, names: Names) -> list[Stmt]:
    """All that a team does for the loop."""
    loop, team = turns.loop, turns.team
    dtype = loop.var.dtype
    zero, one, two = (const(k, dtype) for k in (0, 1, TEAMS))
    count = loop.extent
    some = binary("gt", count, zero)
    first_team = binary("eq", team, zero)
    last = binary("sub", count, one)
    others_last = binary("ne", binary("floormod", last, two), team)
    ends = binary("and", some, others_last)
    begin_block = _own_tile(turns, zero, names)
    end = If(ends, (*_take(turns, last, names), wait_for(0, turns.others)))
    if len(turns.groups) == 1:
        begin = If(binary("and", first_team, some), begin_block)
        return [begin, _steps(turns, binary("sub", two, team), False, names), end]
    both = turns.groups[0].ring.slots >= SLOTS_FOR_BOTH
    one_first = (If(some, begin_block), _steps(turns, two, both, names))
    other = (_steps(turns, one, True, names),)
    return [If(first_team, one_first, other), end]


def _steps(turns: Turns, start: Expr, scores_first: bool, names: Names) -> For:
    """A team's own tiles from `start` on, each with the other's tile in front of it."""
    loop = turns.loop
    dtype = loop.var.dtype
    one, two = (const(k, dtype) for k in (1, TEAMS))
    rounds = binary("floordiv", binary("add", binary("sub", loop.extent, start), one), two)
    tile = Var(names.fresh(f"{loop.var.name}_own"), dtype)
    before = binary("sub", tile, one)
    take = _take(turns, before, names, scores_first)
    done = (wait_for(0, turns.others), _release(turns, tile, -1))
    if scores_first:
        body = _own_tile(turns, tile, names, take, done)
    else:
        body = (*take, *done, *_own_tile(turns, tile, names))
    return For(tile, start, rounds, two, body, LoopKind.SERIAL, None, loop.hints, loop.loc)


def _take(turns: Turns, tile: Expr, names: Names, scores_fly: bool = False) -> Block:
    """Add the other team's tile; its contraction is only started, maybe behind that of scores."""
    dtype = turns.loop.var.dtype
    phase = binary("bitand", tile, const(1, dtype))
    place = point(turns.ready, const(0))
    # Teams hand over in turn, so that each wait orders all accesses of both before it.
    wait = Intrinsic("barrier.wait", (place, phase), ((ORDERS, True),))
    tail = turns.tail
    if scores_fly:
        scores = turns.first.c.buffer.name
        tail = tuple(
            dataclasses.replace(s, hints=with_hint(s.hints, FLYING, scores))
            for s in turns.tail
            if isinstance(s, Parallel)
        )
    block = (*turns.take, *tail)
    gemm = rebuffered(asynchronous(turns.others), slots_of(list(turns.groups[:1]), tile))
    return (wait, *renamed(block, names), gemm)


def _own_tile(
    turns: Turns, tile: Expr, names: Names, behind: Block = (), done: Block = ()
) -> Block:
    """One of the team's tiles, from its scores on.

    `behind` starts a contraction behind the scores, which runs under the work on them; `done`
    waits for it.
    """
    loop = turns.loop
    number = binary("add", loop.start, binary("mul", tile, loop.step))
    own = rebuffered(asynchronous(turns.own), slots_of(list(turns.groups[:1]), tile))
    scored = wait_for(1 if behind else 0, turns.first)
    settled = (Intrinsic("contraction.settle", (turns.own.a,)), *done) if behind else ()

    def placed(block: Block) -> Block:
        return renamed(substitute_block(block, {loop.var: number}), names)

    before: Block = (*turns.lets, *_scores(turns, tile))
    after: Block = (
        scored, *turns.work, *settled, *turns.leave, *_hand_over(turns), *turns.tail, own,
        wait_for(0, turns.own, with_a=True), _release(turns, tile, 0),
    )  # fmt: skip
    # `behind` is another tile's: its numbers are not this one's.
    mark = len(before)
    whole = placed((*before, *after))
    return (*whole[:mark], *behind, *whole[mark:])


def _scores(turns: Turns, tile: Expr) -> Block:
    """The contraction that makes scores, started as the parts of its slot are there."""
    slots = slots_of(list(turns.groups[:1]), tile)
    parts = _score_parts(turns, tile)
    result: list[Stmt] = []
    for number, (arrived, gemm) in enumerate(parts):
        for hint, wanted in ((GOES_ON, number > 0), (STAYS_OPEN, number < len(parts) - 1)):
            if wanted:
                gemm = dataclasses.replace(gemm, hints=with_hint(gemm.hints, hint, True))
        if number:
            gemm = dataclasses.replace(gemm, clear_accum=FALSE)
        result += [*arrived, rebuffered(gemm, slots)]
    return tuple(result)


def _score_parts(turns: Turns, tile: Expr) -> list[tuple[Block, Gemm]]:
    """The parts of the scores' contraction, each with what it waits for: those of the slot, the
    last of them without the columns that are held, and these."""
    first = asynchronous(turns.first)
    if len(turns.groups) == 1 and turns.held is None:
        return [((turns.groups[0].ring.wait_full(tile),), first)]
    width = static(first.a)[-1]
    ends = [width]
    if len(turns.groups) > 1:
        ends = [static(turns.groups[0].copies[0].dst)[-1], width]
    from_memory = width if turns.held is None else width - static(turns.held.a)[-1]
    parts: list[tuple[Block, Gemm]] = []
    begin = 0
    for group, end in zip(turns.groups, ends, strict=True):
        arrived = (group.ring.wait_full(tile),)
        count = min(end, from_memory) - begin
        if count > 0:
            a, b = (columns_of(operand, const(begin), count) for operand in (first.a, first.b))
            parts.append((arrived, dataclasses.replace(first, a=a, b=b)))
            arrived = ()
        if end == width and turns.held is not None:
            parts.append((arrived, asynchronous(turns.held)))
        begin = end
    return parts


def _release(turns: Turns, tile: Expr, offset: int) -> Stmt:
    """The team is done with the slot of tile ``tile + offset``, or with its part of it."""
    releases = [group.ring.release(tile, offset) for group in turns.groups]
    if len(releases) == 1:
        return releases[0]
    return If(binary("eq", turns.team, const(0)), (releases[0],), (releases[1],))


def _hand_over(turns: Turns) -> Block:
    place = point(turns.ready, const(0))
    arrive = If(FIRST_LANE, (Intrinsic("barrier.arrive", (place,)),))
    return (Intrinsic("memory.publish"), Intrinsic("sync_warp"), arrive)
