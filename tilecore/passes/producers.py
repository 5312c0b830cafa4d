"""Copies that run ahead in a pipelined loop: their order, their groups, and what they depend on."""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.hooks.records import PipelinePlan
from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Var
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import Allocate, Block, Copy, For, Let, Parallel, Stmt
from tilecore.ir.visit import buffers_in, child_blocks, walk_stmts
from tilecore.passes.async_copies import Way
from tilecore.passes.memory_effects import READ, Effect, box_of, steps_of
from tilecore.passes.scopes import is_whole


@dataclass(frozen=True, slots=True)
class Producer:
    """A copy that runs ahead.

    Attributes:
        index: its place in the loop's body.
        copy: the statement.
        way: how it is issued.
        distance: iterations ahead.
        slots: slots of its destination.
    """

    index: int
    copy: Copy
    way: Way
    distance: int
    slots: int


def sequence(body: Block, producers: list[Producer], plan: PipelinePlan) -> list[int]:
    """The order of one steady iteration: what stays keeps its order, what runs ahead is issued
    before the first statement that the plan puts after it."""
    ahead = {p.index for p in producers}
    staying = [k for k in range(len(body)) if k not in ahead]
    result: list[int] = []
    waiting = sorted(ahead, key=lambda k: plan.order[k])
    for k in staying:
        while waiting and all(
            plan.order[other] > plan.order[waiting[0]] for other in staying[staying.index(k) :]
        ):
            result.append(waiting.pop(0))
        result.append(k)
    return result + waiting


def last_stage(loop: For, plan: PipelinePlan) -> int:
    """The stage that copies run ahead of.

    A plan for producer warps that did not come about may still tell stages of the consumers' work
    apart: copies then run ahead of the first of these.
    """
    if plan.producer_warps:
        work = [
            stage
            for stage, stmt in zip(plan.stage, loop.body, strict=True)
            if not isinstance(stmt, Copy | Let | Allocate)
        ]
        return min(work, default=0)
    return max(plan.stage, default=0)


def is_issued_first(producer: Producer, order: list[int], body: Block) -> bool:
    """True when the copy is issued before this iteration's readers of its destination."""
    target = producer.copy.dst.buffer
    readers = [
        order.index(k) for k, s in enumerate(body) if k != producer.index and mentions(s, target)
    ]
    return order.index(producer.index) < min(readers, default=len(order))


def mentions(stmt: Stmt, buffer: Buffer) -> bool:
    """True when `stmt` touches `buffer` (declaring it does not count)."""
    return not isinstance(stmt, Allocate) and buffer in buffers_in((stmt,))


def groups_of(producers: list[Producer], order: list[int], body: Block) -> list[list[Producer]]:
    """Producers that are issued right after one another, and at one distance, together."""
    own = {p.index: p for p in producers}
    groups: list[list[Producer]] = []
    joined = False
    for index in order:
        if index not in own:
            joined = joined and isinstance(body[index], Allocate | Let)
        elif joined and groups[-1][0].distance == own[index].distance:
            groups[-1].append(own[index])
        else:
            groups.append([own[index]])
            joined = True
    return groups


def is_used_outside(block: Block, loop_var: Var, target: Buffer) -> bool:
    """True when a statement outside the loop of `loop_var` touches `target`."""
    for stmt in block:
        if isinstance(stmt, Allocate) or (isinstance(stmt, For) and stmt.var == loop_var):
            continue
        inner = child_blocks(stmt)
        if not inner or isinstance(stmt, Parallel):
            if target in buffers_in((stmt,)):
                return True
        elif any(is_used_outside(one, loop_var, target) for one in inner):
            return True
    return False


def brings_all(body: Block, index: int, ranges: Ranges) -> bool:
    """True when a loop reads nothing of the tile of its copy `index` but what that just brought.

    What it reads before the copy, or beside it, an earlier round brought: that tile has one place.
    """
    copy = body[index]
    assert isinstance(copy, Copy)
    target = copy.dst.buffer
    if any(target in buffers_in((stmt,)) for stmt in body[:index]):
        return False
    if is_whole(copy.dst):
        return True
    filled = box_of(copy.dst, ranges)
    return all(
        filled.holds(step.box, ranges)
        for stmt in walk_stmts(body[index + 1 :])
        for step in steps_of(stmt, ranges)
        if isinstance(step, Effect) and step.box.buffer.name == target.name
    )


def writes(stmt: Stmt, buffer: Buffer) -> bool:
    """True when `stmt` writes to `buffer`."""
    return any(
        isinstance(step, Effect) and step.kind != READ and step.box.buffer.name == buffer.name
        for inner in walk_stmts((stmt,))
        for step in steps_of(inner, Ranges())
    )


def any_writes(body: Block, buffer: Buffer) -> bool:
    """True when a statement of `body` writes to `buffer`."""
    return any(writes(stmt, buffer) for stmt in body)
