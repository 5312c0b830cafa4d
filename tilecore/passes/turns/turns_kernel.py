"""A kernel of teams (`take_turns`) with producer warps: its barriers, and both sides."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tilecore.hooks.records import PipelinePlan
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import uint64
from tilecore.ir.expr import Const, const, free_vars
from tilecore.ir.layout import Layout
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Allocate, Copy, For, Intrinsic, Let, Stmt
from tilecore.ir.visit import buffers_in
from tilecore.passes.roles.producer_schedule import producer_loop
from tilecore.passes.roles.ring import Group, inlined, point
from tilecore.passes.scopes import is_pipelined, static
from tilecore.passes.turns.held_columns import hold_columns, narrowed
from tilecore.passes.turns.team_columns import columns_of
from tilecore.passes.turns.teams import team_of, teams_of
from tilecore.passes.turns.turns_schedule import SLOTS_FOR_BOTH, Turns, turns_loop, turns_of

if TYPE_CHECKING:
    from tilecore.passes.roles.specialize_warps import Specializer


def turns_kernel(own: Specializer) -> Kernel | None:
    """The kernel with its warp roles; None when its copies are not a copy engine's."""
    kernel = own.kernel
    team = team_of(kernel)
    loop = next(s for s in kernel.body if is_pipelined(s))
    plan = own.plan(loop)
    if team is None or plan.producer_warps < 1 or not plan.takes_turns:
        return None
    staying = own.split_common()
    groups = own.groups(loop, plan)
    if len(groups) != 1:
        return None
    ready = own.names.buffer("handed_over", (1,), uint64, Scope.SHARED)
    turns = turns_of(loop, groups[0], team, ready)
    groups = _paired(own, loop, _in_parts(own, turns), plan)
    turns = dataclasses.replace(turns, groups=tuple(groups))
    held, turns = hold_columns(own, turns, plan.held_registers)
    if groups[0].ring.slots >= SLOTS_FOR_BOTH:  # room for the last of them
        staying, held, turns = narrowed(own, turns, held, staying)
    kernel = own.kernel
    warps_of_team = kernel.threads // own.context.target.lanes_per_warp
    warps = warps_of_team * teams_of(kernel)
    own.layouts[ready.name] = Layout.row_major((1,))
    arrivals = (point(ready, const(0)), const(warps_of_team))
    inits: list[Stmt] = [Allocate(ready), Intrinsic("barrier.init", arrivals)]
    for group in groups:
        inits += group.ring.declarations(warps // len(groups))
    producer: list[Stmt] = []
    consumer: list[Stmt] = []
    waiting: list[tuple[Buffer, Stmt]] = []
    at = staying.index(loop)
    for stmt in (*staying[:at], *held, *staying[at:]):
        if isinstance(stmt, Copy) and own.fits_once(stmt, staying):
            ring = own.ring((stmt,), 1, None)
            producer += own.produce_once(stmt, ring)
            inits += ring.declarations(warps)[::2]  # nobody waits for an empty slot
            waiting.append((stmt.dst.buffer, ring.wait_full(const(0))))
            continue
        if isinstance(stmt, Copy) and stmt.fills_shared:
            return None  # each team would fill it
        used = buffers_in((stmt,) if stmt is not loop else (loop, turns.first))
        for buffer, wait in [w for w in waiting if w[0] in used]:
            consumer.append(wait)
            waiting.remove((buffer, wait))
        if stmt is loop:
            producer += producer_loop(loop, groups, None, own.names)
            consumer += turns_loop(turns, own.names)
        else:
            consumer.append(stmt)
    return own.assemble(inits, producer, consumer, plan.producer_warps)


def _in_parts(own: Specializer, turns: Turns) -> list[Group]:
    """The loop's copies in two parts, if each team adds up half of the columns of what is copied:
    each part has barriers of its own, so that it is filled again when its team is done with it."""
    (group,) = turns.groups
    if len(group.copies) != 1:
        return [group]
    (copy,) = group.copies
    values, keys = turns.others.b, turns.first.b
    if values.buffer != copy.dst.buffer or keys != copy.dst or not turns.first.transpose_b:
        return [group]
    width, own_columns = static(copy.dst)[-1], static(values)[-1]
    found: list[Group] = []
    for begin, count in ((0, own_columns), (own_columns, width - own_columns)):
        part = dataclasses.replace(
            copy,
            src=columns_of(copy.src, const(begin), count),
            dst=columns_of(copy.dst, const(begin), count),
        )
        ring = group.ring
        if found:
            full, empty = (
                own.names.buffer(old.name, (ring.slots,), uint64, Scope.SHARED)
                for old in (ring.full, ring.empty)
            )
            own.layouts |= {b.name: Layout.row_major((ring.slots,)) for b in (full, empty)}
            ring = dataclasses.replace(ring, full=full, empty=empty)
        to = ring.slot(part.dst, ring.buffers[0], const(0))
        if own.bulk_plan(dataclasses.replace(part, dst=to)) is None:
            return [group]
        found.append(dataclasses.replace(group, copies=(part,), ring=ring))
    return found


def _paired(own: Specializer, loop: For, groups: list[Group], plan: PipelinePlan) -> list[Group]:
    """The groups, loaded by neighbours along the first grid axis for one another, with the kernel
    made of clusters: where all copies and the number of steps are the same for them."""
    kernel = own.kernel
    axis, size = kernel.grid_vars[0], kernel.grid[0]
    lets = tuple(s for s in own.common if isinstance(s, Let))
    values = {s.var: s.value for s in lets}
    whole = isinstance(size, Const) and int(size.value) % plan.cluster == 0
    steps = (inlined(loop.start, values), inlined(loop.extent, values))
    if not whole or kernel.cluster != (1, 1, 1) or kernel.block_order is not None:
        return groups
    if any(axis in free_vars(expr) for expr in steps):
        return groups
    pairs = [own.shared(group, loop, plan, lets, 0) for group in groups]
    if any(len(pair.shared) != len(pair.copies) for pair in pairs):
        return groups
    own.kernel = dataclasses.replace(kernel, cluster=(plan.cluster, 1, 1))
    return pairs
