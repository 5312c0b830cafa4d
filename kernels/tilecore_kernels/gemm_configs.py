"""The space of gemm tiles: enumerated, filtered by what fits, ranked by a small cost model."""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.target import Target
from tilecore_kernels.tiles import (
    BLOCKS_TO_FILL,
    CORE_CACHE_BYTES,
    ceildiv,
    fits_registers,
    fits_shared,
    fits_threads,
    has_lanes,
    pow2_at_least,
)

WAITING = "waits_in_registers"
"""Capability of targets whose pipelined copies wait in registers, not in shared memory."""


BYTES_UNDER_WAY = 1 << 17
"""Bytes of operands in flight that hide memory's latency behind one block of a multiprocessor:
8 slots of 16 KiB reach the bandwidth that 12 reach (docs/performance-log.md)."""


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
    m: int, n: int, k: int, element_bytes: int, accum_bytes: int, target: Target
) -> list[GemmConfig]:
    """Legal configurations, cheapest first by the model of this file."""
    if has_lanes(target):
        space = _waiting_space(k) if target.has(WAITING) else _lane_space(k, target)
        legal = [c for c in space if _is_legal(c, element_bytes, accum_bytes, target)]
        return sorted(legal, key=lambda c: _lane_cost(c, m, n, k, element_bytes, target))
    return sorted(_core_space(m, n, k, element_bytes), key=lambda c: _core_cost(c, m, n, k))


def _lane_space(k: int, target: Target) -> list[GemmConfig]:
    # Where whole tiles are copied in bulk, one lane fills any number of slots, and matrix units
    # take any number of columns: 192 is for sizes that 256 leaves half a round of.
    bulk = target.has("bulk_copy")
    return [
        GemmConfig(block_m, block_n, block_k, stages, threads, panel=8)
        for block_m in (64, 128, 256)
        for block_n in ((64, 128, 192, 256) if bulk else (64, 128, 256))
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


def _lane_cost(
    config: GemmConfig, m: int, n: int, k: int, element_bytes: int, target: Target
) -> tuple[float, ...]:
    """Rounds over the device times the work of a tile, penalised where operands are short.

    A tile's operands cost (block_m + block_n) per block_m * block_n of products. Where whole tiles
    are copied in bulk, rows of 128 bytes move best and one large block fills a multiprocessor;
    elsewhere two smaller blocks hide each other's waits. Few stages leave latency visible; too few
    products to a thread leave the matrix units idle; four warps feed the four units of a block's
    multiprocessor.
    """
    blocks = ceildiv(m, config.block_m) * ceildiv(n, config.block_n)
    rounds = ceildiv(blocks, BLOCKS_TO_FILL)
    tile = config.block_m * config.block_n
    operand_share = 8.0 * (config.block_m + config.block_n) / tile
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
        penalty *= {128: 1.0, 64: 1.0, 256: 1.05}.get(row_bytes, 1.2)
        penalty *= 1.0 if 2 * smem_bytes <= target.smem_bytes else 1.08
    if not 48 <= tile / config.threads <= 128:
        penalty *= 1.25
    padded_k = ceildiv(k, config.block_k) * config.block_k
    cost = rounds * tile * padded_k * (1.0 + operand_share) * penalty
    return (cost, smem_bytes, abs(config.threads / target.lanes_per_warp - 4))


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


def _core_space(m: int, n: int, k: int, element_bytes: int) -> list[GemmConfig]:
    # One core packs a tile of A and of B for each step; both stay in its second-level cache.
    found = [
        GemmConfig(block_m, block_n, block_k, 1, 128)
        for block_m in (64, 128, 192, 256, 384)
        for block_n in (64, 128, 192, 256, 384)
        for block_k in (64, 128, 256, 512)
        if block_m <= max(64, pow2_at_least(m))
        and block_n <= max(64, pow2_at_least(n))
        and block_k <= max(64, pow2_at_least(k))
    ]
    return [
        c
        for c in found
        if (c.block_m + c.block_n) * c.block_k * element_bytes <= CORE_CACHE_BYTES // 2
        and c.block_m * c.block_n * 4 <= CORE_CACHE_BYTES // 2
    ]


def _core_cost(config: GemmConfig, m: int, n: int, k: int) -> tuple[float, ...]:
    """Padded work, plus packing and C traffic relative to the products of a tile.

    Sums beyond 128 KiB share the second-level cache badly with the packed operands.
    """
    rows, cols = ceildiv(m, config.block_m), ceildiv(n, config.block_n)
    steps = ceildiv(k, config.block_k)
    padded = rows * cols * config.block_m * config.block_n * steps * config.block_k
    packing = 8.0 * (config.block_m + config.block_n) / (config.block_m * config.block_n)
    revisits = 8.0 / config.block_k
    imbalance = 1.0 + 0.5 / max(1, rows * cols)
    crowding = 1.0 if config.block_m * config.block_n <= 1 << 15 else 1.06
    cost = padded * (1.0 + packing + revisits) * imbalance * crowding
    return (cost, config.block_m * config.block_n, abs(config.block_k - 256), -config.block_m)
