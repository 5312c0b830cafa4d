"""The space of gemm tiles: enumerated, filtered by what fits, ranked by a small cost model."""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.target import Target
from tilecore_kernels.tiles import (
    BLOCKS_TO_FILL,
    ceildiv,
    core_caches,
    fits_registers,
    fits_shared,
    fits_threads,
    has_lanes,
    pow2_at_least,
    round_up,
)

WAITING = "waits_in_registers"
"""Capability of targets whose pipelined copies wait in registers, not in shared memory."""


BULK_OPERANDS = 28.0
"""Cost of an operand row or column of a tile, in products, where one block has a multiprocessor:
the 8.6 % that 128x128 tiles lose to 128x256 ones at 4096^3 (docs/performance-log.md)."""

PANEL_ROWS = 2048
"""Rows of C in one panel where one block has a multiprocessor: the tiles at work are then about as
high as wide. Half as many lose 1 % at 4096^3 and 3 % with groups (docs/performance-log.md)."""

BYTES_UNDER_WAY = 1 << 17
"""Bytes of operands in flight that hide memory's latency behind one block of a multiprocessor:
8 slots of 16 KiB reach the bandwidth that 12 reach (docs/performance-log.md)."""

SHORT_ROWS = 1.08
"""Rows of 64 bytes against 128 of 8-bit elements: what int8 loses in 128x128 and 128x256 tiles, and
8-bit floats in 64x128 ones, without spills (docs/performance-log.md)."""

TWICE_IN_REGISTERS = 1.12
"""8-bit floats that are converted before each product are in registers twice: tiles of 128 sums a
thread lose 9 to 11 % to those of 64 (docs/performance-log.md)."""

TILE_INSTRUCTIONS = {"bfloat16": "tile_bf16", "int8": "tile_int8", "uint8": "tile_int8"}
"""Capabilities of targets without lanes whose cores multiply tiles of these types."""


@dataclass(frozen=True, slots=True)
class GemmConfig:
    """Tiles and schedule of one gemm.

    Attributes:
        block_m: rows of C that one block computes.
        block_n: columns of C that one block computes.
        block_k: length of the sums that one step of the main loop adds.
        num_stages: operand tiles in flight.
        threads: threads of one block.
        panel: blocks of one panel of the walk over the grid (see T.use_swizzle); 0 is off.
    """

    block_m: int
    block_n: int
    block_k: int
    num_stages: int
    threads: int
    panel: int = 0


def gemm_configs(
    m: int,
    n: int,
    k: int,
    element_bytes: int,
    accum_bytes: int,
    target: Target,
    dtype: str = "",
    *,
    along_k: bool = False,
) -> list[GemmConfig]:
    """Legal configurations, cheapest first by the model of this file; `dtype` of the operands
    says whether a core multiplies them by tile instructions, `along_k` that both are stored with
    neighbours along k, so that lanes load 8-bit ones as matrices."""
    if has_lanes(target):
        space = _waiting_space(k) if target.has(WAITING) else _lane_space(k, target)
        legal = [c for c in space if _is_legal(c, element_bytes, accum_bytes, target)]
        narrow = dtype if along_k and element_bytes == 1 else ""
        return sorted(legal, key=lambda c: _lane_cost(c, m, n, k, element_bytes, target, narrow))
    if target.has(TILE_INSTRUCTIONS.get(dtype, "")):
        space = _tile_space(m, n, k, element_bytes)
        return sorted(space, key=lambda c: _tile_cost(c, m, n, k, target))
    space = _core_space(m, n, k, element_bytes, target)
    return sorted(space, key=lambda c: _core_cost(c, m, n, k, element_bytes, target))


def _lane_space(k: int, target: Target) -> list[GemmConfig]:
    # Where whole tiles are copied in bulk, one lane fills any number of slots, and matrix units
    # take any number of columns: 192 where 256 leaves half a round, 32 for few tiles.
    bulk = target.has("bulk_copy")
    return [
        GemmConfig(block_m, block_n, block_k, stages, threads, PANEL_ROWS // block_m if bulk else 8)
        for block_m in (64, 128, 256)
        for block_n in ((32, 64, 128, 192, 256) if bulk else (64, 128, 256))
        for block_k in (16, 32, 64, 128)
        for threads in (128, 256)
        for stages in ((2, 3, 4, 6, 8, 12) if bulk else (2, 3, 4))
        if block_k <= max(16, pow2_at_least(k))
    ]


def _waiting_space(k: int) -> list[GemmConfig]:
    """For targets whose tiles wait in registers: slots of shared memory are the target's choice."""
    return [
        GemmConfig(block_m, block_n, block_k, 2, threads, panel=8)
        for block_m in (64, 128, 256)
        for block_n in (64, 128, 256)
        for block_k in (16, 32, 64, 128)
        for threads in (256, 512)
        if block_k <= max(16, pow2_at_least(k))
    ]


def _slots(config: GemmConfig, target: Target) -> int:
    """Operand tiles in shared memory at once."""
    return 1 if target.has(WAITING) else config.num_stages


def _is_legal(config: GemmConfig, element_bytes: int, accum_bytes: int, target: Target) -> bool:
    row_bytes = config.block_k * element_bytes
    smem_bytes = _slots(config, target) * (config.block_m + config.block_n) * row_bytes
    fragment_bytes = config.block_m * config.block_n * accum_bytes
    return (
        fits_threads(config.threads, target)
        and fits_shared(smem_bytes, target)
        and fits_registers(fragment_bytes, config.threads, target)
        and 32 <= row_bytes <= 256
    )


def rounds_of(config: GemmConfig, m: int, n: int, target: Target) -> int:
    """How often the device is filled until all tiles of C are computed."""
    blocks = ceildiv(m, config.block_m) * ceildiv(n, config.block_n)
    return ceildiv(blocks, target.parallel_blocks or BLOCKS_TO_FILL)


def _lane_cost(
    config: GemmConfig, m: int, n: int, k: int, element_bytes: int, target: Target, narrow: str = ""
) -> tuple[float, ...]:
    """Rounds over the device times the work of a tile, penalised where operands are short.

    A tile's operands cost (block_m + block_n) per block_m * block_n of products. Where whole tiles
    are copied in bulk, rows of 128 bytes move best and one large block fills a multiprocessor;
    elsewhere two smaller blocks hide each other's waits. Few stages leave latency visible; too few
    products to a thread leave the matrix units idle; four warps feed the four units of a block's
    multiprocessor. `narrow` is the dtype of 8-bit operands that lanes load as matrices.
    """
    rounds = rounds_of(config, m, n, target)
    tile = config.block_m * config.block_n
    weight = BULK_OPERANDS if target.has("bulk_copy") else 8.0
    operand_share = weight * (config.block_m + config.block_n) / tile
    row_bytes = config.block_k * element_bytes
    smem_bytes = _slots(config, target) * (config.block_m + config.block_n) * row_bytes
    if target.has(WAITING):
        return _waiting_cost(config, rounds * tile, operand_share, row_bytes, smem_bytes, target)
    penalty = {2: 1.1, 3: 1.04}.get(config.num_stages, 1.0)
    if target.has("bulk_copy"):
        # One block a multiprocessor has to keep enough bytes under way.
        penalty *= 1.0 + 0.1 * max(0.0, 1.0 - smem_bytes / BYTES_UNDER_WAY)
        penalty *= {128: 1.0, 64: 1.05, 256: 1.05}.get(row_bytes, 1.2)
    else:
        short = SHORT_ROWS if narrow else 1.0
        penalty *= {128: 1.0, 64: short, 256: 1.05}.get(row_bytes, 1.2)
        if narrow.startswith("float8") and target.has("float8") and not target.has("float8_mma"):
            penalty *= TWICE_IN_REGISTERS if tile / config.threads > 64 else 1.0
        penalty *= 1.0 if 2 * smem_bytes <= target.smem_bytes else 1.08
    if not 48 <= tile / config.threads <= 128:
        penalty *= 1.25
    padded_k = ceildiv(k, config.block_k) * config.block_k
    cost = rounds * tile * padded_k * (1.0 + operand_share) * penalty
    # One tile a multiprocessor is over soon: then every slot that there is room for helps
    # (128x7168x16384 in 64x128 tiles, 8 slots against 6: 7 %).
    slots = -smem_bytes if rounds == 1 and target.has("bulk_copy") else smem_bytes
    return (cost, slots, abs(config.threads / target.lanes_per_warp - 4))


def _waiting_cost(
    config: GemmConfig, work: int, operand_share: float, row_bytes: int, smem_bytes: int,
    target: Target,
) -> tuple[float, ...]:  # fmt: skip
    """`_lane_cost` where tiles wait in registers.

    A second slot of shared memory saves one of two barriers a step and hides the stores before the
    other; two warps on each of four matrix units hide one another's waits.
    """
    warps = config.threads // target.lanes_per_warp
    penalty = {128: 1.0, 64: 1.0}.get(row_bytes, 1.2)
    penalty *= 1.0 if 2 * smem_bytes <= target.smem_bytes else 1.15
    if not 64 <= config.block_m * config.block_n / config.threads <= 128:
        penalty *= 1.25
    return (work * (1.0 + operand_share) * penalty, -smem_bytes, abs(warps - 8))


def _core_space(m: int, n: int, k: int, element_bytes: int, target: Target) -> list[GemmConfig]:
    """Equal cuts of the matrices, so that the last tile is about as large as the others.

    A step of k is as deep as 32 columns of B fill two thirds of the first-level cache, or twice as
    deep, which visits the sums half as often (measured: 1 to 4 % faster).
    """
    depth = max(64, core_caches(target)[0] * 2 // 3 // (32 * element_bytes) // 32 * 32)
    return [
        GemmConfig(block_m, block_n, block_k, 1, 128)
        for block_m in _cuts(m, (64, 128, 192, 256, 352, 512), 16)
        for block_n in _cuts(n, (64, 128, 256, 384, 512, 1024), 32)
        for block_k in _cuts(k, (2 * depth, depth, depth // 2), 32)
    ]


def _cuts(extent: int, sizes: tuple[int, ...], step: int) -> list[int]:
    """Tile sizes: `extent` cut into equal parts of about `sizes`, rounded up to `step`; and powers
    of two, which programs with blocks of their own (scales, groups) need."""
    parts = [ceildiv(extent, max(1, ceildiv(extent, size))) for size in sizes]
    parts += [size for size in _PLAIN_SIZES if size <= max(_PLAIN_SIZES[0], pow2_at_least(extent))]
    return list(dict.fromkeys(max(step, round_up(part, step)) for part in parts))


_PLAIN_SIZES = (64, 128, 256)


_OPERAND_COST = 16.0
"""Bringing an element of A or B to a core, in multiplications (measured: 3 ns a cache line against
80 multiplications a nanosecond)."""
_REVISIT_COST = 4.0
"""The same for reading and writing a sum that lies in the second-level cache."""


def _core_cost(
    config: GemmConfig, m: int, n: int, k: int, element_bytes: int, target: Target
) -> tuple[float, ...]:
    """Rounds over the cores times the work of a tile and what it moves.

    The sums of a tile and the step's rows of A should take half of the second-level cache; where
    they take more, each revisit comes from further away (measured: tiles of 500 x 1024 beat those
    of 336 x 512 by 2 to 10 % at 1999^3 although they fill the cache).
    """
    blocks = ceildiv(m, config.block_m) * ceildiv(n, config.block_n)
    units = max(1, target.parallel_blocks)
    imbalance = ceildiv(blocks, units) * units / max(1, blocks) * (1.0 + 0.1 / max(1, blocks))
    held = config.block_m * (config.block_n * 4 + config.block_k * element_bytes)
    crowding = max(1.0, 2.0 * held / core_caches(target)[1])
    moved = _OPERAND_COST * element_bytes / 4 * (1.0 / config.block_m + 1.0 / config.block_n)
    revisits = _REVISIT_COST / config.block_k * crowding
    cost = (1.0 + moved + revisits) * imbalance
    return (cost, config.block_m * config.block_n, -config.block_k)


def _tile_space(m: int, n: int, k: int, element_bytes: int) -> list[GemmConfig]:
    """For cores with tile instructions: they multiply ten times as fast as memory brings operands,
    so that tiles are as large as leaves each core one, and sums as long as possible."""
    return [
        GemmConfig(block_m, block_n, block_k, 1, 128)
        for block_m in _cuts(m, (256, 512, 1024, 2048), 32)
        for block_n in _cuts(n, (256, 512, 1024, 2048), 32)
        for block_k in _cuts(k, (4096 // element_bytes, 2048 // element_bytes), 64)
    ]


_TILE_OPERAND_COST = 120.0
"""Packing an element of A or B, in multiplications of tile instructions (measured: 0.16 ns against
780 multiplications a nanosecond)."""
_TILE_REVISIT_COST = 330.0
"""Reading and writing a sum once more than needed, in the same unit (measured: 0.43 ns)."""


def _tile_cost(config: GemmConfig, m: int, n: int, k: int, target: Target) -> tuple[float, ...]:
    """Rounds over the cores times the work of a tile and what it moves."""
    rows, columns = ceildiv(m, config.block_m), ceildiv(n, config.block_n)
    units = max(1, target.parallel_blocks)
    rounds = ceildiv(rows * columns, units)
    padded = rounds * config.block_m * config.block_n * units / max(1, m * n)
    moved = _TILE_OPERAND_COST * (1.0 / config.block_m + 1.0 / config.block_n)
    revisits = _TILE_REVISIT_COST * (ceildiv(k, config.block_k) - 1) / max(1, k)
    return (padded * (1.0 + moved + revisits), config.block_m * config.block_n, -config.block_k)
