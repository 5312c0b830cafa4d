"""Decoding with multi-head latent attention: all heads of queries share one latent key.

A cached row is a latent vector of `dim_v` elements followed by a rotary part; the whole row is the
key, and its latent part is also the value. A tile of the cache is therefore read once and used by
both products: ``S = Q K^T`` over all columns, ``O += P K[:, :dim_v]``.

Outputs are wide (512 columns for 64 heads), so that warps divide columns, not rows: each holds all
rows of its columns of O, and the weights go from one product to the other through shared memory.
"""

# Annotations are values of the tile language here, so they are not postponed.

from collections.abc import Sequence
from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.target import Target
from tilecore_kernels import decode_problem
from tilecore_kernels.attention_masks import hide_beyond
from tilecore_kernels.attention_problem import WARP_ROLES
from tilecore_kernels.decode_pieces import list_pieces
from tilecore_kernels.decode_problem import DecodeConfig, DecodeProblem, divisions, split_counts
from tilecore_kernels.decode_shares import PART_WORDS, PIECE_WORDS, places_of
from tilecore_kernels.family import Arrays, Family
from tilecore_kernels.flash_decode import tensor_types
from tilecore_kernels.online_softmax import LOG2_E, add_values, new_rows
from tilecore_kernels.paged import load_keys
from tilecore_kernels.split_combine import combine_shares, combine_splits, leave_part
from tilecore_kernels.tiles import (
    ceildiv,
    dtype_bytes,
    fits_registers,
    fits_shared,
    fits_threads,
    has_lanes,
    pow2_at_least,
)

SLACK = 8.0
"""What `online_softmax` calls so: accumulators of 512 columns are seldom rescaled."""


def mla_decode(problem: DecodeProblem, config: DecodeConfig) -> Any:
    """Tile program: Q, latent cache, lengths, [page table], then O and the log-sum-exp.

    Args:
        problem: with one head of keys, and `dim_v` latent columns of `dim`.
        config: `block_h` heads of one block, `block_k` keys of one tile.
    """
    p, tile_h, tile_k, splits = problem, config.block_h, config.block_k, config.num_splits
    scale = p.scale * LOG2_E

    @T.macro
    def attend(Q, Cache, Table, Parts, Sums, Out, LSE, bx, batch, tiles, limit, place, is_whole):
        """Attend to the tiles (first, behind the last) of one sequence."""
        q = T.alloc_shared((tile_h, p.dim), p.dtype)
        latent = T.alloc_shared((tile_k, p.dim), p.dtype)
        weights = T.alloc_shared((tile_h, tile_k), p.dtype)
        scores = T.alloc_fragment((tile_h, tile_k), "float32")
        out = T.alloc_fragment((tile_h, p.dim_v), "float32")
        first_h = bx * tile_h
        T.copy(Q[batch, 0, first_h : first_h + tile_h, 0 : p.dim], q)
        T.clear(out)
        rows = new_rows(tile_h)
        for step in T.Pipelined(*tiles, num_stages=config.num_stages):
            first_k = step * tile_k
            load_keys(p, Cache, Table, latent, batch, 0, first_k, limit)
            T.gemm(q, latent, scores, transpose_B=True, clear_accum=True, policy=config.policy)
            hide_beyond(scores, first_k, limit)
            values = latent[:, 0 : p.dim_v]
            add_values(rows, scores, weights, values, out, scale, SLACK, policy=config.policy)
        leave_part(rows, out, batch, place, is_whole, 0, first_h, Parts, Sums, Out, LSE)

    types = tensor_types(p)

    @T.prim_func
    def mla_decode(
        Q: types["Q"], Cache: types["K"], Lengths: types["Lengths"], Table: types["Table"],
        Out: types["Out"], LSE: types["LSE"],
    ):  # fmt: skip
        row_tiles, places = T.ceildiv(p.group, tile_h), places_of(p, config)
        Parts, Sums = None, None
        if places:
            Parts = T.alloc_global((places, 1, p.group, p.dim_v), "float32")
            Sums = T.alloc_global((places, 1, p.group), "float32")
        if config.num_shares:
            Pieces = T.alloc_global((places, PIECE_WORDS), "int32")
            PartsOf = T.alloc_global((p.batch, PART_WORDS), "int32")
            list_pieces(p, Lengths, Pieces, PartsOf, tile_k, config.num_shares)
            with T.Kernel(row_tiles, places, threads=config.threads) as (bx, place):
                batch, begin, end = Pieces[place, 0], Pieces[place, 1], Pieces[place, 2]
                limit, is_whole = Pieces[place, 3], Pieces[place, 4] == 1
                tiles = begin, end
                attend(
                    Q, Cache, Table, Parts, Sums, Out, LSE, bx, batch, tiles, limit, place, is_whole
                )
            combine_shares(Parts, Sums, PartsOf, config.num_shares, Out, LSE)
        else:
            with T.Kernel(row_tiles, splits, p.batch, threads=config.threads) as (
                bx,
                split,
                batch,
            ):
                limit = T.min(Lengths[batch], p.kv_len)
                count = T.ceildiv(limit, tile_k)
                tiles = split * count // splits, (split + 1) * count // splits
                place, is_whole = batch * splits + split, splits == 1
                attend(
                    Q, Cache, Table, Parts, Sums, Out, LSE, bx, batch, tiles, limit, place, is_whole
                )
            if splits > 1:
                combine_splits(Parts, Sums, splits, Out, LSE)

    return mla_decode


def inputs(problem: DecodeProblem, rng: np.random.Generator) -> Arrays:
    """As for any decoding kernel, without values of their own."""
    q, cache, _, *rest = decode_problem.inputs(problem, rng)
    return q, cache, *rest


def reference(problem: DecodeProblem, q: np.ndarray, cache: np.ndarray, *rest: Any) -> Arrays:
    """O and the natural log-sum-exp in float64."""
    return decode_problem.reference(problem, q, cache, cache[..., : problem.dim_v], *rest)


def configs(problem: DecodeProblem, target: Target) -> Sequence[DecodeConfig]:
    """Legal configurations, the first choice in front."""
    p = problem
    longest = max(16, pow2_at_least(p.kv_len))
    columns = T.GemmWarpPolicy.FullCol
    if not has_lanes(target):
        splits = split_counts(p.batch, ceildiv(p.kv_len, 128), target)[-1]
        found = [
            DecodeConfig(min(p.group, height), min(block_k, longest), 1, 128, splits, columns)
            for height, block_k in ((64, 128), (64, 64), (32, 128))
        ]
        return list(dict.fromkeys(found))
    space = [
        DecodeConfig(block_h, min(block_k, longest), stages, threads, splits, columns, shares)
        for block_h in (64, 32, 16)
        for threads in (256, 128)
        for block_k in (64, 32, 16)
        for stages in (2, 3, 1)
        for splits, shares in divisions(ceildiv(p.group, block_h), p, block_k, target)
    ]
    legal = [c for c in dict.fromkeys(space) if _is_legal(c, problem, target)]
    # Pieces cost equal lengths more than they were seen to save (docs/performance-log.md).
    ranked = sorted(legal, key=lambda c: (c.num_shares > 0, _cost(c, problem)))
    return [*ranked, *_three_tiles(p, target)]


def _three_tiles(problem: DecodeProblem, target: Target) -> list[DecodeConfig]:
    """Three tiles of 48 keys at a time, where warps of their own load them and a part of the
    queries stays in the registers of those that compute: for rows of these sizes it is a third,
    and what is left of the queries fits beside the tiles."""
    p = problem
    fits = (p.dim, p.dim_v, dtype_bytes(p.dtype)) == (576, 512, 2) and not p.page_size
    if not (fits and target.has(WARP_ROLES) and p.group >= 64 and p.kv_len >= 192):
        return []
    columns = T.GemmWarpPolicy.FullCol
    return [
        DecodeConfig(64, 48, 3, 256, splits, columns, shares)
        for splits, shares in divisions(ceildiv(p.group, 64), p, 48, target)
    ]


def _is_legal(config: DecodeConfig, problem: DecodeProblem, target: Target) -> bool:
    width = dtype_bytes(problem.dtype)
    keys = config.num_stages * config.block_k
    smem_bytes = (config.block_h + keys) * problem.dim * width
    smem_bytes += config.block_h * config.block_k * width
    fragment_bytes = 4 * config.block_h * (2 * config.block_k + problem.dim_v)
    return (
        fits_threads(config.threads, target)
        and fits_shared(smem_bytes, target)
        and fits_registers(fragment_bytes, config.threads, target, share=0.8)
    )


def _cost(config: DecodeConfig, problem: DecodeProblem) -> tuple[float, ...]:
    """The cache is read once for each block of heads; a tile's fixed cost is paid for each."""
    stages = {1: 1.0, 2: 0.0, 3: 0.1}[config.num_stages]
    return (ceildiv(problem.group, config.block_h) + 16.0 / config.block_k + stages,)


def bytes_moved(problem: DecodeProblem) -> float:
    """Each tensor once, for full caches."""
    p = problem
    queries = p.batch * p.heads * (p.dim + p.dim_v)
    return float((queries + p.batch * p.kv_len * p.dim) * dtype_bytes(p.dtype))


def latent_problem(batch: int, kv_len: int, heads: int = 128, **other: Any) -> DecodeProblem:
    """DeepSeek's sizes: 512 latent and 64 rotary columns, scores scaled for heads of 128 + 64."""
    return DecodeProblem(
        batch, heads, kv_len, 576, kv_heads=1, dim_v=512, softmax_scale=192**-0.5, **other
    )


MLA_DECODE = Family(
    name="mla_decode",
    program=mla_decode,
    inputs=inputs,
    outputs=decode_problem.outputs,
    reference=reference,
    configs=configs,
    problems=(
        latent_problem(132, 8192),
        latent_problem(64, 8192),
        latent_problem(1, 32768),
        latent_problem(64, 8192, page_size=64),
    ),
    flops=decode_problem.flops,
    bytes_moved=bytes_moved,
)
