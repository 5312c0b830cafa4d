"""How one step of a blocked product is cut: panels of B, passes over k, row blocks of A."""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.dtypes import DType

from .gemm_plan import GemmPlan, split_rows
from .host import HostCpu

_LEFT_PITCH_PAD_BYTES = 64
"""Rows of a packed A block must not all begin in one set of the first-level cache."""
_TRANSPOSED_ROWS = 16
"""Pitch, in elements, of a packed block of a transposed A: at least the rows of one block."""
_TILE_PANELS = 4
"""The most panels packed together for tile instructions: 32 columns of two bytes are one line of a
row, and lines of memory come twice as fast when four neighbours are asked for at a time."""
_MOST_TILE_DEPTH_BYTES = 4096
"""Of a row of A in one pass of tile instructions. Chunks of A (5/16 of the second-level cache) and
panels of B that are packed together (1/8 of it) were measured best at 128 to 320 rows, 2 to 4
panels: what else passes through the cache then leaves them there."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """A tile's product: sizes, whether operands are stored transposed, types, pitch of C.

    `clear` says that the sums begin at zero in every step, `may_clear` that they do where the
    caller says so. `is_private` says that C is read by nothing but the copy of the result.
    `b_columns` are the columns of the whole matrix B, where that is known.
    """

    m: int
    n: int
    k: int
    a_dtype: DType
    b_dtype: DType
    c_dtype: DType
    out_dtype: DType
    c_pitch: int
    transpose_a: bool
    transpose_b: bool
    clear: bool
    may_clear: bool = False
    is_private: bool = False
    b_columns: int | None = None


RowBlocks = tuple[tuple[int, int], ...]
"""(Rows of each, how many) one after the other."""


@dataclass(frozen=True, slots=True)
class StepBlocking:
    """How a step is cut.

    Attributes:
        width: columns of a panel of B.
        panels: so many are packed together.
        depth: of one pass over k.
        passes: over k.
        chunks: pieces of A, packed one after the other, each a sequence of row blocks as (rows of
            each, how many). With more than one the panels of B are all kept for the next.
        left_pitch: elements from row to row of a packed A; 0 where it lies in tiles.
    """

    width: int
    panels: int
    depth: int
    passes: int
    chunks: tuple[RowBlocks, ...]
    left_pitch: int

    @property
    def left_row(self) -> int:
        """Elements that a row of a packed A takes."""
        return self.left_pitch or self.depth

    @property
    def blocks(self) -> int:
        """Row blocks of the first, largest chunk."""
        return sum(count for _, count in self.chunks[0])

    @property
    def chunk_rows(self) -> int:
        """Rows of the first, largest chunk."""
        return sum(rows * count for rows, count in self.chunks[0])

    @property
    def keeps_panels(self) -> bool:
        """Whether packed panels of B are used by several chunks."""
        return len(self.chunks) > 1

    @property
    def group(self) -> int:
        """Columns packed together."""
        return self.width * self.panels


def step_blocking(shape: StepShape, plan: GemmPlan, cpu: HostCpu) -> StepBlocking:
    """Cut a step for the caches of `cpu`."""
    if plan.kind == "tile":
        return _tile_blocking(shape, plan, cpu)
    # A panel of B fills two thirds of the first-level cache while all rows of A pass by.
    width, step = plan.n_block, max(32, plan.k_block)
    room = cpu.l1_bytes * 2 // 3
    depth, passes = _passes(shape.k, room // (width * shape.b_dtype.bytes), step)
    pad = _LEFT_PITCH_PAD_BYTES // plan.a_dtype.bytes
    pitch = _TRANSPOSED_ROWS if shape.transpose_a else depth + pad
    return StepBlocking(width, 1, depth, passes, (tuple(split_rows(shape.m, plan.m_block)),), pitch)


def _tile_blocking(shape: StepShape, plan: GemmPlan, cpu: HostCpu) -> StepBlocking:
    """Sums stay in accumulators for as much of k as possible: operands then come from the
    second-level cache, a quarter slower than from the first, but C comes and goes only once."""
    size, width = shape.a_dtype.bytes, 32
    rows = -(-shape.m // 16) * 16
    most_bytes = cpu.l2_bytes * 5 // 16
    deepest = min(_MOST_TILE_DEPTH_BYTES // size, most_bytes // (min(rows, 128) * size))
    depth, passes = _passes(shape.k, deepest, plan.k_block)
    panels = max(1, min(_TILE_PANELS, cpu.l2_bytes // 8 // (width * depth * size)))
    most = max(32, most_bytes // (depth * size) // 32 * 32)
    chunk = -(-rows // -(-rows // most) // 32) * 32
    chunks = []
    for first in range(0, rows, chunk):
        pairs, rest = divmod(min(chunk, rows - first) // 16, 2)
        chunks.append(tuple(part for part in ((32, pairs), (16, rest)) if part[1]))
    return StepBlocking(width, min(panels, -(-shape.n // 32)), depth, passes, tuple(chunks), 0)


def _passes(k: int, most: int, step: int) -> tuple[int, int]:
    """Depth of a pass, a multiple of `step`, and the number of passes: equal parts of k."""
    most = max(step, most // step * step)
    share = -(-k // -(-k // most))
    depth = -(-share // step) * step
    return depth, -(-k // depth)


def panel_bytes(shape: StepShape, plan: GemmPlan, cpu: HostCpu) -> tuple[int, int]:
    """Memory for the packed rows of A and for the panels of B that are packed together."""
    cut = step_blocking(shape, plan, cpu)
    left = cut.chunk_rows * cut.left_row
    if shape.transpose_a:
        left = cut.blocks * cut.depth * cut.left_pitch
    columns = cut.group
    if cut.keeps_panels:
        columns = -(-shape.n // cut.group) * cut.group * cut.passes
    return left * plan.a_dtype.bytes, columns * cut.depth * shape.b_dtype.bytes
