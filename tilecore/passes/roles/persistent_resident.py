"""Blocks that stay, for kernels that load some operands once a tile and walk others, three
contractions or more a step (`in_flight`).

    for each tile of a block:
      producers: wait until the last tile's resident operands are free; load; the loop's copies
      consumers: wait for the resident operands; the loop; release them; the rest of the tile

Producers load the next tile's operands while consumers store this one's results. Tiles come in the
grid's order, from the launch's counter where they make unequally many steps, else in rounds.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tilecore.hooks.records import PipelinePlan
from tilecore.ir.expr import Var, binary
from tilecore.ir.layout import Layout
from tilecore.ir.program import BlockOrder, Kernel
from tilecore.ir.stmts import Allocate, Copy, For, Intrinsic, Let, LoopKind, Stmt
from tilecore.ir.visit import buffers_in, walk_stmts
from tilecore.passes.insert_barriers import BARRIER
from tilecore.passes.plan_shared_memory import ALIGNMENT, BARRIER_ALIGNMENT
from tilecore.passes.roles.deferred_store import is_held
from tilecore.passes.roles.in_flight import in_flight_steps, worth_it
from tilecore.passes.roles.persistent_tiles import (
    at_zero,
    cluster_axis,
    count_steps,
    loading_tile,
    makes_equal_steps,
    may_persist,
    persistent_kernel,
    step_base,
    step_counts,
)
from tilecore.passes.roles.producer_schedule import load_alone
from tilecore.passes.roles.ring import AFTER_LANES_READ, Ring, read_by_lanes
from tilecore.passes.roles.schedule_pieces import renamed
from tilecore.passes.roles.storer_schedule import leaving
from tilecore.passes.roles.taken_tiles import Role, storing_tiles

if TYPE_CHECKING:
    from tilecore.passes.roles.specialize_warps import Specializer


def persistent_resident(
    own: Specializer, loop: For, plan: PipelinePlan, staying: list[Stmt]
) -> Kernel | None:
    """The kernel with blocks that stay; None, and nothing changed, where it does not fit."""
    if not worth_it(loop, own.runs_beside) or not may_persist(own.kernel, loop):
        return None
    loads = [s for s in staying if isinstance(s, Copy) and s.fills_shared]
    if not loads or not all(own.fits_once(s, staying) for s in loads):
        return None
    if not all(_only_for(s, loop, staying) for s in loads):
        return None
    before = dict(own.layouts), dict(own.slotted), list(own.common), own.kernel
    own.kernel = dataclasses.replace(
        own.kernel, block_order=own.kernel.block_order or BlockOrder(1)
    )
    groups = own.groups(loop, plan)
    lets = tuple(s for s in own.common if isinstance(s, Let))
    equal = makes_equal_steps(own.kernel, loop, lets)
    axis = cluster_axis(own.kernel) if equal else None
    groups = [own.shared(group, loop, plan, lets, axis) for group in groups]
    sharers = max((group.ring.sharers for group in groups), default=1)
    rings = [_ring(own, copy) for copy in loads]
    own.common = [s for s in own.common if not isinstance(s, Let)]
    kernel, first = persistent_kernel(own.kernel, own.names, sharers)
    walk = own.tile_walk(first, sharers, plan, equal)
    warps = own.kernel.threads // own.context.target.lanes_per_warp
    sent = leaving(own, loop, plan)
    every = [*(g.ring for g in groups), *rings, *(one.ring for one in sent)]
    inits = [stmt for ring in every for stmt in ring.declarations(warps)]
    if walk.ring is not None:
        every.append(walk.ring)
        inits += walk.ring.declarations(warps + bool(sent))
    taken, filled = (Var(own.names.fresh(name)) for name in ("round", "round_ahead"))
    loaded, used = (None, None) if equal else step_counts(own.names)
    ahead: list[Stmt] = [*lets]
    for copy, ring in zip(loads, rings, strict=True):
        ahead += load_alone(copy, ring, copy.dst, filled)
    ahead += loading_tile(loop, groups, filled, own.names, loaded)
    loads_of_tiles = walk.tiles(filled, tuple(ahead), Role.PRODUCER)
    producer = [*at_zero(loaded), *renamed(loads_of_tiles, own.names)]
    work: list[Stmt] = [*lets]
    adding = own.with_bulk_adds(loop)
    resident = {copy.dst.buffer for copy in loads}
    for stmt in staying:
        if stmt is loop:
            work += [ring.wait_full(taken) for ring in rings]
            base = Var(own.names.fresh("step_base"))
            step = binary("add", base, loop.var)
            body = (*in_flight_steps(adding, groups, step, sent),)
            work.append(Let(base, step_base(loop, taken, used)))
            work.append(dataclasses.replace(loop, body=body, kind=LoopKind.SERIAL, pipeline=None))
            work += count_steps(loop, base, used)
            if any(read_by_lanes(inner, resident) for inner in loop.body):
                work += AFTER_LANES_READ
            # One barrier a tile: what lanes shared in its last step is free for the next tile.
            work += [*(ring.release(taken, 0) for ring in rings), BARRIER]
        elif not any(stmt is copy for copy in loads):
            work.append(own.stored(stmt))
    work = own.stored_apart(work, 2 * len(every))
    consumer = [*at_zero(used), *walk.tiles(taken, tuple(work), Role.CONSUMER)]
    if any(is_held(s) for s in walk_stmts(tuple(work))):
        consumer.append(Intrinsic("bulk.finish"))
    # Barriers lie close together where nothing else gives way to a storer's buffers.
    each = BARRIER_ALIGNMENT if sent else ALIGNMENT
    if not groups or not own.fits_memory(2 * len(every), each):
        own.layouts, own.slotted, own.common, own.kernel = before
        return None
    own.kernel = kernel
    storer = storing_tiles(walk, loop, sent, lets, equal)
    return own.assemble(inits, producer, consumer, plan.producer_warps, storer)


def _only_for(copy: Copy, loop: For, staying: list[Stmt]) -> bool:
    """True when nothing but the loop, which comes later, reads what a copy brings."""
    readers = [s for s in staying if s is not copy and copy.dst.buffer in buffers_in((s,))]
    return [s for s in readers if not isinstance(s, Allocate)] == [loop]


def _ring(own: Specializer, copy: Copy) -> Ring:
    """One slot, which is filled again in each round."""
    ring = own.ring((copy,), 1, None)
    own.layouts[ring.empty.name] = Layout.row_major((1,))
    return ring
