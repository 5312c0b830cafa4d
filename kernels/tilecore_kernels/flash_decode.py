"""Flash decoding: attention of one new token a sequence against a long cache of keys and values.

The cache is what costs: each key and value is read once. The query heads that share a head of keys
make up the rows of one tile, and the keys of a sequence are divided among blocks (`decode_shares`),
each of which leaves its result and the log of its sum; a last kernel combines them.

The cache is contiguous, or lies in pages that a table names.
"""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import tilecore.language as T
from tilecore_kernels.attention_masks import hide_beyond
from tilecore_kernels.decode_problem import (
    PROBLEMS,
    DecodeConfig,
    DecodeProblem,
    bytes_moved,
    configs,
    flops,
    inputs,
    outputs,
    reference,
)
from tilecore_kernels.decode_shares import (
    PART_WORDS,
    PIECE_WORDS,
    SHARE_WORDS,
    list_shares,
    places_of,
)
from tilecore_kernels.family import Family
from tilecore_kernels.online_softmax import LOG2_E, add_values, new_rows
from tilecore_kernels.paged import load_keys
from tilecore_kernels.split_combine import combine_shares, combine_splits, leave_part


def tensor_types(p: DecodeProblem) -> dict[str, Any]:
    """Types of the parameters by name; None where the problem has no such tensor."""
    table = T.Tensor((p.batch, p.pages_per_sequence), "int32")
    return {
        "Q": T.Tensor((p.batch, p.kv_heads, p.group, p.dim), p.dtype),
        "K": T.Tensor(p.cache_shape(p.dim), p.dtype),
        "V": T.Tensor(p.cache_shape(p.dim_v), p.dtype),
        "Lengths": T.Tensor((p.batch,), "int32"),
        "Table": table if p.page_size else None,
        "Out": T.Tensor((p.batch, p.kv_heads, p.group, p.dim_v), p.dtype),
        "LSE": T.Tensor((p.batch, p.kv_heads, p.group), "float32"),
    }


def flash_decode(problem: DecodeProblem, config: DecodeConfig) -> Any:
    """Tile program: Q, K, V, lengths, [page table], then O and the log-sum-exp."""
    p, tile_h, tile_k, splits = problem, config.block_h, config.block_k, config.num_splits
    scale = p.scale * LOG2_E
    row_tiles = T.ceildiv(p.group, tile_h)

    @T.macro
    def attend(Q, K, V, Table, Parts, Sums, Out, LSE, by, batch, tiles, limit, place, is_whole):
        """Attend to the tiles (first, behind the last) of one sequence."""
        head, first_h = by // row_tiles, by % row_tiles * tile_h
        q = T.alloc_shared((tile_h, p.dim), p.dtype)
        k = T.alloc_shared((tile_k, p.dim), p.dtype)
        v = T.alloc_shared((tile_k, p.dim_v), p.dtype)
        scores = T.alloc_fragment((tile_h, tile_k), "float32")
        weights = scores
        if p.dtype != "float32":
            weights = T.alloc_fragment((tile_h, tile_k), p.dtype)
        out = T.alloc_fragment((tile_h, p.dim_v), "float32")
        T.copy(Q[batch, head, first_h : first_h + tile_h, 0 : p.dim], q)
        T.clear(out)
        rows = new_rows(tile_h)
        for step in T.Pipelined(*tiles, num_stages=config.num_stages):
            first_k = step * tile_k
            load_keys(p, K, Table, k, batch, head, first_k, limit)
            load_keys(p, V, Table, v, batch, head, first_k, limit)
            T.gemm(q, k, scores, transpose_B=True, clear_accum=True, policy=config.policy)
            hide_beyond(scores, first_k, limit)
            # Reading the cache takes the time: anchors that follow every peak cost nothing.
            add_values(rows, scores, weights, v, out, scale, 0.0, policy=config.policy)
        leave_part(rows, out, batch, place, is_whole, head, first_h, Parts, Sums, Out, LSE)

    types = tensor_types(p)

    @T.prim_func
    def flash_decode(
        Q: types["Q"], K: types["K"], V: types["V"], Lengths: types["Lengths"],
        Table: types["Table"], Out: types["Out"], LSE: types["LSE"],
    ):  # fmt: skip
        heads, shares = p.kv_heads * row_tiles, config.num_shares
        places = places_of(p, config)
        Parts, Sums = None, None
        if places:
            Parts = T.alloc_global((places, p.kv_heads, p.group, p.dim_v), "float32")
            Sums = T.alloc_global((places, p.kv_heads, p.group), "float32")
        if shares:
            Pieces = T.alloc_global((places, PIECE_WORDS), "int32")
            Shares = T.alloc_global((shares, SHARE_WORDS), "int32")
            PartsOf = T.alloc_global((p.batch, PART_WORDS), "int32")
            list_shares(p, Lengths, Pieces, Shares, PartsOf, tile_k)
            with T.Kernel(heads, shares, threads=config.threads) as (by, share):
                for place in T.serial(Shares[share, 0], Shares[share, 1]):
                    batch, begin, end = Pieces[place, 0], Pieces[place, 1], Pieces[place, 2]
                    limit, is_whole = Pieces[place, 3], Pieces[place, 4] == 1
                    tiles = begin, end
                    attend(
                        Q, K, V, Table, Parts, Sums, Out, LSE, by, batch, tiles, limit, place,
                        is_whole,
                    )  # fmt: skip
            combine_shares(Parts, Sums, PartsOf, shares, Out, LSE)
        else:
            with T.Kernel(splits, heads, p.batch, threads=config.threads) as (split, by, batch):
                limit = T.min(Lengths[batch], p.kv_len)
                count = T.ceildiv(limit, tile_k)
                # Whole tiles for each split, as evenly as can be.
                tiles = split * count // splits, (split + 1) * count // splits
                place, is_whole = batch * splits + split, splits == 1
                attend(
                    Q, K, V, Table, Parts, Sums, Out, LSE, by, batch, tiles, limit, place, is_whole
                )
            if splits > 1:
                combine_splits(Parts, Sums, splits, Out, LSE)

    return flash_decode


FLASH_DECODE = Family(
    name="flash_decode",
    program=flash_decode,
    inputs=inputs,
    outputs=outputs,
    reference=reference,
    configs=configs,
    problems=PROBLEMS,
    flops=flops,
    bytes_moved=bytes_moved,
)
