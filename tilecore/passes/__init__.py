"""One pass a file; this is the order in which they run.

`SCHEDULING_PASSES` take the canonical tile level to the scheduled level, `LOWERING_PASSES` take
that to the lane level. Every pass is a function ``name(program, context) -> program``.
"""

from __future__ import annotations

from collections.abc import Callable

from tilecore.hooks.context import Context
from tilecore.ir.program import Program
from tilecore.passes.async_copies import async_copies
from tilecore.passes.choose_layouts import choose_layouts
from tilecore.passes.defer_sums import defer_sums
from tilecore.passes.fit_clusters import fit_clusters
from tilecore.passes.hoist_allocations import hoist_allocations
from tilecore.passes.infer_layouts import infer_layouts
from tilecore.passes.insert_barriers import insert_barriers
from tilecore.passes.lowering.count_slots import count_slots
from tilecore.passes.lowering.hoist_offsets import hoist_offsets
from tilecore.passes.lowering.lower_lanes import lower_lanes
from tilecore.passes.lowering.plain_divisions import plain_divisions
from tilecore.passes.mark_scheduled import mark_scheduled
from tilecore.passes.normalize_tiles import normalize_tiles
from tilecore.passes.overlap_launches import overlap_launches
from tilecore.passes.own_barriers import own_barriers
from tilecore.passes.per_lane.lane_branches import lane_branches
from tilecore.passes.per_lane.lane_tiles import lane_tiles
from tilecore.passes.pipeline_loops import pipeline_loops
from tilecore.passes.plan_shared_memory import plan_shared_memory
from tilecore.passes.publish_writes import publish_writes
from tilecore.passes.reduction_plan import reduction_plan
from tilecore.passes.resolve_aliases import resolve_aliases
from tilecore.passes.roles.specialize_warps import specialize_warps
from tilecore.passes.stage_fragments import stage_fragments
from tilecore.passes.stage_stores import stage_stores
from tilecore.passes.turns.take_turns import take_turns
from tilecore.passes.unbounded_nests import unbounded_nests

Pass = Callable[[Program, Context], Program]

SCHEDULING_PASSES: tuple[Pass, ...] = (
    fit_clusters,
    hoist_allocations,
    lane_branches,
    resolve_aliases,
    unbounded_nests,
    lane_tiles,
    normalize_tiles,
    take_turns,
    infer_layouts,
    stage_fragments,
    reduction_plan,
    defer_sums,
    choose_layouts,
    specialize_warps,
    pipeline_loops,
    async_copies,
    stage_stores,
    own_barriers,
    plan_shared_memory,
    insert_barriers,
    publish_writes,
    overlap_launches,
    mark_scheduled,
)
LOWERING_PASSES: tuple[Pass, ...] = (
    lower_lanes,
    hoist_offsets,
    count_slots,
    plain_divisions,
)
