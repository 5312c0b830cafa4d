"""What consumer warps do in one pipelined loop: waits, contractions in flight, releases.

Three schedules, the first that fits:

  chained   one gemm, its accumulator touched by nothing else in the loop:
              wait full(k); gemm(k); wait for gemm(k - 1); release(k - 1)
  delayed   a gemm at the end that the plan puts one stage later, and whose result is needed late:
            it runs under the next iteration's work
              gemm_first(k); gemm_last(k - 1); wait for gemm_first; release its slot; work that
              touches no operand of gemm_last; wait for gemm_last; release its slot; the other work
              (iteration 0 stands before the loop, gemm_last of the last one after it)
  plain     every gemm is waited for where it stands
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from tilecore.hooks.records import PipelinePlan
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import Expr, Load, Var, binary, const, walk
from tilecore.ir.stmts import (
    Allocate,
    Atomic,
    Block,
    Copy,
    For,
    Gemm,
    If,
    Intrinsic,
    Let,
    LoopKind,
    Parallel,
    Stmt,
)
from tilecore.ir.visit import buffers_in, exprs_of, substitute_block, walk_stmts
from tilecore.passes.ring import Group, rebuffered
from tilecore.passes.scopes import Names, with_hint

RunsBeside = Callable[[Gemm], bool]
"""Whether a gemm's atom runs beside the warps that issue it."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Which steps the warps take in the delayed schedule.

    Attributes:
        base: number of the first one; None where the slots are not used again after the loop.
        taken: how many of the loop's; None is all.
        after_first: what can be done once the first gemm of the last one has read its operands.
    """

    base: Expr | None
    taken: Expr | None = None
    after_first: Block = ()


def consumer_loop(
    loop: For,
    groups: list[Group],
    runs_beside: RunsBeside,
    names: Names,
    plan: PipelinePlan,
    steps: Expr | None = None,
) -> list[Stmt]:
    """The consumers' loop and what must stand around it.

    The schedule changes neither results nor their rounding: statements are only moved past others
    that touch none of their operands, and a plan that asks for more is not followed. `steps` is
    how many steps these warps take where the delayed schedule fits; None is all.
    """
    taken = {id(copy) for group in groups for copy in group.copies}
    if is_chain(loop, groups, runs_beside):
        return _chained(loop, groups[0], taken)
    delayed = _delayed_parts(loop, groups, plan, runs_beside)
    if delayed is not None:
        return _delayed(loop, delayed, names, Steps(None, steps))
    counter = groups[0].ring.counter
    body = [*_head(loop, counter), *plain_steps(loop, groups, runs_beside, counter)]
    return [_loop(loop, counter, body)]


def delayed_tile(
    loop: For,
    groups: list[Group],
    runs_beside: RunsBeside,
    names: Names,
    plan: PipelinePlan,
    base: Expr,
    steps: Expr | None = None,
    after_first: Block = (),
) -> list[Stmt]:
    """The delayed schedule of a loop whose steps are numbered from `base`; empty if it has none.

    Args:
        loop, groups, runs_beside, names, plan: as for `consumer_loop`.
        base: number of the loop's first step.
        steps: how many of the loop's steps these warps take; they only release the others. None
            is all.
        after_first: what can be done once the first gemm of the last step has read its operands.
    """
    delayed = _delayed_parts(loop, groups, plan, runs_beside)
    if delayed is None:
        return []
    return _delayed(loop, delayed, names, Steps(base, steps, after_first))


def reads_first(loop: For, buffer: Buffer) -> bool:
    """True when the first gemm of a loop, and nothing else in it, reads `buffer`, by itself."""
    readers = [s for s in loop.body if buffer in buffers_in((s,)) and not isinstance(s, Allocate)]
    gemms = [s for s in loop.body if isinstance(s, Gemm)]
    return len(readers) == 1 and readers[0] is gemms[0]


def later_group(
    loop: For, groups: list[Group], runs_beside: RunsBeside, plan: PipelinePlan
) -> Group | None:
    """The group that `consumer_loop` reads one iteration late, if it does."""
    delayed = _delayed_parts(loop, groups, plan, runs_beside)
    return None if delayed is None else delayed.last_group


def plain_steps(loop: For, groups: list[Group], runs_beside: RunsBeside, step: Expr) -> list[Stmt]:
    """The plain schedule of one iteration, which is step number `step` of its rings."""
    taken = {id(copy) for group in groups for copy in group.copies}
    slots = slots_of(groups, step)
    body: list[Stmt] = []
    for index, stmt in enumerate(loop.body):
        if id(stmt) in taken:
            continue
        body += [g.ring.wait_full(step) for g in groups if g.first == index]
        body.append(rebuffered(stmt, slots))
        for group in groups:
            if group.last == index:
                if group.first != index or not (isinstance(stmt, Gemm) and runs_beside(stmt)):
                    # Lanes read, each in its own time; one of them releases for all.
                    body.append(Intrinsic("sync_warp"))
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
    body = _head(loop, counter)
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
    return [_loop(loop, counter, body), *after]


# --- the last gemm one iteration late ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Delayed:
    """The parts of a loop's body for the delayed schedule.

    Attributes:
        lets: scalar definitions at its begin.
        allocates: declarations of registers, moved in front of the loop.
        first, last: the two contractions, with the groups that they read (None: none).
        early: work that touches no operand of `last`.
        late: work that does.
    """

    lets: tuple[Let, ...]
    allocates: tuple[Allocate, ...]
    first: Gemm
    first_group: Group | None
    last: Gemm
    last_group: Group
    early: Block
    late: Block


def _last_is_later(loop: For, taken: set[int], plan: PipelinePlan) -> bool:
    """True when the plan puts the last statement one stage after all that stays before it."""
    stages = [
        stage
        for stage, stmt in zip(plan.stage, loop.body, strict=True)
        if id(stmt) not in taken and not isinstance(stmt, Let | Allocate)
    ]
    return len(stages) > 1 and set(stages[:-1]) == {stages[-1] - 1}


def _delayed_parts(
    loop: For, groups: list[Group], plan: PipelinePlan, runs_beside: RunsBeside
) -> _Delayed | None:
    taken = {id(copy) for group in groups for copy in group.copies}
    if not _last_is_later(loop, taken, plan):
        return None
    staying = [(k, s) for k, s in enumerate(loop.body) if id(s) not in taken]
    gemms = [(k, s) for k, s in staying if isinstance(s, Gemm)]
    inner = [s for s in walk_stmts(loop.body) if isinstance(s, Gemm)]
    if len(gemms) != 2 or len(inner) != 2 or staying[-1][0] != gemms[1][0]:
        return None
    (first_at, first), (last_at, last) = gemms
    if not (runs_beside(first) and runs_beside(last)) or last.a.buffer.scope is not Scope.FRAGMENT:
        return None
    first_group = next((g for g in groups if g.first == g.last == first_at), None)
    last_group = next((g for g in groups if g.first == g.last == last_at), None)
    if last_group is None or len(groups) != 1 + (first_group is not None):
        return None
    operands = {last.a.buffer.name, last.c.buffer.name}
    if operands & {region.buffer.name for region in (first.a, first.b, first.c)}:
        return None
    before = [s for k, s in staying if k < first_at]
    between = [s for k, s in staying if first_at < k < last_at]
    lets = tuple(s for s in before if isinstance(s, Let))
    allocates = tuple(s for s in (*before, *between) if isinstance(s, Allocate))
    if any(not isinstance(s, Let | Allocate) for s in before):
        return None
    if any(a.buffer.scope not in (Scope.FRAGMENT, Scope.LOCAL) or a.init for a in allocates):
        return None
    if any(isinstance(s, Allocate) for s in walk_stmts(tuple(between)) if s not in allocates):
        return None
    work = [s for s in between if not isinstance(s, Allocate)]
    late_at = next((n for n, s in enumerate(work) if _touches(s, operands)), len(work))
    early, late = tuple(work[:late_at]), tuple(work[late_at:])
    scalars = (*lets, *(s for s in between if isinstance(s, Let)))
    if not _is_fixed(last, {loop.var.name} | {s.var.name for s in scalars}):
        return None
    return _Delayed(lets, allocates, first, first_group, last, last_group, early, late)


def _touches(stmt: Stmt, names: set[str]) -> bool:
    return any(buffer.name in names for buffer in buffers_in((stmt,)))


def _is_fixed(gemm: Gemm, bound: set[str]) -> bool:
    """True when a gemm's places and conditions are the same an iteration later."""
    return not any(
        isinstance(node, Load) or (isinstance(node, Var) and node.name in bound)
        for expr in exprs_of(gemm)
        for node in walk(expr)
    )


def _delayed(loop: For, parts: _Delayed, names: Names, steps: Steps) -> list[Stmt]:
    ring = parts.last_group.ring
    counter = ring.counter
    dtype = counter.dtype
    zero, one = const(0, dtype), const(1, dtype)
    again = steps.base is not None or steps.taken is not None
    base = zero if steps.base is None else steps.base
    extent = loop.extent if steps.taken is None else steps.taken
    exists = binary("gt", extent, zero)

    def iteration(at: Expr, delayed: bool) -> Block:
        return _iteration(parts, at, extent, base, delayed, steps.after_first)

    rest = For(
        counter, one, binary("sub", extent, one), one,
        (*_head(loop, counter), *iteration(counter, delayed=True)),
        LoopKind.SERIAL, None, loop.hints, loop.loc,
    )  # fmt: skip
    first = substitute_block(iteration(zero, delayed=False), {loop.var: loop.start})
    first = renamed(first, names)
    last_step = binary("add", base, binary("sub", extent, one))
    final: Block = (ring.wait_full(last_step), _at(parts.last, parts.last_group, last_step))
    if again:
        final = (*final, ring.release(last_step, 0))
    result: list[Stmt] = [*parts.allocates, If(exists, first, steps.after_first), rest]
    result.append(If(exists, final))
    if steps.taken is not None:
        result.append(_released(loop, parts, names, base, steps.taken))
    return result


def _released(loop: For, parts: _Delayed, names: Names, base: Expr, taken: Expr) -> For:
    """The loop's steps from `taken` on: what they would read is given back when it is there."""
    at = Var(names.fresh(f"{loop.var.name}_unused"), loop.var.dtype)
    step = binary("add", base, at)
    groups = [g for g in (parts.first_group, parts.last_group) if g is not None]
    body = [s for g in groups for s in (g.ring.wait_full(step), g.ring.release(step, 0))]
    count = binary("sub", loop.extent, taken)
    return For(at, taken, count, const(1, loop.var.dtype), tuple(body), loc=loop.loc)


def _iteration(
    parts: _Delayed, at: Expr, extent: Expr, base: Expr, delayed: bool, after_first: Block = ()
) -> Block:
    """One iteration; `delayed` says that the iteration before left its last gemm undone.

    Slots and turns of the rings follow the number of the step, ``base + at``.
    """
    dtype = at.dtype  # type: ignore[attr-defined]
    one = const(1, dtype)
    step = binary("add", base, at)
    ring, first_ring = parts.last_group.ring, parts.first_group and parts.first_group.ring
    result: list[Stmt] = [*parts.lets]
    if first_ring is not None and not delayed:
        result.append(first_ring.wait_full(step))
    result.append(asynchronous(_at(parts.first, parts.first_group, step)))
    if delayed:
        before = binary("add", base, binary("sub", at, one))
        result.append(ring.wait_full(before))
        result.append(asynchronous(_at(parts.last, parts.last_group, before)))
    result.append(wait_for(1 if delayed else 0, parts.first))
    if first_ring is not None:
        result.append(first_ring.release(step, 0))
    result += parts.early
    result.append(Intrinsic("contraction.settle", (parts.first.c,)))
    after = binary("add", at, one)
    wait: Block = ()
    if first_ring is not None:
        # Needed at the begin of the next iteration; as a branch it keeps the work above in front
        # of the wait below.
        wait = (first_ring.wait_full(binary("add", base, after)),)
    if wait or after_first:
        result.append(If(binary("lt", after, extent), wait, after_first))
    if delayed:
        result.append(wait_for(0, parts.last, with_a=True))
        result.append(ring.release(step, -1))
    return (*result, *parts.late)


def renamed(block: Block, names: Names) -> Block:
    """A second copy of a block, with new names for all that it binds."""
    mapping: dict[Var, Expr] = {}
    for stmt in walk_stmts(block):
        bound: tuple[Var, ...] = ()
        match stmt:
            case For(var=var) | Let(var=var):
                bound = (var,)
            case Parallel(vars=variables):
                bound = variables
            case Atomic(previous=Var() as var):
                bound = (var,)
            case _:
                pass
        for var in bound:
            mapping[var] = dataclasses.replace(var, name=names.fresh(var.name))
    return substitute_block(block, mapping)


# --- pieces --------------------------------------------------------------------------------------


def slots_of(groups: list[Group], step: Expr) -> dict[str, tuple[Buffer, Expr]]:
    """By name of the author's buffer: the buffer with slots, and the slot of step number `step`."""
    return {
        buffer.name: (buffer, group.ring.slot_of(step))
        for group in groups
        for buffer in group.ring.buffers
    }


def _at(gemm: Gemm, group: Group | None, step: Expr) -> Gemm:
    """A gemm on the slots of iteration `step`."""
    new = gemm if group is None else rebuffered(gemm, slots_of([group], step))
    assert isinstance(new, Gemm)
    return new


def _head(loop: For, counter: Var) -> list[Stmt]:
    if counter == loop.var:
        return []
    value = binary("add", loop.start, binary("mul", counter, loop.step))
    return [Let(loop.var, value, loop.loc)]


def _loop(loop: For, counter: Var, body: list[Stmt]) -> For:
    dtype = loop.var.dtype
    return For(
        counter, const(0, dtype), loop.extent, const(1, dtype), tuple(body),
        LoopKind.SERIAL, None, loop.hints, loop.loc,
    )  # fmt: skip


def asynchronous(gemm: Gemm) -> Gemm:
    """The gemm, started only."""
    return dataclasses.replace(gemm, hints=with_hint(gemm.hints, "asynchronous", True))


def wait_for(pending: int, gemm: Gemm, with_a: bool = False) -> Stmt:
    """Until at most `pending` contractions run; `gemm` is then finished, and its operands free."""
    regions = (gemm.c, gemm.a) if with_a else (gemm.c,)
    return Intrinsic("contraction.wait", (const(pending), *regions), (), gemm.loc)
