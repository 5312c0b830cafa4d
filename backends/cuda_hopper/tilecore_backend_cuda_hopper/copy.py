"""Copies by the tensor memory accelerator: which ones it takes, cut into which boxes.

Rules: PTX ISA, "Tensors" and CUDA driver API, ``cuTensorMapEncodeTiled``: up to five axes, the last
one contiguous, other strides multiples of 16 bytes, boxes of at most 256 elements along an axis
whose rows are multiples of 16 bytes and, with a swizzle, one swizzled row long. A box begins at a
multiple of 16 bytes along the last axis: one that did not was an illegal instruction on an H200,
loaded or stored.
"""

from __future__ import annotations

import itertools

from tilecore.hooks.records import (
    AsyncCopyRequest,
    BulkCopyPlan,
    BulkPiece,
    PipelinePlan,
    PipelineRequest,
)
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import TRUE, Const, const
from tilecore.ir.layout import Layout
from tilecore.ir.simplify import known_multiple
from tilecore.ir.stmts import Copy, Gemm
from tilecore.ir.visit import walk_stmts
from tilecore.passes.async_copies import strides_of
from tilecore_backend_cuda_ampere.copy import plan_pipeline as plan_all_warps
from tilecore_backend_cuda_hopper.layout import CHUNK_BYTES, Panels, panels_of
from tilecore_backend_cuda_hopper.mma import WARPGROUP
from tilecore_backend_cuda_hopper.overlap import ASKS_EARLY, fits_twice, left_in_turns, with_overlap
from tilecore_backend_cuda_hopper.store import plan_line, plan_store
from tilecore_backend_cuda_hopper.target import MULTIPROCESSORS
from tilecore_backend_cuda_hopper.tensor_map import LINE_BYTES
from tilecore_backend_cuda_hopper.windows import plan_windows

MAX_AXES = 5
MAX_BOX = 256
SHARED_ALIGNMENT = 128  # bytes, of a box in shared memory
ELEMENT_BITS = frozenset({8, 16, 32, 64})
PRODUCER_WARPS = 4
"""A whole warpgroup, because registers are handed over between warpgroups; one lane works."""
MAX_THREADS = 1024
CLUSTER = 2
"""Blocks that share a tile of B: four do not fit all multiprocessors at once, and halve the speed
(docs/performance-log.md)."""


SHORT_WORK = 1536
"""Steps of a multiprocessor up to which a cluster costs more than it saves: its blocks come and go
together, 1.5 us of 15 with 8 steps (16 products of 512^3), 1 to 3 % with some 100, nothing with
2048 (8192^3: docs/performance-log.md)."""
SHORT_STRADDLING_WORK = 64
"""The same where rows straddle lines of the second-level cache, which then is what bounds: clusters
save 15 % there."""


def plan_pipeline(request: PipelineRequest) -> PipelinePlan:
    """The base backend's stages, with producer warps and overlap of gemms for loops around them.

    An author's own stages say whether the last gemm runs one iteration late; registers, then, are
    the author's concern.
    """
    plan = plan_all_warps(request)
    threads = request.kernel.threads
    spec = request.loop.pipeline
    from_author = spec is not None and bool(spec.stage)
    if not any(isinstance(s, Gemm) for s in walk_stmts(request.loop.body)):
        return plan
    if threads % WARPGROUP or threads + 32 * PRODUCER_WARPS > MAX_THREADS or plan.num_stages < 2:
        return plan
    left = left_in_turns(request)
    with_producers = PipelinePlan(
        plan.num_stages, plan.stage, plan.order, PRODUCER_WARPS, persistent=True,
        cluster=_cluster(request),
        takes_tiles=True, alternates=fits_twice(request),
        takes_turns=left is not None, held_registers=left or 0,
        asks_early=bool(dict(request.options.extra).get(ASKS_EARLY)),
    )  # fmt: skip
    return with_producers if from_author else with_overlap(with_producers, request)


def _cluster(request: PipelineRequest) -> int:
    """Blocks that load for one another, where one gemm makes enough steps.

    Not where each step's sums begin anew and are worked on by themselves (factors for blocks):
    blocks that share loads keep in step, and wait for one another's work.
    """
    gemms = [s for s in walk_stmts(request.loop.body) if isinstance(s, Gemm)]
    if all(gemm.clear_accum == TRUE for gemm in gemms):
        return 1
    grid, steps = request.kernel.grid, request.loop.extent
    if len(gemms) != 1 or not isinstance(steps, Const):
        return CLUSTER
    tiles = 1
    for extent in grid:
        if not isinstance(extent, Const):
            return CLUSTER
        tiles *= int(extent.value)
    copies = [s for s in request.loop.body if isinstance(s, Copy) and s.fills_shared]
    straddles = any(_straddles_lines(copy.src.buffer) for copy in copies)
    least = SHORT_STRADDLING_WORK if straddles else SHORT_WORK
    return CLUSTER if -(-tiles // MULTIPROCESSORS) * int(steps.value) >= least else 1


def _straddles_lines(buffer: Buffer) -> bool:
    """True when rows of a tensor begin within lines, as far as its strides are known."""
    *outer, _ = strides_of(buffer.shape, buffer.strides)
    return any(known_multiple(s) * buffer.dtype.bits // 8 % LINE_BYTES for s in outer)


def plan_bulk_copy(request: AsyncCopyRequest) -> BulkCopyPlan | None:
    """The boxes of a copy from global to shared memory, or of an accumulator to global memory.

    None when lanes must do it.
    """
    src, dst = request.copy.src, request.copy.dst
    if src.buffer.scope is Scope.FRAGMENT:
        return plan_store(request)
    if src.buffer.scope is Scope.SHARED:
        return plan_line(request)
    if request.windows is not None:
        return plan_windows(request, request.windows)
    layout = request.kernel.layout_of(dst.buffer)
    if not isinstance(layout, Layout) or src.dtype != dst.dtype:
        return None
    if not is_mappable(src.buffer) or src.buffer.safe_value != 0:
        return None
    shape = src.static_shape
    if shape is None or shape != dst.static_shape:
        return None
    if src.axes[-1:] != (src.buffer.rank - 1,) or 0 in shape:
        return None
    panels = panels_of(layout, dst.dtype, dst.axes)
    if panels is None or not fills_panels(dst, layout, panels):
        return None
    return _boxes(src, shape, panels, request.parts)


def is_mappable(buffer: Buffer) -> bool:
    """True when a tensor map can describe a global buffer, as far as that is known now."""
    if not 2 <= buffer.rank <= MAX_AXES or buffer.dtype.bits not in ELEMENT_BITS:
        return False
    *outer, inner = strides_of(buffer.shape, buffer.strides)
    return inner == const(1) and all(
        known_multiple(s) * buffer.dtype.bytes % 16 == 0 for s in outer
    )


def _has_whole_rows(region: Region) -> bool:
    """True when all but leading points of a region is the whole buffer, or some of its columns."""
    points = region.buffer.rank - len(region.axes)
    return region.axes == tuple(range(points, region.buffer.rank)) and all(
        region.starts[axis] == const(0) and region.extents[axis] == region.buffer.shape[axis]
        for axis in region.axes[:-1]
    )


def _slots_are_aligned(region: Region, layout: Layout, period: int) -> bool:
    points = [axis for axis in range(region.buffer.rank) if axis not in region.axes]
    return all(
        mode.stride * region.dtype.bytes % period == 0
        for axis in points
        for mode in layout.axes[axis]
        if mode.extent > 1
    )


def fills_panels(region: Region, layout: Layout, panels: Panels) -> bool:
    """True when a region of shared memory is whole panels that begin at swizzle periods."""
    width, row = region.dtype.bytes, panels.columns * region.dtype.bytes
    period = _period(panels.swizzle_bits)
    return (
        _has_whole_rows(region)
        and _slots_are_aligned(region, layout, period)
        and known_multiple(region.starts[-1]) % panels.columns == 0
        and (region.static_shape or (1,))[-1] % panels.columns == 0
        and row % CHUNK_BYTES == 0
        and panels.columns <= MAX_BOX
        and panels.stride * width % period == 0
    )


def _period(swizzle_bits: int) -> int:
    """Bytes at whose multiples a box may begin in shared memory."""
    return max(SHARED_ALIGNMENT, (8 * CHUNK_BYTES << swizzle_bits) if swizzle_bits else 0)


def _boxes(src: Region, shape: tuple[int, ...], panels: Panels, parts: int) -> BulkCopyPlan | None:
    width = src.dtype.bytes
    swizzle_bits, columns, stride = panels.swizzle_bits, panels.columns, panels.stride
    period = _period(swizzle_bits)
    extents = dict(zip(src.axes, shape, strict=True))
    rows = src.axes[:-1]
    # Boxes cover whole inner axes; the outermost one that is too long is cut.
    box = [extents.get(axis, 1) for axis in range(src.buffer.rank)]
    box[-1] = columns
    cuts: list[range] = [range(0, box[axis], box[axis]) for axis in rows]
    by_panels = (shape[-1] // columns) % parts == 0
    for k, axis in enumerate(rows):
        most = MAX_BOX if by_panels or k > 0 else min(MAX_BOX, box[axis] // parts)
        if box[axis] > most:
            part = max(d for d in range(1, most + 1) if box[axis] % d == 0)
            cuts[k] = range(0, box[axis], part)
            box[axis] = part
            if k > 0:
                return None
    row_strides: dict[int, int] = {}
    step = columns
    for axis in reversed(rows):
        row_strides[axis] = step
        step *= extents[axis]
    pieces: list[BulkPiece] = []
    for panel in range(shape[-1] // columns):
        for starts in itertools.product(*cuts):
            at = [0] * src.buffer.rank
            at[-1] = panel * columns
            offset = panel * stride
            for axis, start in zip(rows, starts, strict=True):
                at[axis] = start
                offset += start * row_strides[axis]
            if offset * width % period:
                return None
            pieces.append(BulkPiece(tuple(at), offset))
    if not by_panels:
        pieces.sort(key=lambda piece: piece.at[rows[0]])  # stable: panels of each part in order
    if len(pieces) % parts:
        return None
    return BulkCopyPlan(
        f"swizzle{swizzle_bits}", tuple(box), tuple(pieces), begins_at=CHUNK_BYTES // width
    )
