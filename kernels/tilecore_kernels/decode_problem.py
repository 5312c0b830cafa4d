"""What a decoding kernel is asked for, its float64 reference, and its tuning space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.language import GemmWarpPolicy
from tilecore.target import Target
from tilecore_kernels import attention_problem
from tilecore_kernels.attention_problem import (
    WARP_ROLES,
    AttentionProblem,
    check_heads,
    check_page_size,
    check_scale,
)
from tilecore_kernels.family import Arrays
from tilecore_kernels.tiles import (
    BLOCKS_TO_FILL,
    ceildiv,
    dtype_bytes,
    fits_registers,
    fits_shared,
    fits_threads,
    has_lanes,
    pow2_at_least,
)

TILES_TO_SHARE = 16
"""Key tiles of a full sequence from which on a list of shares is worth the kernel that makes it."""
ALL_TILES_TO_SHARE = 1024
"""The same for all sequences together: with half as many, equal lengths lose a tenth to it."""


@dataclass(frozen=True, slots=True)
class DecodeProblem:
    """Attention of one query a sequence over a cache, for (batch, heads, dim) queries.

    A contiguous cache is (batch, kv_heads, kv_len, dim), or (batch, kv_len, kv_heads, dim) with
    `heads_inside`. A cache in pages is (pages, kv_heads, page_size, dim), or
    (pages, page_size, kv_heads, dim) with `heads_inside`; row b of an int32 table names the
    pages of sequence b in order.

    Attributes:
        batch: sequences.
        heads: heads of queries.
        kv_len: capacity of a sequence in the cache; an int32 (batch,) tensor says how many keys
            each has.
        dim: length of a query and of a key.
        dtype: element type of all tensors but the log-sum-exp.
        kv_heads: heads of keys, a divisor of `heads`; 0 means `heads`.
        dim_v: length of a value; 0 means `dim`.
        page_size: keys of one page; 0 is a contiguous cache.
        pages: pages of the cache; 0 means just enough for all sequences.
        heads_inside: keys of one position lie together for all heads.
        softmax_scale: factor of the scores, positive; None means ``dim ** -0.5``.
    """

    batch: int
    heads: int
    kv_len: int
    dim: int
    dtype: str = "float16"
    kv_heads: int = 0
    dim_v: int = 0
    page_size: int = 0
    pages: int = 0
    heads_inside: bool = False
    softmax_scale: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        object.__setattr__(self, "dim_v", self.dim_v or self.dim)
        if self.page_size and not self.pages:
            object.__setattr__(self, "pages", self.batch * self.pages_per_sequence)
        check_heads(self.heads, self.kv_heads)
        check_page_size(self.page_size)
        check_scale(self.softmax_scale)

    @property
    def group(self) -> int:
        """Query heads that share a head of keys."""
        return self.heads // self.kv_heads

    @property
    def scale(self) -> float:
        """The factor of the scores."""
        return self.dim**-0.5 if self.softmax_scale is None else self.softmax_scale

    @property
    def pages_per_sequence(self) -> int:
        """Columns of the page table."""
        return ceildiv(self.kv_len, self.page_size) if self.page_size else 0

    def cache_shape(self, columns: int) -> tuple[int, int, int, int]:
        """Shape of the keys or values of the cache."""
        outer, length = (
            (self.pages, self.page_size) if self.page_size else (self.batch, self.kv_len)
        )
        if self.heads_inside:
            return outer, length, self.kv_heads, columns
        return outer, self.kv_heads, length, columns

    def rows_of(
        self, cache: Any, outer: Any, head: Any, first: Any, count: int, columns: int
    ) -> Any:
        """`count` keys (or values) of one head from `first` on; `outer` is the sequence or page."""
        if self.heads_inside:
            return cache[outer, first : first + count, head, 0:columns]
        return cache[outer, head, first : first + count, 0:columns]


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """How a decoding kernel divides its work.

    Attributes:
        block_h: query heads of one block, padded rows included.
        block_k: keys of one tile.
        num_stages: key tiles in flight.
        threads: threads of one block.
        num_splits: blocks that share the keys of one sequence, whatever its length.
        policy: how warps divide a tile; `FullCol` lets a tile be lower than all warps are.
        num_shares: even shares that the keys of all sequences are divided in (`decode_shares`),
            instead of splits; 0 is none.
    """

    block_h: int
    block_k: int
    num_stages: int
    threads: int
    num_splits: int
    policy: GemmWarpPolicy = GemmWarpPolicy.FullRow
    num_shares: int = 0


def gathered(problem: DecodeProblem, cache: np.ndarray, table: np.ndarray | None) -> np.ndarray:
    """The cache as (batch, kv_heads, kv_len, dim) in float64."""
    rows = np.swapaxes(cache, 1, 2) if problem.heads_inside else cache
    rows = rows.astype(np.float64)
    if table is None:
        return rows
    pages = rows[table]  # (batch, pages, kv_heads, page, dim)
    pages = np.swapaxes(pages, 1, 2)
    shape = (problem.batch, problem.kv_heads, -1, cache.shape[-1])
    return pages.reshape(shape)[:, :, : problem.kv_len]


def reference(
    problem: DecodeProblem,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    lengths: np.ndarray,
    table: np.ndarray | None = None,
) -> Arrays:
    """O and the natural log-sum-exp in float64."""
    keys, values = gathered(problem, k, table), gathered(problem, v, table)
    return attention_problem.reference(as_attention(problem), q, keys, values, lengths)


def as_attention(problem: DecodeProblem) -> AttentionProblem:
    """The same over gathered caches: the group's heads are the queries of one head."""
    p = problem
    return AttentionProblem(
        p.batch, p.kv_heads, p.group, p.dim, p.dtype, kv_len=p.kv_len, dim_v=p.dim_v,
        padded=True, softmax_scale=p.scale,
    )  # fmt: skip


def inputs(problem: DecodeProblem, rng: np.random.Generator) -> Arrays:
    """Normally distributed queries and cache, lengths up to the capacity, pages in any order."""
    p, dtype = problem, numpy_dtype(dtype_of(problem.dtype))
    shapes = (
        (p.batch, p.kv_heads, p.group, p.dim), p.cache_shape(p.dim), p.cache_shape(p.dim_v),
    )  # fmt: skip
    tensors = tuple(rng.standard_normal(shape, np.float32).astype(dtype) for shape in shapes)
    lengths = rng.integers(0, p.kv_len + 1, p.batch).astype(np.int32)
    if p.batch:
        lengths[0] = p.kv_len
    if not p.page_size:
        return *tensors, lengths
    count = p.batch * p.pages_per_sequence
    pages = rng.permutation(p.pages) if p.pages >= count else rng.integers(0, p.pages, count)
    table = pages[:count].reshape(p.batch, -1).astype(np.int32)
    return *tensors, lengths, table


def outputs(problem: DecodeProblem) -> tuple[tuple[tuple[int, ...], str], ...]:
    """O as (batch, kv_heads, group, dim_v), and the log-sum-exp."""
    p = problem
    rows = (p.batch, p.kv_heads, p.group)
    return ((*rows, p.dim_v), p.dtype), (rows, "float32")


def split_counts(blocks: int, tiles: int, target: Target) -> list[int]:
    """Splits worth trying, the first choice in front: enough blocks for the device, each with
    several key tiles.

    Where warps of their own load ahead, one block a multiprocessor keeps the memory busy, and more
    of them only leave more parts to combine; else a second one computes while the first waits.
    """
    most = max(1, tiles // 2)
    first, second = (1, 2) if target.has(WARP_ROLES) else (2, 1)
    wanted = (first * BLOCKS_TO_FILL, second * BLOCKS_TO_FILL, 4 * BLOCKS_TO_FILL, blocks)
    return list(dict.fromkeys(max(1, min(most, round(w / blocks))) for w in wanted))


def share_counts(blocks: int, problem: DecodeProblem, block_k: int, target: Target) -> list[int]:
    """Even shares worth trying, the first choice in front; none where splits are as even.

    Two blocks a multiprocessor, all at once: where one waits for its next sequence, the other
    loads. Lengths are not known before a kernel runs, so that every batch that is not small is
    divided so.

    Args:
        blocks: blocks of one share: heads of keys, times tiles of the heads that share one.
        problem: its batch and capacity.
        block_k: keys of one tile.
        target: without lanes, nothing is shared: not measured there.
    """
    tiles = ceildiv(problem.kv_len, block_k)
    few = tiles < TILES_TO_SHARE or problem.batch * tiles < ALL_TILES_TO_SHARE
    if problem.batch < 2 or few or not has_lanes(target):
        return []
    wanted = (w * (target.parallel_blocks or BLOCKS_TO_FILL) // blocks for w in (2, 1))
    return list(dict.fromkeys(count for count in wanted if count > 1))


def divisions(
    blocks: int, problem: DecodeProblem, block_k: int, target: Target
) -> list[tuple[int, int]]:
    """(splits, shares) worth trying, the first choice in front; arguments as of `share_counts`."""
    shares = share_counts(blocks, problem, block_k, target)
    splits = split_counts(max(1, problem.batch * blocks), ceildiv(problem.kv_len, block_k), target)
    return [(1, count) for count in shares] + [(count, 0) for count in splits]


def configs(problem: DecodeProblem, target: Target) -> Sequence[DecodeConfig]:
    """Legal configurations, the first choice in front."""
    p = problem
    longest = max(16, pow2_at_least(p.kv_len))
    if not has_lanes(target):
        found = [
            DecodeConfig(
                min(p.group, 64), min(block_k, longest), 1, 128,
                split_counts(p.batch * p.kv_heads, ceildiv(p.kv_len, block_k), target)[-1],
            )
            for block_k in (256, 128, 64)
        ]  # fmt: skip
        return list(dict.fromkeys(found))
    space = []
    for block_h, threads in ((64, 128), (16, target.lanes_per_warp), (16, 128), (128, 256)):
        policy = (
            GemmWarpPolicy.FullCol
            if threads // target.lanes_per_warp * 16 > block_h
            else GemmWarpPolicy.FullRow
        )
        blocks = p.kv_heads * ceildiv(p.group, block_h)
        for block_k in (128, 64, 32, 16):
            for splits, shares in divisions(blocks, p, block_k, target):
                space += [
                    DecodeConfig(
                        block_h, min(block_k, longest), stages, threads, splits, policy, shares
                    )
                    for stages in (3, 2, 4, 1)
                ]  # fmt: skip
    legal = [c for c in dict.fromkeys(space) if _is_legal(c, problem, target)]
    return sorted(legal, key=lambda c: _cost(c, problem, target))


def _is_legal(config: DecodeConfig, problem: DecodeProblem, target: Target) -> bool:
    width = dtype_bytes(problem.dtype)
    keys = config.num_stages * config.block_k * (problem.dim + problem.dim_v)
    smem_bytes = (config.block_h * problem.dim + keys) * width
    if width > 2 or config.policy is GemmWarpPolicy.FullCol:
        smem_bytes += config.block_h * config.block_k * width
    fragment_bytes = config.block_h * (config.block_k * (4 + width) + problem.dim_v * 4)
    return (
        fits_threads(config.threads, target)
        and fits_shared(smem_bytes, target)
        and fits_registers(fragment_bytes, config.threads, target, share=0.9)
    )


def _cost(config: DecodeConfig, problem: DecodeProblem, target: Target) -> tuple[float, ...]:
    """Rows beyond the group are wasted work; then four warps on 64 keys, three tiles in flight.

    Two tiles where warps of their own load ahead and blocks are few: the blocks of the next launch
    then find room beside these and are ready when they end. Order of the rest as measured
    (docs/performance-log.md, decoding): within 5 % of the fastest.
    """
    rows = ceildiv(problem.group, config.block_h) * config.block_h
    is_short = target.has(WARP_ROLES) and config.num_splits > 1
    stages = ((2, 3, 4, 1) if is_short else (3, 2, 4, 1)).index(config.num_stages)
    return (rows, abs(config.threads - 128), abs(config.block_k - 64), stages)


def flops(problem: DecodeProblem) -> float:
    """Multiply-adds of both products for full caches, times two."""
    p = problem
    return 2.0 * p.batch * p.heads * p.kv_len * (p.dim + p.dim_v)


def bytes_moved(problem: DecodeProblem) -> float:
    """Each tensor once, for full caches."""
    p = problem
    queries = p.batch * p.heads * (p.dim + p.dim_v)
    keys = p.batch * p.kv_heads * p.kv_len * (p.dim + p.dim_v)
    return float((queries + keys) * dtype_bytes(p.dtype))


PROBLEMS = (
    DecodeProblem(1, 32, 8192, 128, kv_heads=8),
    DecodeProblem(1, 32, 131072, 128, kv_heads=8),
    DecodeProblem(8, 32, 32768, 128, kv_heads=8),
    DecodeProblem(64, 32, 8192, 128, kv_heads=8),
    DecodeProblem(64, 32, 8192, 128, kv_heads=8, page_size=64, heads_inside=True),
    DecodeProblem(16, 8, 8192, 64, "bfloat16", kv_heads=8),
)
"""Sizes worth measuring."""
