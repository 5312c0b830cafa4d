"""What consumer warps do in one pipelined loop: waits, contractions in flight, releases.

Four schedules, the first that fits:

  chained   one gemm, its accumulator touched by nothing else in the loop:
              wait full(k); gemm(k); wait for gemm(k - 1); release(k - 1)
  delayed   a gemm at the end runs under the next iteration's work (`delayed_schedule.py`)
  in flight three gemms or more, each started where it stands and waited for where it must be
            (`in_flight.py`)
  plain     every gemm is waited for where it stands
"""

from __future__ import annotations

from tilecore.hooks.records import PipelinePlan
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import Expr, binary, const
from tilecore.ir.stmts import Allocate, Copy, For, Gemm, If, Let, Stmt
from tilecore.ir.visit import buffers_in
from tilecore.passes.roles.delayed_schedule import Steps, delayed_loop
from tilecore.passes.roles.in_flight import in_flight_steps, worth_it
from tilecore.passes.roles.ring import AFTER_LANES_READ, Group, rebuffered
from tilecore.passes.roles.schedule_pieces import (
    RunsBeside,
    asynchronous,
    counted_loop,
    loop_value,
    slots_of,
    wait_for,
)
from tilecore.passes.roles.storer_schedule import Leaving
from tilecore.passes.scopes import Names


def consumer_loop(
    loop: For,
    groups: list[Group],
    runs_beside: RunsBeside,
    names: Names,
    plan: PipelinePlan,
    steps: Expr | None = None,
    sent: list[Leaving] | None = None,
) -> list[Stmt]:
    """The consumers' loop and what must stand around it.

    The schedule changes neither results nor their rounding: statements are only moved past others
    that touch none of their operands, and a plan that asks for more is not followed. `steps` is
    how many steps these warps take where the delayed schedule fits; None is all. `sent` are
    additions that a storer makes, in a loop whose contractions are in flight.
    """
    taken = {id(copy) for group in groups for copy in group.copies}
    if is_chain(loop, groups, runs_beside):
        return _chained(loop, groups[0], taken)
    counter = groups[0].ring.counter
    delayed = (
        None if sent else delayed_loop(loop, groups, runs_beside, names, plan, Steps(None, steps))
    )
    if delayed:
        return delayed
    if worth_it(loop, runs_beside):
        body = in_flight_steps(loop, groups, counter, sent)
    else:
        body = plain_steps(loop, groups, runs_beside, counter, sent)
    steps_made = binary("max", const(0, counter.dtype), loop.extent)
    # Shared memory that tiles left from may be used otherwise behind the last addition.
    after = [one.ring.wait_empty(steps_made) for one in sent or ()]
    return [counted_loop(loop, counter, [*loop_value(loop, counter), *body]), *after]


def reads_first(loop: For, buffer: Buffer) -> bool:
    """True when the first gemm of a loop, and nothing else in it, reads `buffer`, by itself."""
    readers = [s for s in loop.body if buffer in buffers_in((s,)) and not isinstance(s, Allocate)]
    gemms = [s for s in loop.body if isinstance(s, Gemm)]
    return len(readers) == 1 and readers[0] is gemms[0]


def plain_steps(
    loop: For,
    groups: list[Group],
    runs_beside: RunsBeside,
    step: Expr,
    sent: list[Leaving] | None = None,
) -> list[Stmt]:
    """The plain schedule of one iteration, which is step number `step` of its rings; a storer makes
    the additions that are `sent`."""
    sent = sent or []
    taken = {id(copy) for group in groups for copy in group.copies}
    slots = slots_of(groups, step)
    body: list[Stmt] = []
    for index, stmt in enumerate(loop.body):
        if id(stmt) in taken or any(one.stmt is stmt for one in sent):
            continue
        body += [one.ring.wait_empty(step) for one in sent if one.first == index]
        body += [g.ring.wait_full(step) for g in groups if g.first == index]
        body.append(rebuffered(stmt, slots))
        body += [s for one in sent if one.last == index for s in one.ring.hand_on(step)]
        for group in groups:
            if group.last == index:
                if group.first != index or not (isinstance(stmt, Gemm) and runs_beside(stmt)):
                    body += AFTER_LANES_READ
                body.append(group.ring.release(step, 0))
    return body


# --- one gemm ------------------------------------------------------------------------------------


def is_chain(loop: For, groups: list[Group], runs_beside: RunsBeside) -> bool:
    """True when a loop is one gemm on copied operands and nothing else."""
    gemms = [s for s in loop.body if isinstance(s, Gemm)]
    others = [s for s in loop.body if not isinstance(s, Copy | Gemm | Let)]
    copies = [s for s in loop.body if isinstance(s, Copy)]
    if len(gemms) != 1 or others or len(groups) != 1 or len(copies) != len(groups[0].copies):
        return False
    return runs_beside(gemms[0]) and gemms[0].a.buffer.scope is Scope.SHARED


def _chained(loop: For, group: Group, taken: set[int]) -> list[Stmt]:
    ring = group.ring
    counter = ring.counter
    slots = slots_of([group], counter)
    body = loop_value(loop, counter)
    after: list[Stmt] = []
    for stmt in loop.body:
        if id(stmt) in taken:
            continue
        new = rebuffered(stmt, slots)
        if isinstance(new, Gemm):
            body += [ring.wait_full(counter), asynchronous(new), wait_for(1, new)]
            earlier = binary("gt", counter, const(0, counter.dtype))
            body.append(If(earlier, (ring.release(counter, -1),)))
            after.append(wait_for(0, new))
        else:
            body.append(new)
    return [counted_loop(loop, counter, body), *after]
