"""Accumulators on their way to global memory: rounded, staged in shared memory, stored in bulk, or
added to what is there.

Each warpgroup stages panels of 64 rows of 128 bytes (64 or 32 columns) in two slots of its own; one
lane hands them to the copy engine. `hopper_tile.h` holds the code.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.hooks.records import AsyncCopyRequest, BulkCopyPlan
from tilecore.ir.buffers import Scope
from tilecore.ir.dtypes import bfloat16, float16, float32, int32
from tilecore.ir.expr import const
from tilecore.ir.layout import REGISTER, THREAD, FragmentLayout, FragmentMode, Layout, Mode, Swizzle
from tilecore.ir.simplify import known_multiple
from tilecore.passes.async_copies import strides_of
from tilecore_backend_cuda_hopper.layout import CHUNK_BYTES, LINE_BYTES
from tilecore_backend_cuda_hopper.mma import WARPGROUP, accumulator_layout
from tilecore_backend_cuda_hopper.overlap import LARGEST, REGISTERS
from tilecore_backend_cuda_hopper.wgmma_source import WGMMA_M

_STORED = (
    (float32, float16), (float32, bfloat16), (float32, float32), (int32, int32), (float16, float16),
)  # fmt: skip
"""(accumulator, tensor) types."""
PANEL_BYTES = WGMMA_M * LINE_BYTES
"""A panel: 64 rows of 128 bytes, one row of a swizzled box each."""
SLOTS = 2
"""Panels that a warpgroup may have under way."""
SPARE_REGISTERS = 36
"""Registers besides the sums and a rounded tile: addresses, counters, places. 128 sums, 64 words
and these fit the 232 registers of two consumer warpgroups (docs/performance-log.md, rule 2)."""


@dataclass(frozen=True, slots=True)
class AccumulatorTile:
    """An accumulator that warpgroups divide along one side.

    Attributes:
        columns: that one warpgroup holds.
        row_tiles: blocks of 64 rows that one warpgroup holds, next to each other.
        groups: warpgroups.
        by_columns: they divide the columns; each has all rows. Else each has all columns.
    """

    columns: int
    row_tiles: int
    groups: int
    by_columns: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the whole accumulator."""
        rows, columns = self.row_tiles * WGMMA_M, self.columns
        return (rows, columns * self.groups) if self.by_columns else (rows * self.groups, columns)


def accumulator_tile(layout: FragmentLayout, panel: int) -> AccumulatorTile | None:
    """The tile that a layout holds, in panels of so many columns; None when it is no accumulator
    of warpgroups along one side."""
    if len(layout.axes) != 2 or layout.replication:
        return None
    rows, columns = layout.axes
    n = layout.shape[1]
    across = 1
    if columns[-1].space == THREAD and columns[-1].stride == WARPGROUP:
        across, columns = columns[-1].extent, columns[:-1]
        n //= across
    if n % panel:
        return None
    atom = accumulator_layout(n)
    if columns != atom.axes[1] or rows[:3] != atom.axes[0]:
        return None
    rest = list(rows[3:])
    row_tiles = groups = 1
    if rest and rest[0].space == REGISTER:
        mode = rest.pop(0)
        row_tiles = mode.extent
        if mode != FragmentMode(row_tiles, REGISTER, n // 2):
            return None
    if rest and rest[0].space == THREAD:
        mode = rest.pop(0)
        groups = mode.extent
        if mode != FragmentMode(groups, THREAD, WARPGROUP):
            return None
    if rest or (across > 1 and groups > 1):
        return None
    return AccumulatorTile(n, row_tiles, max(groups, across), across > 1)


def plan_store(request: AsyncCopyRequest) -> BulkCopyPlan | None:
    """Boxes of 64 rows of 128 bytes for a whole accumulator; None when lanes must store it.

    A box that is written begins inside its tensor (CUDA C++ Programming Guide, "Using TMA to
    transfer multi-dimensional arrays") and at a multiple of 16 bytes: one at a negative place, or
    at an odd column, was an illegal instruction on an H200.
    """
    from tilecore_backend_cuda_hopper.copy import is_mappable

    src, dst = request.copy.src, request.copy.dst
    layout = request.kernel.layout_of(src.buffer)
    if not isinstance(layout, FragmentLayout) or dst.buffer.scope is not Scope.GLOBAL:
        return None
    if (src.dtype, dst.dtype) not in _STORED:
        return None
    panel = LINE_BYTES // dst.dtype.bytes
    tile = accumulator_tile(layout, panel)
    shape = src.static_shape
    if tile is None or not is_mappable(dst.buffer) or shape != src.buffer.static_shape:
        return None
    if shape != tile.shape or dst.static_shape != shape:
        return None
    last = dst.buffer.rank - 1
    if len(dst.axes) != 2 or dst.axes[1] != last or any(s != const(0) for s in src.starts):
        return None
    box = [1] * dst.buffer.rank
    box[dst.axes[0]], box[last] = WGMMA_M, panel
    modes = (Mode(tile.groups * SLOTS * WGMMA_M, panel),), (Mode(panel, 1),)
    base = (CHUNK_BYTES // dst.dtype.bytes).bit_length() - 1
    staging = Layout(modes, Swizzle(3, base, 3))
    rounds = _rounds(tile) if dst.dtype.bytes == 2 else 0
    return BulkCopyPlan(
        "swizzle3", tuple(box), (), staging, rounds, begins_at=CHUNK_BYTES // dst.dtype.bytes
    )


def _rounds(tile: AccumulatorTile) -> int:
    """Panels that a warpgroup may store later; 0 where the rounded tile fits no registers."""
    sums = tile.row_tiles * tile.columns // 2
    _, most = REGISTERS.get(tile.groups, (0, LARGEST))
    panels = tile.row_tiles * tile.columns * 2 // LINE_BYTES
    return panels if sums + sums // 2 + SPARE_REGISTERS <= most else 0


def plan_line(request: AsyncCopyRequest) -> BulkCopyPlan | None:
    """A whole buffer of shared memory to neighbours in global memory, without a map: float32, which
    is what the engine adds and the accumulators are; None when lanes must move it.

    Addresses and sizes are multiples of 16 bytes (PTX ISA, "cp.reduce.async.bulk").
    """
    src, dst = request.copy.src, request.copy.dst
    layout = request.kernel.layout_of(src.buffer)
    if not isinstance(layout, Layout) or layout != Layout.row_major(src.static_shape or ()):
        return None
    if src.dtype != float32 or dst.dtype != float32 or dst.buffer.scope is not Scope.GLOBAL:
        return None
    last = dst.buffer.rank - 1
    if dst.axes != (last,) or dst.static_shape != src.static_shape:
        return None
    *outer, inner = strides_of(dst.buffer.shape, dst.buffer.strides)
    (count,) = dst.static_shape or (0,)
    numbers = (count, known_multiple(dst.starts[last]), *map(known_multiple, outer))
    if inner != const(1) or any(number * float32.bytes % CHUNK_BYTES for number in numbers):
        return None
    return BulkCopyPlan("line", (*(1 for _ in outer), count))
