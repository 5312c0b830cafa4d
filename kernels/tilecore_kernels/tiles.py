"""Choosing tile sizes from the numbers of a target, never from its name.

Two kinds of target matter to a tile program: those whose blocks have lanes (threads, registers and
shared memory are resources that a tile must fit), and those that run a block on one core, where a
tile should fill a cache and threads mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.dtypes import dtype_of
from tilecore.target import Target

CORE_CACHE_BYTES = 1 << 20
"""Second-level cache to plan for on targets without lanes; common cores have 0.5 to 2 MiB."""

CORE_FIRST_CACHE_BYTES = 32 << 10
"""The same of the first level; common cores have 32 to 64 KiB."""

BLOCKS_TO_FILL = 128
"""Blocks that keep a device with lanes busy: large devices have 100 to 300 multiprocessors."""


@dataclass(frozen=True, slots=True)
class RowConfig:
    """Tiles of a kernel that works along rows.

    Attributes:
        block_rows: rows of one tile.
        block_cols: columns of one tile; a longer row is walked tile by tile.
        threads: threads of one block.
    """

    block_rows: int
    block_cols: int
    threads: int


def has_lanes(target: Target) -> bool:
    """True when threads, registers and shared memory limit a block on this target."""
    return target.max_threads > 0


def core_caches(target: Target) -> tuple[int, int]:
    """First- and second-level cache of one core, as the target says or as common cores have."""
    known = target.cache_bytes
    first = known[0] if known else CORE_FIRST_CACHE_BYTES
    return first, known[1] if len(known) > 1 else CORE_CACHE_BYTES


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element."""
    return dtype_of(dtype).bytes


def ceildiv(a: int, b: int) -> int:
    """``a / b`` rounded up."""
    return -(-a // b)


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `value`."""
    return ceildiv(value, multiple) * multiple


def pow2_at_least(value: int) -> int:
    """The smallest power of two that is at least `value` (and at least 1)."""
    return 1 << max(0, value - 1).bit_length()


def fits_threads(threads: int, target: Target) -> bool:
    """True when a block of `threads` is legal: whole warps, not above the target's limit."""
    return threads <= target.max_threads and threads % target.lanes_per_warp == 0


def fits_shared(smem_bytes: int, target: Target) -> bool:
    """True when `smem_bytes` of shared memory fit a block (0 in the target means no limit)."""
    return target.smem_bytes == 0 or smem_bytes <= target.smem_bytes


def fits_registers(fragment_bytes: int, threads: int, target: Target, share: float = 2 / 3) -> bool:
    """True when fragments of so many bytes take at most `share` of the threads' registers."""
    if target.registers_per_thread == 0:
        return True
    return fragment_bytes / threads / 4 <= target.registers_per_thread * share


def row_configs(rows: int, cols: int, target: Target, live_tiles: int = 2) -> list[RowConfig]:
    """Tiles for kernels along rows (softmax, norms, reductions), the first choice in front.

    Args:
        rows: number of rows, all leading axes together.
        cols: length of one row.
        target: what the kernel is compiled for.
        live_tiles: float32 tiles that are alive at the same time.
    """
    if not has_lanes(target):
        # A whole row in the first-level cache when it fits; several short rows share a tile.
        widest = min(pow2_at_least(cols), CORE_CACHE_BYTES // (16 * live_tiles))
        found = [
            RowConfig(max(1, min(pow2_at_least(rows), tile // width)), width, 128)
            for width in (widest, 4096, 1024)
            if width <= widest
            for tile in (4096, 8192, 16384)
        ]
        return list(dict.fromkeys(found))
    found = []
    for threads in (128, 256, 512, 64):
        for per_thread in (32, 16, 64, 8):
            width = min(pow2_at_least(cols), threads * per_thread)
            tile_rows = max(1, min(pow2_at_least(rows), threads * per_thread // width))
            while tile_rows > 1 and ceildiv(rows, tile_rows) < BLOCKS_TO_FILL:
                tile_rows //= 2
            fragment_bytes = 4 * live_tiles * tile_rows * width
            if fits_threads(threads, target) and fits_registers(fragment_bytes, threads, target):
                found.append(RowConfig(tile_rows, width, threads))
    # A row in one tile is read once; then the fewest threads that hold it.
    found.sort(key=lambda c: (c.block_cols < cols, abs(c.block_rows * c.block_cols - 4096)))
    return list(dict.fromkeys(found))
