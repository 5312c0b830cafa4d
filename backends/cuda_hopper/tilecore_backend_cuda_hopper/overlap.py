"""Which loops run their last contraction under the next iteration's work, and what that needs.

For scores S = Q K^T, weights P and output O += P V, the order "S of the next iteration, then O of
this one, and all work on S under it" holds S, P and O in registers at once. Where they do not fit,
the assembler runs every wgmma by itself, or spills, and the plain order is faster.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from tilecore.hooks.records import PipelinePlan, PipelineRequest
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.layout import FragmentLayout
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Allocate, Gemm, Parallel
from tilecore.ir.visit import buffers_in, destinations, walk_stmts
from tilecore_backend_cuda_hopper.mma import WARPGROUP

# Registers of a lane in producer and in consumer warpgroups, by the number of the latter. Together
# they may not exceed what the block has at launch: docs/performance-log.md, rule 1.
REGISTERS = {2: (40, 232), 3: (32, 160)}
IN_CLUSTER = {2: (40, 232), 3: (56, 152)}
"""The same for blocks of a cluster, whose producers need more: rule 3 there."""
CROWDED = {2: (24, 240)}
"""The same, in a cluster or not, where a consumer's fragments and addresses, all at once, are more
than it has: little is left to the producers, which load boxes of up to four axes (rule 3 there)."""
RESCALED_LATER = 3
"""Warpgroups from which on the result is rescaled beside the next scores, row by row: two are as
fast, or slower, when each starts its next product after the rescale (docs/performance-log.md)."""
ASKS_EARLY = "asks_early"
"""Option of `CompileOptions.extra`: `PipelinePlan.asks_early`, whatever the plan would choose."""
ASKING = 3
"""Warpgroups from which on the next step's data is asked for early (docs/performance-log.md)."""
LARGEST = 255
"""Registers that one lane can name (CUDA C++ Programming Guide, compute capability 9.0)."""
ADDRESSES = 20
"""Registers besides fragments: what rule 2 of docs/performance-log.md leaves without the rows'."""
PER_ROW = 4
"""Registers that a lane keeps for one row of a softmax: maximum, sum, rescale, anchor."""


def with_overlap(plan: PipelinePlan, request: PipelineRequest) -> PipelinePlan:
    """`plan` with the second of two chained gemms one stage later, if registers allow it."""
    body = request.loop.body
    gemms = [stmt for stmt in body if isinstance(stmt, Gemm)]
    if len(gemms) != 2 or body[-1] is not gemms[1]:
        return plan
    first, last = gemms
    need = registers_needed(request.kernel, first, last)
    groups = request.kernel.threads // WARPGROUP
    if last.a.buffer.scope is not Scope.FRAGMENT or need is None:
        return plan
    words = need - ADDRESSES
    if need > most(groups, 1, words):
        return plan
    later = {id(last)}
    if groups >= RESCALED_LATER:
        nests = [stmt for stmt in body if isinstance(stmt, Parallel)]
        later |= {
            id(nest)
            for nest in nests
            if any(last.c.buffer in destinations(stmt) for stmt in nest.body)
        }
    pairs = zip(plan.stage, body, strict=True)
    stage = tuple(at + (id(stmt) in later) for at, stmt in pairs)
    cluster = plan.cluster if need <= most(groups, plan.cluster, words) else 1
    asks = dict(request.options.extra).get(ASKS_EARLY, groups >= ASKING)
    return dataclasses.replace(plan, stage=stage, cluster=cluster, asks_early=bool(asks))


def register_counts(groups: int, cluster: int, words: int = 0) -> tuple[int, int] | None:
    """(registers of a producer's lane, of a consumer's) with `groups` consumer warpgroups, whose
    lanes declare fragments of `words` registers."""
    counts = (IN_CLUSTER if cluster > 1 else REGISTERS).get(groups)
    is_crowded = counts is not None and words + ADDRESSES > counts[1]
    return CROWDED.get(groups, counts) if is_crowded else counts


def words_declared(kernel: Kernel) -> int:
    """Registers of all that a lane of a lane-level kernel declares."""
    buffers = {s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Allocate)}
    return sum(
        -(-math.prod(b.static_shape or (0,)) * b.dtype.bytes // 4)
        for b in buffers
        if b.scope is Scope.LOCAL
    )


def most(groups: int, cluster: int, words: int = 0) -> int:
    """Registers of a consumer's lane; the arguments are those of `register_counts`."""
    return (register_counts(groups, cluster, words) or (0, LARGEST))[1]


def registers_needed(kernel: Kernel, first: Gemm, last: Gemm) -> int | None:
    """Registers of a lane that holds both accumulators and the operand between them at once."""
    held = _held(kernel, [region.buffer for region in (first.c, last.a, last.c)])
    if held is None:
        return None
    (rows, _) = last.c.static_shape or (0, 0)
    rows_a_lane = max(1, 4 * rows // kernel.threads)
    return held + PER_ROW * rows_a_lane


def fits_twice(request: PipelineRequest) -> bool:
    """True when all fragments of a loop, and the sums of its gemms once more, fit registers."""
    kernel = request.kernel
    gemms = [stmt for stmt in request.loop.body if isinstance(stmt, Gemm)]
    buffers = [b for b in buffers_in(request.loop.body) if b.scope is Scope.FRAGMENT]
    held = _held(kernel, [*buffers, *(gemm.c.buffer for gemm in gemms)])
    return held is not None and held <= most(kernel.threads // WARPGROUP, cluster=1)


def left_in_turns(request: PipelineRequest) -> int | None:
    """Registers of a lane that are left where a team of one warpgroup holds all fragments of a
    kernel, beside another team; None where they do not fit.

    The weights take the place of the scores that they are made of, once scores are settled.
    """
    kernel = request.kernel
    if kernel.threads != WARPGROUP:
        return None
    held = _held(kernel, [b for b in buffers_in(kernel.body) if b.scope is Scope.FRAGMENT])
    if held is None or held > most(2, cluster=1):
        return None
    gemms = [s for s in walk_stmts(request.loop.body) if isinstance(s, Gemm)]
    weights = {g.a.buffer for g in gemms if g.a.buffer.scope is Scope.FRAGMENT}
    return most(2, cluster=1) - held + sum(_words(kernel, buffer) or 0 for buffer in weights)


def _held(kernel: Kernel, buffers: Sequence[Buffer]) -> int | None:
    """Registers of a lane that holds all of `buffers` and addresses; None: one has no layout."""
    total = ADDRESSES
    for buffer in buffers:
        words = _words(kernel, buffer)
        if words is None:
            return None
        total += words
    return total


def _words(kernel: Kernel, buffer: Buffer) -> int | None:
    """Registers of a lane that one fragment takes; None without a layout."""
    layout = kernel.layout_of(buffer)
    if not isinstance(layout, FragmentLayout):
        return None
    return -(-layout.registers * buffer.dtype.bytes // 4)
