"""What a team does when contractions are taken by turns (`take_turns`).

Tile t is that of team ``t % teams``. With two teams, each goes through its own tiles and, before
each, adds up the other's tile in front of it:

    team 0, tile 0:   scores; work; hand over; out += own weights
    own tile t > 0:   wait for what tile t - 1 left; out += its weights; release its slot
                      wait for the tile; scores; work; hand over; out += own weights; release
    if the last tile is the other's: wait for it; out += its weights

A team hands over by writing to shared memory and arriving at `ready`; its phase t is tile t. Since
a team hands tile t over when it is done with tile t - 1, what it overwrites is read by nobody.
Contractions of the two teams interleave: one's scores run under the other's work on them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import boolean
from tilecore.ir.expr import Call, Expr, Var, binary, const
from tilecore.ir.stmts import Block, Copy, For, Gemm, If, Intrinsic, LoopKind, Stmt
from tilecore.ir.visit import substitute_block
from tilecore.passes.memory_effects import ORDERS
from tilecore.passes.ring import Group, rebuffered
from tilecore.passes.schedule_pieces import asynchronous, renamed, slots_of, wait_for
from tilecore.passes.scopes import Names

TEAMS = 2
FIRST_LANE = Call("warp.first_lane", (), boolean)


@dataclass(frozen=True, slots=True)
class Turns:
    """The parts of a loop's body for one team.

    Attributes:
        loop: the loop.
        group: its copies.
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
    """

    loop: For
    group: Group
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
    leaving = next(
        k for k, s in enumerate(rest) if isinstance(s, Copy) and s.dst.buffer.scope is Scope.SHARED
    )
    work, leave = tuple(rest[:leaving]), tuple(rest[leaving:count])
    return Turns(loop, group, team, ready, lets, first, work, leave, tail, own, take, others)


def turns_loop(turns: Turns, names: Names) -> list[Stmt]:
    """All that a team does for the loop."""
    loop, team = turns.loop, turns.team
    dtype = loop.var.dtype
    zero, one, two = (const(k, dtype) for k in (0, 1, TEAMS))
    count = loop.extent
    some = binary("gt", count, zero)
    begins = binary("and", binary("eq", team, zero), some)
    start = binary("sub", two, team)
    later = binary("sub", count, start)
    rounds = binary("floordiv", binary("add", later, one), two)
    tile = Var(names.fresh(f"{loop.var.name}_own"), dtype)
    rest = For(
        tile, start, rounds, two, _step(turns, tile, names),
        LoopKind.SERIAL, None, loop.hints, loop.loc,
    )  # fmt: skip
    last = binary("sub", count, one)
    others_last = binary("ne", binary("floormod", last, two), team)
    ends = binary("and", some, others_last)
    return [
        If(begins, _own_tile(turns, zero, names)),
        rest,
        If(ends, (*_take(turns, last, names), wait_for(0, turns.others))),
    ]


def _step(turns: Turns, tile: Expr, names: Names) -> Block:
    before = binary("sub", tile, const(1, turns.loop.var.dtype))
    ring = turns.group.ring
    return (
        *_take(turns, before, names), wait_for(0, turns.others), ring.release(tile, -1),
        *_own_tile(turns, tile, names),
    )  # fmt: skip


def _take(turns: Turns, tile: Expr, names: Names) -> Block:
    """Add the other team's tile; its contraction is only started."""
    dtype = turns.loop.var.dtype
    phase = binary("bitand", tile, const(1, dtype))
    place = Region(turns.ready, (const(0),), (None,))
    # Teams hand over in turn, so that each wait orders all accesses of both before it.
    wait = Intrinsic("barrier.wait", (place, phase), ((ORDERS, True),))
    block = (*turns.take, *turns.tail)
    gemm = rebuffered(asynchronous(turns.others), slots_of([turns.group], tile))
    return (wait, *renamed(block, names), gemm)


def _own_tile(turns: Turns, tile: Expr, names: Names) -> Block:
    """One of the team's tiles, from its scores on."""
    loop, ring = turns.loop, turns.group.ring
    slots = slots_of([turns.group], tile)
    number = binary("add", loop.start, binary("mul", tile, loop.step))
    first = rebuffered(asynchronous(turns.first), slots)
    own = rebuffered(asynchronous(turns.own), slots)
    block: Block = (
        *turns.lets, ring.wait_full(tile), first, wait_for(0, turns.first), *turns.work,
        *turns.leave, *_hand_over(turns), *turns.tail, own, wait_for(0, turns.own, with_a=True),
        ring.release(tile, 0),
    )  # fmt: skip
    return renamed(substitute_block(block, {loop.var: number}), names)


def _hand_over(turns: Turns) -> Block:
    place = Region(turns.ready, (const(0),), (None,))
    arrive = If(FIRST_LANE, (Intrinsic("barrier.arrive", (place,)),))
    return (Intrinsic("memory.publish"), Intrinsic("sync_warp"), arrive)
