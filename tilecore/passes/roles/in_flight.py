"""One iteration's contractions started where they stand and waited for only where they must be.

    gemm a; gemm b; work on a's sums; gemm c; work on b's sums; copy c's sums out
      ->
    start a; start b; until at most 1 runs; work on a's sums; start c; until at most 1 runs; work on
    b's sums; until none runs; copy c's sums out

Contractions end in the order in which they were started. One is waited for before a statement that
touches its sums or its operands in registers, or writes what it reads in memory; a slot of a ring
is released once its last reader has ended. Nothing runs on into the next iteration: a barrier
there finds all reads of this one done.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilecore.ir.buffers import Region, Scope
from tilecore.ir.expr import Expr, const
from tilecore.ir.stmts import Allocate, For, Gemm, Intrinsic, Stmt
from tilecore.ir.visit import buffers_in, walk_stmts
from tilecore.passes.producers import writes
from tilecore.passes.roles.ring import AFTER_LANES_READ, Group, read_by_lanes, rebuffered
from tilecore.passes.roles.schedule_pieces import RunsBeside, asynchronous, slots_of
from tilecore.passes.roles.storer_schedule import Leaving

FEWEST = 3
"""Contractions of a loop that is worth it: two have schedules of their own."""


@dataclass(slots=True)
class _Flight:
    """What has been started.

    Attributes:
        step: number of the iteration.
        running: contractions not waited for, oldest first.
        held: groups whose last reader has been started, with the readers that still run.
        body: the new iteration.
    """

    step: Expr
    running: list[Gemm] = field(default_factory=list)
    held: list[tuple[Group, list[Gemm]]] = field(default_factory=list)
    body: list[Stmt] = field(default_factory=list)

    def finish(self, count: int) -> None:
        """Wait for the oldest `count` contractions, and release what only they read."""
        if not count:
            return
        done, self.running = self.running[:count], self.running[count:]
        regions = [r for g in done for r in (g.c, g.a) if r.buffer.scope is Scope.FRAGMENT]
        distinct = tuple({r.buffer.name: r for r in regions}.values())
        args: tuple[Expr | Region, ...] = (const(len(self.running)), *distinct)
        self.body.append(Intrinsic("contraction.wait", args, (), done[-1].loc))
        self.release()

    def release(self) -> None:
        """Give back the slots that nothing reads any more."""
        for group, readers in [*self.held]:
            if not any(one is g for one in readers for g in self.running):
                self.body.append(group.ring.release(self.step, 0))
                self.held = [h for h in self.held if h[0] is not group]


def worth_it(loop: For, runs_beside: RunsBeside) -> bool:
    """True for a loop of several contractions, all of its own iteration and run by agents."""
    own = [s for s in loop.body if isinstance(s, Gemm)]
    inner = [s for s in walk_stmts(loop.body) if isinstance(s, Gemm)]
    return len(own) >= FEWEST and len(own) == len(inner) and all(map(runs_beside, own))


def in_flight_steps(
    loop: For, groups: list[Group], step: Expr, sent: list[Leaving] | None = None
) -> list[Stmt]:
    """One iteration of a loop that is `worth_it`, as step number `step` of its rings; additions
    that are `sent` are left to a storer. A slot of theirs is waited for while contractions run."""
    sent = sent or []
    taken = {id(copy) for group in groups for copy in group.copies}
    slots = slots_of(groups, step)
    flight = _Flight(step)
    by_lanes: set[int] = set()
    for index, stmt in enumerate(loop.body):
        if id(stmt) in taken or any(one.stmt is stmt for one in sent):
            continue
        flight.body += [one.ring.wait_empty(step) for one in sent if one.first == index]
        flight.finish(_oldest_to_wait_for(stmt, flight.running))
        flight.body += [g.ring.wait_full(step) for g in groups if g.first == index]
        new = rebuffered(stmt, slots)
        if isinstance(stmt, Gemm):
            assert isinstance(new, Gemm)
            new = asynchronous(new)
            flight.running.append(stmt)
        flight.body.append(new)
        flight.body += [s for one in sent if one.last == index for s in one.ring.hand_on(step)]
        for group in groups:
            buffers = {copy.dst.buffer for copy in group.copies}
            if read_by_lanes(stmt, buffers):
                by_lanes.add(id(group))
            if group.last == index:
                if id(group) in by_lanes:
                    flight.body += AFTER_LANES_READ
                readers = [g for g in flight.running if not buffers.isdisjoint(buffers_in((g,)))]
                flight.held.append((group, readers))
                flight.release()
    flight.finish(len(flight.running))
    return flight.body


def _oldest_to_wait_for(stmt: Stmt, running: list[Gemm]) -> int:
    """How many of the contractions that run must end before a statement."""
    count = 0
    for number, gemm in enumerate(running):
        if _disturbs(stmt, gemm):
            count = number + 1
    return count


def _disturbs(stmt: Stmt, gemm: Gemm) -> bool:
    touched = buffers_in((stmt,))
    if gemm.c.buffer in touched:
        return True
    if isinstance(stmt, Allocate):
        return False
    for operand in (gemm.a.buffer, gemm.b.buffer):
        if operand.scope is Scope.FRAGMENT and operand in touched and not isinstance(stmt, Gemm):
            return True
        if operand.scope is Scope.SHARED and writes(stmt, operand):
            return True
    return False
