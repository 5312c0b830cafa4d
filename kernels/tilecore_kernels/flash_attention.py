"""Flash attention, forward: ``O = softmax(scale * Q K^T + mask) V`` without the score matrix.

One block owns a tile of queries and walks the keys tile by tile with a running maximum and sum.
Covers MHA, GQA and MQA (fewer heads of keys than of queries), causal masks aligned to the bottom
right when the lengths differ, sliding windows, padded batches, lengths that no tile divides, rows
with no visible key (zeros, log-sum-exp -inf), a log-sum-exp output, and a user's score function.
"""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import tilecore.language as T
from tilecore_kernels.attention_problem import (
    LN_2,
    LOG2_E,
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

SLACK = 8.0
"""Powers of two by which weights may exceed 1 before sums are rescaled: exact in float32 sums, and
far from the largest float16."""

FAR_BELOW = -1.0e30
"""Anchor before the first visible key: finite, so that exp2(-inf - anchor) is 0 and not nan."""


def tensor_types(p: AttentionProblem) -> tuple[Any, ...]:
    """Types of Q, K, V, the lengths, the output and the log-sum-exp."""
    return (
        T.Tensor((p.batch, p.heads, p.q_len, p.dim), p.dtype),
        T.Tensor((p.batch, p.kv_heads, p.kv_len, p.dim), p.dtype),
        T.Tensor((p.batch, p.kv_heads, p.kv_len, p.dim_v), p.dtype),
        T.Tensor((p.batch,), "int32"),
        T.Tensor((p.batch, p.heads, p.q_len, p.dim_v), p.dtype),
        T.Tensor((p.batch, p.heads, p.q_len), "float32"),
    )


def flash_attention(problem: AttentionProblem, config: AttentionConfig) -> Any:
    """Tile program over (batch, heads, length, dim) tensors; see `AttentionProblem`."""
    p, tile_q, tile_k, dtype = problem, config.block_q, config.block_k, problem.dtype
    group, shift = p.heads // p.kv_heads, p.kv_len - p.q_len
    scale = p.scale * LOG2_E  # exp2 is the cheaper exponential
    minus_inf = -T.infinity("float32")

    @T.macro
    def attend(Q, K, V, Lengths, Out, LSE):
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
            peak = T.alloc_fragment((tile_q,), "float32")
            previous = T.alloc_fragment((tile_q,), "float32")
            anchor = T.alloc_fragment((tile_q,), "float32")
            part = T.alloc_fragment((tile_q,), "float32")
            total = T.alloc_fragment((tile_q,), "float32")

            # Causal tiles at the bottom see the most keys: they start first.
            last_tile = T.ceildiv(p.q_len, tile_q) - 1
            first_q = (last_tile - bx if p.right is not None else bx) * tile_q
            T.copy(Q[batch, head, first_q : first_q + tile_q, 0 : p.dim], q)
            T.clear(out)
            T.clear(total)
            T.fill(peak, minus_inf)
            T.fill(anchor, FAR_BELOW)
            # Query i sees the keys i + shift - left <= j <= i + shift + right, j < limit.
            limit = T.min(Lengths[batch], p.kv_len) if p.padded else p.kv_len
            begin = T.max(0, first_q + shift - p.left) // tile_k if p.left is not None else 0
            end = limit
            if p.right is not None:
                end = T.max(0, T.min(limit, first_q + tile_q + shift + p.right))
            for step in T.Pipelined(begin, T.ceildiv(end, tile_k), num_stages=config.num_stages):
                first_k = step * tile_k
                T.copy(K[batch, head // group, first_k : first_k + tile_k, 0 : p.dim], k)
                T.copy(V[batch, head // group, first_k : first_k + tile_k, 0 : p.dim_v], v)
                rows = T.GemmWarpPolicy.FullRow
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True, policy=rows)
                if p.score_mod is not None:
                    for i, j in T.Parallel(tile_q, tile_k):
                        scores[i, j] = p.score_mod(scores[i, j], head, first_q + i, first_k + j)
                # Only tiles on an edge of what is visible pay for the mask.
                whole = first_k + tile_k <= limit
                if p.right is not None:
                    whole = whole and first_k + tile_k - 1 <= first_q + shift + p.right
                if p.left is not None:
                    whole = whole and first_k >= first_q + tile_q - 1 + shift - p.left
                if not whole:
                    for i, j in T.Parallel(tile_q, tile_k):
                        visible = first_k + j < limit
                        if p.right is not None:
                            visible = visible and first_k + j <= first_q + i + shift + p.right
                        if p.left is not None:
                            visible = visible and first_k + j >= first_q + i + shift - p.left
                        scores[i, j] = T.if_then_else(visible, scores[i, j], minus_inf)
                T.copy(anchor, previous)
                T.reduce_max(scores, peak, dim=1, clear=False)
                for i in T.Parallel(tile_q):
                    # It follows the peak only when that has grown much: little to rescale.
                    grown = peak[i] * scale - anchor[i] > SLACK
                    anchor[i] = T.if_then_else(grown, peak[i] * scale, anchor[i])
                for i, j in T.Parallel(tile_q, tile_k):
                    scores[i, j] = T.exp2(scores[i, j] * scale - anchor[i])
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(tile_q):
                    previous[i] = T.exp2(previous[i] - anchor[i])
                    total[i] = total[i] * previous[i] + part[i]
                for i, j in T.Parallel(tile_q, p.dim_v):
                    out[i, j] = out[i, j] * previous[i]
                if dtype != "float32":
                    T.copy(scores, weights)
                T.gemm(weights, v, out, policy=rows)

            for i in T.Parallel(tile_q):
                # A nan total is kept: it answers a nan in the input.
                part[i] = T.if_then_else(total[i] == 0.0, 0.0, 1.0 / total[i])
            for i, j in T.Parallel(tile_q, p.dim_v):
                out[i, j] = out[i, j] * part[i]
            T.copy(out, Out[batch, head, first_q : first_q + tile_q, 0 : p.dim_v])
            if p.has_lse:
                for i in T.Parallel(tile_q):
                    total[i] = (T.log2(total[i]) + anchor[i]) * LN_2
                    peak[i] = T.if_then_else(peak[i] == minus_inf, minus_inf, total[i])
                T.copy(peak, LSE[batch, head, first_q : first_q + tile_q])

    Q_type, K_type, V_type, Lengths_type, Out_type, LSE_type = tensor_types(p)
    if p.padded:

        @T.prim_func
        def flash_attention_padded(
            Q: Q_type, K: K_type, V: V_type, Lengths: Lengths_type, Out: Out_type, LSE: LSE_type
        ):
            attend(Q, K, V, Lengths, Out, LSE)

        return flash_attention_padded
    if p.has_lse:

        @T.prim_func
        def flash_attention_lse(Q: Q_type, K: K_type, V: V_type, Out: Out_type, LSE: LSE_type):
            attend(Q, K, V, None, Out, LSE)

        return flash_attention_lse

    @T.prim_func
    def flash_attention(Q: Q_type, K: K_type, V: V_type, Out: Out_type):
        attend(Q, K, V, None, Out, None)

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
