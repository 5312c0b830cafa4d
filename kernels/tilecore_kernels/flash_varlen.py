"""Flash attention over sequences of unequal lengths, packed one after the other, or keys in pages.

A first kernel lists the tiles that there are (`varlen_tiles`); a block of the second owns one of
them. Rows of a tile that its sequence has not are not written (`ends_with_sequence` says on which
side). Key tiles reach beyond their sequence's end into the next one, where they are masked.

Lengths are read on the device, by each launch: nothing waits for the host, and a captured graph may
be launched again with other starts in the same tensors.
"""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import tilecore.language as T
from tilecore_kernels.attention_masks import hide_invisible, key_tiles
from tilecore_kernels.attention_problem import AttentionConfig
from tilecore_kernels.family import Family
from tilecore_kernels.online_softmax import (
    LN_2,
    LOG2_E,
    add_values,
    new_rows,
    normalize,
    to_log_sum,
)
from tilecore_kernels.paged import load_keys
from tilecore_kernels.varlen_problem import (
    PROBLEMS,
    VarlenProblem,
    bytes_moved,
    configs,
    flops,
    inputs,
    outputs,
    reference,
)
from tilecore_kernels.varlen_tiles import WORDS, list_tiles, most_tiles, tile_of_list


def ends_with_sequence(config: AttentionConfig) -> bool:
    """Whether the last tile of a sequence ends with it, so that the tile with fewest rows is the
    first one, which under a causal mask sees the fewest keys: from 1 to 20 % fewer steps. Where
    key tiles divide query tiles all begin at the sequence's start: a diagonal through the corners
    of key tiles crosses fewer of them, which saves more masks than that saves steps."""
    return config.block_q % config.block_k != 0


@T.macro
def store_rows(rows, out, Out, LSE, head, tile, from_end):
    """Write the rows of `tile` that belong to its sequence; others, before it in a tile that ends
    with it (`from_end`), else behind it, are another one's.

    A tile of which all do, most of a long sequence, is written as one copy.
    """
    start_q, first_q, q_len, peak = tile.start, tile.first, tile.length, rows.peak
    tile_q, columns = (int(extent) for extent in out.shape)
    if first_q >= 0 if from_end else first_q + tile_q <= q_len:
        T.copy(out, Out[start_q + first_q : start_q + first_q + tile_q, head, 0:columns])
    else:
        for i, d in T.Parallel(tile_q, columns):
            if first_q + i >= 0 if from_end else first_q + i < q_len:
                Out[start_q + first_q + i, head, d] = out[i, d]
    for i in T.Parallel(tile_q):
        if first_q + i >= 0 if from_end else first_q + i < q_len:
            LSE[head, start_q + first_q + i] = peak[i]


@T.macro
def load_packed(p, Rows, Table, tile, sequence, start, head, first, limit):
    """Fill `tile` with keys or values of one sequence, which begins at row `start`."""
    if p.page_size:
        load_keys(p, Rows, Table, tile, sequence, head, first, limit)
    else:
        count, columns = (int(extent) for extent in tile.shape)
        T.copy(Rows[start + first : start + first + count, head, 0:columns], tile)


def flash_varlen(problem: VarlenProblem, config: AttentionConfig) -> Any:
    """Tile program: Q, K, V, starts of queries, of keys, [page table], then O and log-sum-exp."""
    p, tile_q, tile_k, dtype = problem, config.block_q, config.block_k, problem.dtype
    group, scale = p.heads // p.kv_heads, p.scale * LOG2_E
    from_end = ends_with_sequence(config)
    batch, total_q, total_k, pages = T.dynamic("batch, total_q, total_k, pages")
    where = (pages, p.page_size) if p.page_size else (total_k,)
    table_type = T.Tensor((batch, p.max_pages), "int32") if p.page_size else None

    @T.macro
    def attend(Q, K, V, Table, Out, LSE, tile, head):
        q = T.alloc_shared((tile_q, p.dim), dtype)
        k = T.alloc_shared((tile_k, p.dim), dtype)
        v = T.alloc_shared((tile_k, p.dim_v), dtype)
        scores = T.alloc_fragment((tile_q, tile_k), "float32")
        weights = scores if dtype == "float32" else T.alloc_fragment((tile_q, tile_k), dtype)
        out = T.alloc_fragment((tile_q, p.dim_v), "float32")
        start_q, start_k, first_q = tile.start, tile.other_start, tile.first
        shift, limit = tile.other_length - tile.length, tile.other_length
        T.copy(Q[start_q + first_q : start_q + first_q + tile_q, head, 0 : p.dim], q)
        T.clear(out)
        rows = new_rows(tile_q)
        begin, end = key_tiles(p, first_q, tile_q, shift, limit, tile_k)
        # Where a mask leaves nothing of a row, the step below changes nothing in that row; and no
        # tile's rows are another one's.
        advice = {"masked_is_idle": True, "unordered_tiles": True}
        for step in T.Pipelined(begin, end, config.num_stages, annotations=advice):
            first_k = step * tile_k
            load_packed(p, K, Table, k, tile.sequence, start_k, head // group, first_k, limit)
            load_packed(p, V, Table, v, tile.sequence, start_k, head // group, first_k, limit)
            by_rows = T.GemmWarpPolicy.FullRow
            T.gemm(q, k, scores, transpose_B=True, clear_accum=True, policy=by_rows)
            hide_invisible(p, scores, first_q, first_k, shift, limit)
            add_values(rows, scores, weights, v, out, scale, p.lag)
        normalize(rows, out, p.dim_v)
        to_log_sum(rows, LN_2)
        store_rows(rows, out, Out, LSE, head, tile, from_end)

    @T.prim_func
    def flash_varlen(
        Q: T.Tensor((total_q, p.heads, p.dim), dtype),
        K: T.Tensor((*where, p.kv_heads, p.dim), dtype),
        V: T.Tensor((*where, p.kv_heads, p.dim_v), dtype),
        StartsQ: T.Tensor((batch + 1,), "int32"), StartsK: T.Tensor((batch + 1,), "int32"),
        Table: table_type,
        Out: T.Tensor((total_q, p.heads, p.dim_v), dtype),
        LSE: T.Tensor((p.heads, total_q), "float32"),
    ):  # fmt: skip
        places = most_tiles(total_q, batch, tile_q, p.max_q)
        Tiles = T.alloc_global((places, WORDS), "int32")
        list_tiles(StartsQ, StartsK, Tiles, tile_q, p.max_q, from_end)
        with T.Kernel(places, p.heads, threads=config.threads) as (place, head):
            attend(Q, K, V, Table, Out, LSE, tile_of_list(Tiles, place), head)

    return flash_varlen


FLASH_VARLEN = Family(
    name="flash_varlen",
    program=flash_varlen,
    inputs=inputs,
    outputs=outputs,
    reference=reference,
    configs=configs,
    problems=PROBLEMS,
    flops=flops,
    bytes_moved=bytes_moved,
)
