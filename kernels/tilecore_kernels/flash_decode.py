"""Flash decoding: attention of one new token a sequence against a long cache of keys and values.

The cache is what costs: each key and value is read once. The query heads that share a head of keys
make up the rows of one tile, and the keys of a sequence are divided among `num_splits` blocks, each
of which leaves its result and the log of its sum; a second kernel combines them.

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
from tilecore_kernels.family import Family
from tilecore_kernels.online_softmax import LOG2_E, add_values, new_rows
from tilecore_kernels.paged import load_keys
from tilecore_kernels.split_combine import combine_splits, leave_part


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
    def attend(Q, K, V, Lengths, Table, Parts, Sums, Out, LSE):
        with T.Kernel(splits, p.kv_heads * row_tiles, p.batch, threads=config.threads) as (
            split,
            by,
            batch,
        ):
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
            # Whole tiles for each split, as evenly as can be.
            limit = T.min(Lengths[batch], p.kv_len)
            tiles = T.ceildiv(limit, tile_k)
            begin, end = split * tiles // splits, (split + 1) * tiles // splits
            for step in T.Pipelined(begin, end, num_stages=config.num_stages):
                first_k = step * tile_k
                load_keys(p, K, Table, k, batch, head, first_k, limit)
                load_keys(p, V, Table, v, batch, head, first_k, limit)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True, policy=config.policy)
                hide_beyond(scores, first_k, limit)
                # Reading the cache takes the time: anchors that follow every peak cost nothing.
                add_values(rows, scores, weights, v, out, scale, 0.0, policy=config.policy)
            leave_part(rows, out, batch, head, split, first_h, Parts, Sums, Out, LSE)

    types = tensor_types(p)

    @T.prim_func
    def flash_decode(
        Q: types["Q"], K: types["K"], V: types["V"], Lengths: types["Lengths"],
        Table: types["Table"], Out: types["Out"], LSE: types["LSE"],
    ):  # fmt: skip
        if splits == 1:
            attend(Q, K, V, Lengths, Table, None, None, Out, LSE)
        else:
            Parts = T.alloc_global((p.batch, p.kv_heads, splits, p.group, p.dim_v), "float32")
            Sums = T.alloc_global((p.batch, p.kv_heads, splits, p.group), "float32")
            attend(Q, K, V, Lengths, Table, Parts, Sums, Out, LSE)
            combine_splits(Parts, Sums, Out, LSE)

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
