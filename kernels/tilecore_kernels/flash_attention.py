"""Flash attention, forward: ``O = softmax(scale * Q K^T + mask) V`` without the score matrix.

One block owns a tile of queries and walks the keys tile by tile with a running maximum and sum.
Covers MHA, GQA and MQA (fewer heads of keys than of queries), causal masks aligned to the bottom
right when the lengths differ, sliding windows, padded batches, lengths that no tile divides, rows
with no visible key (zeros, log-sum-exp -inf), attention sinks, a log-sum-exp output, tensors with
any strides, and a user's score function (`score_mods` has a soft cap and ALiBi).
"""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import tilecore.language as T
from tilecore_kernels.attention_masks import (
    first_query_from_end,
    hide_invisible,
    key_tiles,
    modify_scores,
)
from tilecore_kernels.attention_problem import (
    PROBLEMS,
    AttentionConfig,
    AttentionProblem,
    bytes_moved,
    configs,
    flops,
    inputs,
    outputs,
    reference,
)
from tilecore_kernels.family import Family
from tilecore_kernels.online_softmax import (
    LN_2,
    LOG2_E,
    add_sink,
    add_values,
    new_rows,
    normalize,
    rescale,
    to_log_sum,
)


def tensor_types(p: AttentionProblem) -> dict[str, Any]:
    """Types of the parameters by name; None where the problem has no such tensor."""
    shapes = p.shapes()
    types = {
        name: T.Tensor(shape, p.dtype)
        if p.strides is None
        else T.StridedTensor(shape, p.strides.of(name), p.dtype)
        for name, shape in shapes.items()
    }
    rows = (p.batch, p.heads, p.q_len)
    return {
        **types,
        "Lengths": T.Tensor((p.batch,), "int32") if p.padded else None,
        "Sinks": T.Tensor((p.heads,), "float32") if p.has_sinks else None,
        "LSE": T.Tensor(rows, "float32") if p.has_lse else None,
    }


def flash_attention(problem: AttentionProblem, config: AttentionConfig) -> Any:
    """Tile program over (batch, heads, length, dim) tensors; see `AttentionProblem`."""
    p, tile_q, tile_k, dtype = problem, config.block_q, config.block_k, problem.dtype
    group, shift = p.heads // p.kv_heads, p.kv_len - p.q_len
    # exp2 is the cheaper exponential. A score function takes scaled scores.
    scale = (p.scale if p.score_mod is None else 1.0) * LOG2_E
    types = tensor_types(p)

    @T.prim_func
    def flash_attention(
        Q: types["Q"], K: types["K"], V: types["V"], Lengths: types["Lengths"],
        Sinks: types["Sinks"], Out: types["Out"], LSE: types["LSE"],
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(p.q_len, tile_q), p.heads, p.batch, threads=config.threads) as (
            bx,
            head,
            batch,
        ):
            q = T.alloc_shared((tile_q, p.dim), dtype)
            k = T.alloc_shared((tile_k, p.dim), dtype)
            v = T.alloc_shared((tile_k, p.dim_v), dtype)
            scores = T.alloc_fragment((tile_q, tile_k), "float32")
            weights = scores if dtype == "float32" else T.alloc_fragment((tile_q, tile_k), dtype)
            out = T.alloc_fragment((tile_q, p.dim_v), "float32")

            first_q = first_query_from_end(p, bx, p.q_len, tile_q)
            T.copy(Q[batch, head, first_q : first_q + tile_q, 0 : p.dim], q)
            T.clear(out)
            rows = new_rows(tile_q)
            limit = T.min(Lengths[batch], p.kv_len) if p.padded else p.kv_len
            begin, end = key_tiles(p, first_q, tile_q, shift, limit, tile_k)
            # Where a mask leaves nothing of a row, the step below changes nothing in that row; and
            # no tile's rows are another one's.
            advice = {"masked_is_idle": True, "unordered_tiles": True}
            # Without a mask only the last tile may reach beyond the keys: it comes first, so that
            # all other steps are without a test.
            backwards = p.left is None and p.right is None
            for step in T.Pipelined(begin, end, config.num_stages, annotations=advice):
                first_k = (end - 1 - step if backwards else step) * tile_k
                T.copy(K[batch, head // group, first_k : first_k + tile_k, 0 : p.dim], k)
                T.copy(V[batch, head // group, first_k : first_k + tile_k, 0 : p.dim_v], v)
                by_rows = T.GemmWarpPolicy.FullRow
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True, policy=by_rows)
                if p.score_mod is not None:
                    modify_scores(p, scores, head, first_q, first_k)
                hide_invisible(p, scores, first_q, first_k, shift, limit)
                add_values(rows, scores, weights, v, out, scale, p.lag)
            if p.has_sinks:
                add_sink(rows, Sinks[head] * LOG2_E)
                rescale(rows, out, p.dim_v)
            normalize(rows, out, p.dim_v)
            T.copy(out, Out[batch, head, first_q : first_q + tile_q, 0 : p.dim_v])
            if p.has_lse:
                to_log_sum(rows, LN_2)
                T.copy(rows.peak, LSE[batch, head, first_q : first_q + tile_q])

    return flash_attention


FLASH_ATTENTION = Family(
    name="flash_attention",
    program=flash_attention,
    inputs=inputs,
    outputs=outputs,
    reference=reference,
    configs=configs,
    problems=PROBLEMS,
    flops=flops,
    bytes_moved=bytes_moved,
)
