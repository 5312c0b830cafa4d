"""Consumers' loops whose last contraction runs one iteration late, under the next one's work.

    gemm_first(k); what only scales the result, of k - 1; gemm_last(k - 1); wait for gemm_first;
    release its slot; work that touches no operand of gemm_last; wait for gemm_last; release its
    slot; the other work
    (iteration 0 stands before the loop, gemm_last of the last one after it)

Applies where the plan puts the gemm at the end one stage later, and its result is needed late.
Nests on that result alone, like the rescale of a running softmax, may be one stage later, too: they
then run beside gemm_first, which would else be started after them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilecore.hooks.records import PipelinePlan
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Expr, Load, Var, binary, const, walk
from tilecore.ir.stmts import (
    Allocate,
    Block,
    For,
    Gemm,
    If,
    Intrinsic,
    Let,
    LoopKind,
    Parallel,
    Stmt,
)
from tilecore.ir.visit import (
    buffers_in,
    destinations,
    exprs_of,
    names_in,
    substitute_block,
    walk_stmts,
)
from tilecore.passes.lowering.count_slots import COUNTED
from tilecore.passes.lowering.skip_scaling import FACTORS_APART
from tilecore.passes.roles.ring import Group
from tilecore.passes.roles.schedule_pieces import (
    RunsBeside,
    asynchronous,
    loop_value,
    on_slots,
    renamed,
    wait_for,
)
from tilecore.passes.scopes import Names, with_hint


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


def delayed_loop(
    loop: For,
    groups: list[Group],
    runs_beside: RunsBeside,
    names: Names,
    plan: PipelinePlan,
    steps: Steps,
) -> list[Stmt]:
    """The delayed schedule of a loop, and what must stand around it; empty if it has none."""
    parts = _delayed_parts(loop, groups, plan, runs_beside)
    return [] if parts is None else _delayed(loop, parts, names, steps, plan)


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
    return delayed_loop(loop, groups, runs_beside, names, plan, Steps(base, steps, after_first))


def later_group(
    loop: For, groups: list[Group], runs_beside: RunsBeside, plan: PipelinePlan
) -> Group | None:
    """The group that the delayed schedule reads one iteration late, if it does."""
    delayed = _delayed_parts(loop, groups, plan, runs_beside)
    return None if delayed is None else delayed.last_group


@dataclass(frozen=True, slots=True)
class _Delayed:
    """The parts of a loop's body for the delayed schedule.

    Attributes:
        lets: scalar definitions at its begin.
        allocates: declarations of registers, moved in front of the loop.
        first, last: the two contractions, with the groups that they read (None: none).
        early: work that touches no operand of `last`.
        late: work that does.
        before_last: what stands right before `last`, an iteration later.
    """

    lets: tuple[Let, ...]
    allocates: tuple[Allocate, ...]
    first: Gemm
    first_group: Group | None
    last: Gemm
    last_group: Group
    early: Block
    late: Block
    before_last: Block


def _later(loop: For, taken: set[int], plan: PipelinePlan) -> Block:
    """What the plan puts one stage after all else that stays; empty if it ends otherwise."""
    staying = [
        (stage, stmt)
        for stage, stmt in zip(plan.stage, loop.body, strict=True)
        if id(stmt) not in taken and not isinstance(stmt, Let | Allocate)
    ]
    stages = {stage for stage, _ in staying}
    if not staying or stages != {staying[-1][0] - 1, staying[-1][0]}:
        return ()
    return tuple(stmt for stage, stmt in staying if stage == staying[-1][0])


def _delayed_parts(
    loop: For, groups: list[Group], plan: PipelinePlan, runs_beside: RunsBeside
) -> _Delayed | None:
    taken = {id(copy) for group in groups for copy in group.copies}
    later = _later(loop, taken, plan)
    if not later:
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
    bound = {loop.var.name} | {s.var.name for s in scalars}
    if not _is_fixed(last, bound):
        return None
    before_last = tuple(s for s in late if s in later)
    rest = tuple(s for s in late if s not in later)
    if not _on_result_only(before_last, rest, first, last, bound):
        before_last, rest = (), late
    one_by_one = tuple(
        dataclasses.replace(nest, hints=with_hint(nest.hints, FACTORS_APART, True))
        for nest in before_last
        if isinstance(nest, Parallel)
    )
    return _Delayed(lets, allocates, first, first_group, last, last_group, early, rest, one_by_one)


def _on_result_only(nests: Block, rest: Block, first: Gemm, last: Gemm, bound: set[str]) -> bool:
    """True when nests on the result of `last` can as well run beside the next `first`.

    `rest` is the other late work, `bound` names what the iteration binds.
    """
    if not all(isinstance(nest, Parallel) for nest in nests):
        return False
    operands = {region.buffer.name for region in (first.a, first.b, first.c, last.a, last.b)}
    used = {buffer.name for buffer in buffers_in(nests)}
    written = {b.name for s in walk_stmts(nests) for b in destinations(s)}
    changed = {b.name for s in walk_stmts(rest) for b in destinations(s)}
    others = {buffer.name for buffer in buffers_in(rest)}
    named = names_in(expr for stmt in walk_stmts(nests) for expr in exprs_of(stmt))
    return not (used & (operands | changed) or written & others or named & bound)


def _touches(stmt: Stmt, names: set[str]) -> bool:
    return any(buffer.name in names for buffer in buffers_in((stmt,)))


def _is_fixed(gemm: Gemm, bound: set[str]) -> bool:
    """True when a gemm's places and conditions are the same an iteration later."""
    return not any(
        isinstance(node, Load) or (isinstance(node, Var) and node.name in bound)
        for expr in exprs_of(gemm)
        for node in walk(expr)
    )


def _delayed(
    loop: For, parts: _Delayed, names: Names, steps: Steps, plan: PipelinePlan
) -> list[Stmt]:
    ring = parts.last_group.ring
    counter = ring.counter
    dtype = counter.dtype
    zero, one = const(0, dtype), const(1, dtype)
    again = steps.base is not None or steps.taken is not None
    base = zero if steps.base is None else steps.base
    extent = loop.extent if steps.taken is None else steps.taken
    exists = binary("gt", extent, zero)

    def iteration(at: Expr, delayed: bool, there: Buffer | None = None) -> Block:
        return _iteration(parts, at, extent, base, delayed, steps.after_first, there)

    there = names.buffer("there", (1,), int32, Scope.LOCAL) if plan.asks_early else None
    rest = For(
        counter, one, binary("sub", extent, one), one,
        (*loop_value(loop, counter), *iteration(counter, True, there)),
        LoopKind.SERIAL, None,
        with_hint(loop.hints, COUNTED, True) if plan.asks_early else loop.hints, loop.loc,
    )  # fmt: skip
    first = substitute_block(iteration(zero, delayed=False), {loop.var: loop.start})
    first = renamed(first, names)
    last_step = binary("add", base, binary("sub", extent, one))
    final: Block = (
        ring.wait_full(last_step),
        *renamed(parts.before_last, names),
        on_slots(parts.last, parts.last_group, last_step),
    )
    if again:
        final = (*final, ring.release(last_step, 0))
    result: list[Stmt] = [*parts.allocates, If(exists, first, steps.after_first)]
    result += [] if there is None else [Allocate(there)]
    result.append(rest)
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
    parts: _Delayed, at: Expr, extent: Expr, base: Expr, delayed: bool, after_first: Block,
    there: Buffer | None,
) -> Block:  # fmt: skip
    """One iteration; `delayed` says that the iteration before left its last gemm undone.

    Slots and turns of the rings follow the number of the step, ``base + at``. `there` takes the
    answer where the next step's data is asked for early.
    """
    dtype = at.dtype  # type: ignore[attr-defined]
    one = const(1, dtype)
    step = binary("add", base, at)
    ring, first_ring = parts.last_group.ring, parts.first_group and parts.first_group.ring
    result: list[Stmt] = [*parts.lets]
    if first_ring is not None and not delayed:
        result.append(first_ring.wait_full(step))
    result.append(asynchronous(on_slots(parts.first, parts.first_group, step)))
    if delayed:
        before = binary("add", base, binary("sub", at, one))
        result.append(ring.wait_full(before))
        result += parts.before_last
        result.append(asynchronous(on_slots(parts.last, parts.last_group, before)))
    result.append(wait_for(1 if delayed else 0, parts.first))
    if first_ring is not None:
        result.append(first_ring.release(step, 0))
    after = binary("add", at, one)
    last = binary("ge", after, extent)
    if first_ring is not None and there is not None:
        result.append(first_ring.test_full(binary("add", base, after), there))
    result += parts.early
    result.append(Intrinsic("contraction.settle", (parts.first.c,)))
    wait: Block = ()
    # Needed at the begin of the next iteration; as a branch it keeps the work above in front of
    # the wait below.
    if first_ring is not None and there is not None:
        known = binary("or", binary("ne", Load(there, (const(0),)), const(0)), last)
        result.append(first_ring.wait_full_unless(binary("add", base, after), known))
        result += [If(last, after_first)] if after_first else []
    elif first_ring is not None:
        wait = (first_ring.wait_full(binary("add", base, after)),)
    if wait or (after_first and there is None):
        result.append(If(binary("lt", after, extent), wait, after_first))
    if delayed:
        result.append(wait_for(0, parts.last, with_a=True))
        result.append(ring.release(step, -1))
    return (*result, *parts.late)
