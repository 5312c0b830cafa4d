"""A kernel of teams (`take_turns`) with producer warps: its barriers, and both sides."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tilecore.hooks.records import PipelinePlan
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import uint64
from tilecore.ir.expr import Const, const, free_vars
from tilecore.ir.layout import Layout
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Allocate, Copy, For, Intrinsic, Let, LoopKind, Stmt
from tilecore.ir.visit import buffers_in
from tilecore.passes.producer_schedule import producer_loop
from tilecore.passes.ring import Group, inlined
from tilecore.passes.teams import team_of, teams_of
from tilecore.passes.turns_schedule import turns_loop, turns_of

if TYPE_CHECKING:
    from tilecore.passes.specialize_warps import _Specializer


def turns_kernel(own: _Specializer) -> Kernel | None:
    """The kernel with its warp roles; None when its copies are not a copy engine's."""
    kernel = own.kernel
    team = team_of(kernel)
    loop = next(s for s in kernel.body if isinstance(s, For) and s.kind is LoopKind.PIPELINED)
    plan = own.plan(loop)
    if team is None or plan.producer_warps < 1 or not plan.takes_turns:
        return None
    staying = own.split_common()
    groups = own.groups(loop, plan)
    if len(groups) != 1:
        return None
    groups = [_paired(own, loop, groups[0], plan)]
    kernel = own.kernel
    warps_of_team = kernel.threads // own.context.target.lanes_per_warp
    warps = warps_of_team * teams_of(kernel)
    ready = own.names.buffer("handed_over", (1,), uint64, Scope.SHARED)
    own.layouts[ready.name] = Layout.row_major((1,))
    once = Region(ready, (const(0),), (None,))
    inits: list[Stmt] = [
        Allocate(ready), Intrinsic("barrier.init", (once, const(warps_of_team))),
        *groups[0].ring.declarations(warps),
    ]  # fmt: skip
    producer: list[Stmt] = []
    consumer: list[Stmt] = []
    waiting: list[tuple[Buffer, Stmt]] = []
    for stmt in staying:
        if isinstance(stmt, Copy) and own.fits_once(stmt, staying):
            ring = own.ring((stmt,), 1, None)
            producer += own.produce_once(stmt, ring)
            inits += ring.declarations(warps)[::2]  # nobody waits for an empty slot
            waiting.append((stmt.dst.buffer, ring.wait_full(const(0))))
            continue
        if isinstance(stmt, Copy) and stmt.fills_shared:
            return None  # each team would fill it
        for buffer, wait in [w for w in waiting if w[0] in buffers_in((stmt,))]:
            consumer.append(wait)
            waiting.remove((buffer, wait))
        if stmt is loop:
            producer += producer_loop(loop, groups, None, own.names)
            consumer += turns_loop(turns_of(loop, groups[0], team, ready), own.names)
        else:
            consumer.append(stmt)
    return own.assemble(inits, producer, consumer, plan.producer_warps)


def _paired(own: _Specializer, loop: For, group: Group, plan: PipelinePlan) -> Group:
    """The group, loaded by neighbours along the first grid axis for one another, with the kernel
    made of clusters: where all of its copies and the number of steps are the same for them."""
    kernel = own.kernel
    axis, size = kernel.grid_vars[0], kernel.grid[0]
    lets = tuple(s for s in own.common if isinstance(s, Let))
    values = {s.var: s.value for s in lets}
    whole = isinstance(size, Const) and int(size.value) % plan.cluster == 0
    steps = (inlined(loop.start, values), inlined(loop.extent, values))
    if not whole or kernel.cluster != (1, 1, 1) or kernel.block_order is not None:
        return group
    if any(axis in free_vars(expr) for expr in steps):
        return group
    pair = own.shared(group, loop, plan, lets, 0)
    if len(pair.shared) != len(pair.copies):
        return group
    own.kernel = dataclasses.replace(kernel, cluster=(plan.cluster, 1, 1))
    return pair
