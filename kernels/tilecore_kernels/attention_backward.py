"""Flash attention, backward: gradients of Q, K and V without the score matrix.

Weights are computed again from the forward's log-sum-exp L: ``P = exp(scale Q K^T - L)``. With
``D_i = sum_d O_id dO_id``

    dV = P^T dO        dS = P * (dO V^T - D)        dK = scale dS^T Q        dQ = scale dS K

Three kernels run one after the other: D; then dK and dV, for which a block owns a tile of keys and
walks the queries that see it, of all heads that share the keys; then dQ, for which a block owns a
tile of queries and walks the keys. Nothing is added atomically: results are the same bits each time.
Products with keys as rows are computed transposed, so that P^T and dS^T stay in registers.
"""

# Annotations are values of the tile language here, so they are not postponed.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.errors import UnsupportedError
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.target import Target
from tilecore_kernels import attention_problem
from tilecore_kernels.attention_masks import key_tiles
from tilecore_kernels.attention_problem import AttentionProblem, visible_pairs
from tilecore_kernels.family import Arrays, Family
from tilecore_kernels.online_softmax import LOG2_E
from tilecore_kernels.tiles import (
    dtype_bytes,
    fits_registers,
    fits_shared,
    fits_threads,
    has_lanes,
    pow2_at_least,
)

DELTA_ROWS = 16
"""Rows of one block of the kernel that computes D."""


@dataclass(frozen=True, slots=True)
class BackwardConfig:
    """Tiles of the two kernels.

    Attributes:
        block_k: keys that a block of the first kernel owns.
        step_q: queries of one of its steps.
        block_q: queries that a block of the second kernel owns.
        step_k: keys of one of its steps.
        num_stages: steps in flight.
        threads: threads of a block.
    """

    block_k: int
    step_q: int
    block_q: int
    step_k: int
    num_stages: int
    threads: int


def attention_backward(problem: AttentionProblem, config: BackwardConfig) -> Any:
    """Tile program: Q, K, V, O, LSE, dO, [lengths], then dQ, dK, dV."""
    p, dtype = problem, problem.dtype
    if p.score_mod is not None or p.has_sinks:
        raise UnsupportedError("attention_backward has no score functions and no sinks")
    group, shift = p.heads // p.kv_heads, p.kv_len - p.q_len
    scale = p.scale * LOG2_E
    by_rows = T.GemmWarpPolicy.FullRow
    shapes = p.shapes()
    types = {
        name: T.Tensor(shape, dtype)
        if p.strides is None
        else T.StridedTensor(shape, p.strides.of(name), dtype)
        for name, shape in shapes.items()
    }
    rows_type = T.Tensor((p.batch, p.heads, p.q_len), "float32")
    lengths_type = T.Tensor((p.batch,), "int32") if p.padded else None

    @T.macro
    def compute_deltas(Out, dOut, Delta):
        with T.Kernel(T.ceildiv(p.q_len, DELTA_ROWS), p.heads, p.batch, threads=128) as (
            bx,
            head,
            batch,
        ):
            products = T.alloc_fragment((DELTA_ROWS, p.dim_v), "float32")
            delta = T.alloc_fragment((DELTA_ROWS,), "float32")
            first = bx * DELTA_ROWS
            for i, d in T.Parallel(DELTA_ROWS, p.dim_v):
                grad = T.cast(dOut[batch, head, first + i, d], "float32")
                products[i, d] = grad * T.cast(Out[batch, head, first + i, d], "float32")
            T.reduce_sum(products, delta, dim=1)
            T.copy(delta, Delta[batch, head, first : first + DELTA_ROWS])

    @T.macro
    def is_visible(query, key, limit):
        visible = key < limit
        if p.right is not None:
            visible = visible and key <= query + shift + p.right
        if p.left is not None:
            visible = visible and key >= query + shift - p.left
        return visible

    @T.macro
    def is_whole(first_q, count_q, first_k, count_k, limit):
        whole = first_k + count_k <= limit
        if p.right is not None:
            whole = whole and first_k + count_k - 1 <= first_q + shift + p.right
        if p.left is not None:
            whole = whole and first_k >= first_q + count_q - 1 + shift - p.left
        return whole

    @T.macro
    def keys_and_values(Q, K, V, LSE, dOut, Lengths, Delta, dK, dV):
        tile_k, tile_q = config.block_k, config.step_q
        q_tiles = T.ceildiv(p.q_len, tile_q)
        with T.Kernel(
            T.ceildiv(p.kv_len, tile_k), p.kv_heads, p.batch, threads=config.threads
        ) as (bx, kv_head, batch):
            k = T.alloc_shared((tile_k, p.dim), dtype)
            v = T.alloc_shared((tile_k, p.dim_v), dtype)
            q = T.alloc_shared((tile_q, p.dim), dtype)
            grad = T.alloc_shared((tile_q, p.dim_v), dtype)
            lse = T.alloc_shared((tile_q,), "float32")
            delta = T.alloc_shared((tile_q,), "float32")
            weights = T.alloc_fragment((tile_k, tile_q), "float32")
            slopes = T.alloc_fragment((tile_k, tile_q), "float32")
            weights_in = weights if dtype == "float32" else T.alloc_fragment((tile_k, tile_q), dtype)
            slopes_in = slopes if dtype == "float32" else T.alloc_fragment((tile_k, tile_q), dtype)
            dk = T.alloc_fragment((tile_k, p.dim), "float32")
            dv = T.alloc_fragment((tile_k, p.dim_v), "float32")
            first_k = bx * tile_k
            limit = T.min(Lengths[batch], p.kv_len) if p.padded else p.kv_len
            T.copy(K[batch, kv_head, first_k : first_k + tile_k, 0 : p.dim], k)
            T.copy(V[batch, kv_head, first_k : first_k + tile_k, 0 : p.dim_v], v)
            T.clear(dk)
            T.clear(dv)
            # Key j is seen by the queries j - shift - right <= i <= j - shift + left.
            begin, end = 0, q_tiles
            if p.right is not None:
                begin = T.min(T.max(0, first_k - shift - p.right) // tile_q, q_tiles)
            if p.left is not None:
                last = T.max(0, T.min(p.q_len, first_k + tile_k - shift + p.left))
                end = T.max(begin, T.ceildiv(last, tile_q))
            each = end - begin
            for step in T.Pipelined(group * each, num_stages=config.num_stages):
                head = kv_head * group + step // each
                first_q = (begin + step % each) * tile_q
                T.copy(Q[batch, head, first_q : first_q + tile_q, 0 : p.dim], q)
                T.copy(LSE[batch, head, first_q : first_q + tile_q], lse)
                T.copy(dOut[batch, head, first_q : first_q + tile_q, 0 : p.dim_v], grad)
                T.copy(Delta[batch, head, first_q : first_q + tile_q], delta)
                T.gemm(k, q, weights, transpose_B=True, clear_accum=True, policy=by_rows)
                T.gemm(v, grad, slopes, transpose_B=True, clear_accum=True, policy=by_rows)
                for j, i in T.Parallel(tile_k, tile_q):
                    weights[j, i] = T.exp2(weights[j, i] * scale - lse[i] * LOG2_E)
                if not is_whole(first_q, tile_q, first_k, tile_k, limit):
                    for j, i in T.Parallel(tile_k, tile_q):
                        seen = is_visible(first_q + i, first_k + j, limit)
                        weights[j, i] = T.if_then_else(seen, weights[j, i], 0.0)
                for j, i in T.Parallel(tile_k, tile_q):
                    slopes[j, i] = weights[j, i] * (slopes[j, i] - delta[i])
                if dtype != "float32":
                    T.copy(weights, weights_in)
                T.gemm(weights_in, grad, dv, policy=by_rows)
                if dtype != "float32":
                    T.copy(slopes, slopes_in)
                T.gemm(slopes_in, q, dk, policy=by_rows)
            for j, d in T.Parallel(tile_k, p.dim):
                dk[j, d] = dk[j, d] * p.scale
            T.copy(dv, dV[batch, kv_head, first_k : first_k + tile_k, 0 : p.dim_v])
            T.copy(dk, dK[batch, kv_head, first_k : first_k + tile_k, 0 : p.dim])

    @T.macro
    def queries(Q, K, V, LSE, dOut, Lengths, Delta, dQ):
        tile_q, tile_k = config.block_q, config.step_k
        with T.Kernel(T.ceildiv(p.q_len, tile_q), p.heads, p.batch, threads=config.threads) as (
            bx,
            head,
            batch,
        ):
            q = T.alloc_shared((tile_q, p.dim), dtype)
            grad = T.alloc_shared((tile_q, p.dim_v), dtype)
            k = T.alloc_shared((tile_k, p.dim), dtype)
            v = T.alloc_shared((tile_k, p.dim_v), dtype)
            weights = T.alloc_fragment((tile_q, tile_k), "float32")
            slopes = T.alloc_fragment((tile_q, tile_k), "float32")
            slopes_in = slopes if dtype == "float32" else T.alloc_fragment((tile_q, tile_k), dtype)
            lse = T.alloc_fragment((tile_q,), "float32")
            delta = T.alloc_fragment((tile_q,), "float32")
            dq = T.alloc_fragment((tile_q, p.dim), "float32")
            last_tile = T.ceildiv(p.q_len, tile_q) - 1
            first_q = (last_tile - bx if p.right is not None else bx) * tile_q
            limit = T.min(Lengths[batch], p.kv_len) if p.padded else p.kv_len
            T.copy(Q[batch, head, first_q : first_q + tile_q, 0 : p.dim], q)
            T.copy(dOut[batch, head, first_q : first_q + tile_q, 0 : p.dim_v], grad)
            T.clear(dq)
            for i in T.Parallel(tile_q):
                lse[i] = LSE[batch, head, first_q + i] * LOG2_E
                delta[i] = Delta[batch, head, first_q + i]
            begin, end = key_tiles(p, first_q, tile_q, shift, limit, tile_k)
            for step in T.Pipelined(begin, end, num_stages=config.num_stages):
                first_k = step * tile_k
                T.copy(K[batch, head // group, first_k : first_k + tile_k, 0 : p.dim], k)
                T.copy(V[batch, head // group, first_k : first_k + tile_k, 0 : p.dim_v], v)
                T.gemm(q, k, weights, transpose_B=True, clear_accum=True, policy=by_rows)
                T.gemm(grad, v, slopes, transpose_B=True, clear_accum=True, policy=by_rows)
                for i, j in T.Parallel(tile_q, tile_k):
                    weights[i, j] = T.exp2(weights[i, j] * scale - lse[i])
                if not is_whole(first_q, tile_q, first_k, tile_k, limit):
                    for i, j in T.Parallel(tile_q, tile_k):
                        seen = is_visible(first_q + i, first_k + j, limit)
                        weights[i, j] = T.if_then_else(seen, weights[i, j], 0.0)
                for i, j in T.Parallel(tile_q, tile_k):
                    slopes[i, j] = weights[i, j] * (slopes[i, j] - delta[i])
                if dtype != "float32":
                    T.copy(slopes, slopes_in)
                T.gemm(slopes_in, k, dq, policy=by_rows)
            for i, d in T.Parallel(tile_q, p.dim):
                dq[i, d] = dq[i, d] * p.scale
            T.copy(dq, dQ[batch, head, first_q : first_q + tile_q, 0 : p.dim])

    @T.prim_func
    def attention_backward(
        Q: types["Q"], K: types["K"], V: types["V"], Out: types["Out"], LSE: rows_type,
        dOut: types["Out"], Lengths: lengths_type,
        dQ: types["Q"], dK: types["K"], dV: types["V"],
    ):  # fmt: skip
        Delta = T.alloc_global((p.batch, p.heads, p.q_len), "float32")
        compute_deltas(Out, dOut, Delta)
        keys_and_values(Q, K, V, LSE, dOut, Lengths, Delta, dK, dV)
        queries(Q, K, V, LSE, dOut, Lengths, Delta, dQ)

    return attention_backward


def inputs(problem: AttentionProblem, rng: np.random.Generator) -> Arrays:
    """The forward's inputs and (rounded) outputs, and a gradient."""
    dtype = np.dtype(numpy_dtype(dtype_of(problem.dtype)))
    q, k, v, *lengths = attention_problem.inputs(problem, rng)
    out, sums = attention_problem.reference(problem, q, k, v, *lengths)
    strides = problem.strides and problem.strides.of("Out")
    grad = attention_problem.normal_tensor(rng, out.shape, dtype, strides)
    stored = attention_problem.normal_tensor(rng, out.shape, dtype, strides)
    stored[...] = out.astype(dtype)
    return q, k, v, stored, sums.astype(np.float32), grad, *lengths


def reference(problem: AttentionProblem, *arrays: np.ndarray) -> Arrays:
    """Gradients in float64, with the score matrix, from the given O and log-sum-exp."""
    p = problem
    q, k, v, out, sums, grad = (array.astype(np.float64) for array in arrays[:6])
    group = p.heads // p.kv_heads
    keys, values = (np.repeat(x, group, axis=1) for x in (k, v))
    visible = np.broadcast_to(visible_pairs(p), (p.batch, p.heads, p.q_len, p.kv_len))
    if p.padded:
        visible = visible & (np.arange(p.kv_len) < arrays[6][:, None, None, None])
    scores = np.einsum("bhqd,bhkd->bhqk", q, keys, optimize=True) * p.scale
    anchor = np.where(np.isneginf(sums), 0.0, sums)[..., None]
    weights = np.where(visible, np.exp(np.where(visible, scores - anchor, 0.0)), 0.0)
    delta = (out * grad).sum(axis=-1, keepdims=True)
    slopes = weights * (np.einsum("bhqd,bhkd->bhqk", grad, values, optimize=True) - delta)
    dq = np.einsum("bhqk,bhkd->bhqd", slopes, keys, optimize=True) * p.scale
    dk = np.einsum("bhqk,bhqd->bhkd", slopes, q, optimize=True) * p.scale
    dv = np.einsum("bhqk,bhqd->bhkd", weights, grad, optimize=True)

    def shared(x: np.ndarray) -> np.ndarray:
        return x.reshape(p.batch, p.kv_heads, group, *x.shape[2:]).sum(axis=2)

    return dq, shared(dk), shared(dv)


def outputs(problem: AttentionProblem) -> tuple[tuple[tuple[int, ...], str], ...]:
    """dQ, dK and dV."""
    shapes = problem.shapes()
    return tuple((shapes[name], problem.dtype) for name in "QKV")


def configs(problem: AttentionProblem, target: Target) -> Sequence[BackwardConfig]:
    """Legal tiles, the first choice in front."""
    longest_q = max(16, pow2_at_least(problem.q_len))
    longest_k = max(16, pow2_at_least(problem.kv_len))
    sizes = ((64, 64), (128, 64), (64, 32)) if not has_lanes(target) else (
        (128, 64), (64, 64), (64, 32), (32, 32), (32, 16), (16, 16),
    )  # fmt: skip
    stages, threads = ((1,), (128,)) if not has_lanes(target) else ((2, 1), (256, 128, 64, 32))
    space = [
        BackwardConfig(
            min(own, longest_k), min(step, longest_q), min(own, longest_q), min(step, longest_k),
            num_stages, lanes,
        )
        for own, step in sizes
        for num_stages in stages
        for lanes in (*threads, target.lanes_per_warp)[: 5 if has_lanes(target) else 1]
    ]  # fmt: skip
    return [c for c in dict.fromkeys(space) if _is_legal(c, problem, target)]


def _is_legal(config: BackwardConfig, problem: AttentionProblem, target: Target) -> bool:
    if not has_lanes(target):
        return True
    width, both = dtype_bytes(problem.dtype), problem.dim + problem.dim_v
    smem_bytes = (config.block_k + config.num_stages * config.step_q) * both * width
    if width > 2:
        smem_bytes += 2 * config.block_k * config.step_q * width
    fragment_bytes = config.block_k * (config.step_q * (8 + 2 * width) + both * 4)
    owned = min(config.block_k, config.block_q)
    return (
        config.threads // target.lanes_per_warp * 16 <= owned
        and fits_threads(config.threads, target)
        and fits_shared(smem_bytes, target)
        and fits_registers(fragment_bytes, config.threads, target, share=0.95)
    )


def flops(problem: AttentionProblem) -> float:
    """Five products, counting visible pairs only: what the gradients need at least."""
    p = problem
    pairs = p.q_len * p.kv_len
    if p.left is not None or p.right is not None:
        pairs = int(visible_pairs(p).sum())
    return 2.0 * p.batch * p.heads * pairs * (3 * p.dim + 2 * p.dim_v)


def bytes_moved(problem: AttentionProblem) -> float:
    """Inputs and gradients once."""
    return 2.0 * attention_problem.bytes_moved(problem)


ATTENTION_BACKWARD = Family(
    name="attention_backward",
    program=attention_backward,
    inputs=inputs,
    outputs=outputs,
    reference=reference,
    configs=configs,
    problems=(
        AttentionProblem(1, 8, 2048, 64, "float16", has_lse=True),
        AttentionProblem(1, 8, 1999, 64, kv_heads=2, right=0, has_lse=True),
        AttentionProblem(8, 32, 4096, 128, "float16", has_lse=True),
        AttentionProblem(8, 32, 4096, 128, "float16", right=0, has_lse=True),
    ),
    flops=flops,
    bytes_moved=bytes_moved,
)
