"""Flash attention, forward, on 8-bit floats: Q, K and V as float8_e4m3fn with one scale a head.

Matrix units multiply 8-bit operands only when both have the summed axis contiguous. Values are
given row by row, so a first kernel turns them once into a workspace, (dim_v, keys), and on its way
puts the keys of each 16 into the order in which accumulators of scores hold them (`slot_of`):
weights then become an operand without leaving their registers. A sum does not mind the order.

Weights use the range up to ``2 ** LARGEST`` of the format's 448: they are lifted by so many powers
of two as the problem's lag, of which `MOST_LAG` counts, leaves of it.
"""

# Annotations are values of the tile language here, so they are not postponed.

from collections.abc import Sequence
from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.target import Target
from tilecore_kernels import attention_problem
from tilecore_kernels.attention_masks import (
    first_query_from_end,
    hide_invisible,
    key_tiles,
)
from tilecore_kernels.attention_problem import WARP_ROLES, AttentionConfig, AttentionProblem
from tilecore_kernels.family import Arrays, Family
from tilecore_kernels.online_softmax import (
    LN_2,
    LOG2_E,
    new_rows,
    normalize,
    rescale,
    to_log_sum,
    weigh_scores,
)
from tilecore_kernels.tiles import fits_registers, fits_shared, fits_threads, has_lanes, round_up

DTYPE = "float8_e4m3fn"
LARGEST, MOST_LAG = 8.0, 2.0
TURNED = 64
"""Keys and value columns of a tile that the first kernel turns."""
KEYS_PADDED = 128
"""Keys of the workspace are a multiple of this; the rest are zeros."""


def slot_of(key: Any) -> Any:
    """The place of a key among its 16: pairs of columns 2 t and 8 + 2 t side by side."""
    inside = key % 16
    return key - inside + inside % 8 // 2 * 4 + inside % 2 + inside // 8 * 2


def key_at(slot: Any) -> Any:
    """The key at a place among 16: `slot_of` the other way."""
    return slot // 4 * 2 + slot % 2 + slot // 2 % 2 * 8


def flash_attention_fp8(problem: AttentionProblem, config: AttentionConfig) -> Any:
    """Tile program over (batch, heads, length, dim) tensors; scales are (batch, heads) float32."""
    p, tile_q, tile_k = problem, config.block_q, config.block_k
    group, shift = p.heads // p.kv_heads, p.kv_len - p.q_len
    keys = round_up(p.kv_len, KEYS_PADDED)
    lag = min(p.lag, MOST_LAG)
    shapes = p.shapes()
    Q_type, K_type, V_type = (T.Tensor(shapes[name], DTYPE) for name in ("Q", "K", "V"))
    Out_type = T.Tensor(shapes["Out"], "float16")
    Scales = T.Tensor((p.batch, p.kv_heads), "float32")
    LSE_type = T.Tensor((p.batch, p.heads, p.q_len), "float32") if p.has_lse else None

    @T.prim_func
    def flash_attention_fp8(
        Q: Q_type, K: K_type, V: V_type, QScale: Scales, KScale: Scales, VScale: Scales,
        Out: Out_type, LSE: LSE_type,
    ):  # fmt: skip
        Turned = T.alloc_global((p.batch, p.kv_heads, p.dim_v, keys), DTYPE)
        with T.Kernel(
            keys // TURNED, T.ceildiv(p.dim_v, TURNED), p.batch * p.kv_heads, threads=128
        ) as (bk, bd, pair):
            rows_in = T.alloc_shared((TURNED, TURNED), DTYPE)
            turned = T.alloc_shared((TURNED, TURNED), DTYPE)
            one, of = pair // p.kv_heads, pair % p.kv_heads
            T.copy(V[one, of, bk * TURNED : (bk + 1) * TURNED, bd * TURNED : (bd + 1) * TURNED],
                   rows_in)  # fmt: skip
            for part, d, slot in T.Parallel(TURNED // 16, TURNED, 16):
                turned[d, part * 16 + slot] = rows_in[part * 16 + key_at(slot), d]
            T.copy(turned, Turned[one, of, bd * TURNED : (bd + 1) * TURNED,
                                  bk * TURNED : (bk + 1) * TURNED])  # fmt: skip

        with T.Kernel(T.ceildiv(p.q_len, tile_q), p.heads, p.batch, threads=config.threads) as (
            bx,
            head,
            batch,
        ):
            q = T.alloc_shared((tile_q, p.dim), DTYPE)
            k = T.alloc_shared((tile_k, p.dim), DTYPE)
            v = T.alloc_shared((p.dim_v, tile_k), DTYPE)
            scores = T.alloc_fragment((tile_q, tile_k), "float32")
            weights = T.alloc_fragment((tile_q, tile_k), DTYPE)
            out = T.alloc_fragment((tile_q, p.dim_v), "float32")
            first_q = first_query_from_end(p, bx, p.q_len, tile_q)
            of = head // group
            scale = QScale[batch, of] * KScale[batch, of] * (p.scale * LOG2_E)
            T.copy(Q[batch, head, first_q : first_q + tile_q, 0 : p.dim], q)
            T.clear(out)
            rows = new_rows(tile_q)
            begin, end = key_tiles(p, first_q, tile_q, shift, p.kv_len, tile_k)
            advice = {"masked_is_idle": True, "unordered_tiles": True}
            for step in T.Pipelined(begin, end, config.num_stages, annotations=advice):
                first_k = step * tile_k
                T.copy(K[batch, of, first_k : first_k + tile_k, 0 : p.dim], k)
                T.copy(Turned[batch, of, 0 : p.dim_v, first_k : first_k + tile_k], v)
                by_rows = T.GemmWarpPolicy.FullRow
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True, policy=by_rows)
                hide_invisible(p, scores, first_q, first_k, shift, p.kv_len)
                weigh_scores(rows, scores, tile_k, scale, lag, LARGEST - lag)
                rescale(rows, out, p.dim_v)
                for i, j in T.Parallel(tile_q, tile_k):
                    weights[i, slot_of(j)] = T.cast(scores[i, j], DTYPE)
                T.gemm(weights, v, out, transpose_B=True, policy=by_rows)
            normalize(rows, out, p.dim_v, VScale[batch, of])
            T.copy(out, Out[batch, head, first_q : first_q + tile_q, 0 : p.dim_v])
            if p.has_lse:
                to_log_sum(rows, LN_2)
                T.copy(rows.peak, LSE[batch, head, first_q : first_q + tile_q])

    return flash_attention_fp8


def scaled(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(x as float8_e4m3fn, scale of each (batch, head)) with the largest magnitude at 448."""
    import ml_dtypes

    scale = np.abs(x).max(axis=(2, 3)).astype(np.float32) / 448.0
    safe = np.where(scale == 0, 1.0, scale).astype(np.float32)
    return (x / safe[:, :, None, None]).astype(ml_dtypes.float8_e4m3fn), safe


def inputs(problem: AttentionProblem, rng: np.random.Generator) -> Arrays:
    """Normally distributed Q, K and V in 8 bits, and their scales by (batch, head of keys)."""
    tensors, scales = [], []
    for name in ("Q", "K", "V"):
        shape = problem.shapes()[name]
        x = rng.standard_normal(shape, np.float32)
        if name == "Q":  # one scale for all query heads that share a head of keys
            joined = (shape[0], problem.kv_heads, -1, shape[3])
            tensor, scale = scaled(x.reshape(joined))
            tensor = tensor.reshape(shape)
        else:
            tensor, scale = scaled(x)
        tensors.append(tensor)
        scales.append(scale)
    return *tensors, *scales


def dequantised(problem: AttentionProblem, *arrays: np.ndarray) -> Arrays:
    """Q, K and V that the 8-bit tensors stand for, in float64."""
    q, k, v, *scales = (array.astype(np.float64) for array in arrays)
    q_scale, k_scale, v_scale = (scale[:, :, None, None] for scale in scales)
    group = problem.heads // problem.kv_heads
    return q * np.repeat(q_scale, group, axis=1), k * k_scale, v * v_scale


def reference(problem: AttentionProblem, *arrays: np.ndarray) -> Arrays:
    """Attention of the tensors that the 8-bit ones stand for, in float64."""
    return attention_problem.reference(problem, *dequantised(problem, *arrays))


def outputs(problem: AttentionProblem) -> tuple[tuple[tuple[int, ...], str], ...]:
    """O in float16, and the log-sum-exp where it is asked for."""
    (out, *rest) = attention_problem.outputs(problem)
    return ((out[0], "float16"), *rest)


_TILES = ((128, 192), (128, 160), (128, 128), (128, 96), (128, 64), (64, 64), (32, 32))
"""Queries and keys of a tile: keys are a multiple of the 32 that one product sums."""


def configs(problem: AttentionProblem, target: Target) -> Sequence[AttentionConfig]:
    """Tiles for warps of whole rows that fit the target, the largest in front."""
    found = [AttentionConfig(q, k, 2, 2 * q) for q, k in _TILES]
    if not has_lanes(target):
        return found
    # Wide accumulators leave registers for fewer scores: both products have theirs at once.
    with_roles = target.has(WARP_ROLES)
    most_keys = (192 if with_roles else 160) if problem.dim_v <= 128 else 128 if with_roles else 96
    if with_roles and problem.dim_v <= 128 < problem.q_len:
        found.insert(0, AttentionConfig(192, 96, 3, 384))  # docs/performance-log.md
    return [c for c in found if c.block_k <= most_keys and _is_legal(c, problem, target)]


def _is_legal(config: AttentionConfig, problem: AttentionProblem, target: Target) -> bool:
    q, k, dim, dim_v = config.block_q, config.block_k, problem.dim, problem.dim_v
    smem_bytes = q * dim + config.num_stages * k * (dim + dim_v) + q * k  # 8-bit elements
    return (
        fits_threads(config.threads, target)
        and fits_shared(smem_bytes, target)
        and fits_registers(q * (5 * k + 4 * dim_v), config.threads, target, share=0.9)
    )


FLASH_ATTENTION_FP8 = Family(
    name="flash_attention_fp8",
    program=flash_attention_fp8,
    inputs=inputs,
    outputs=outputs,
    reference=reference,
    configs=configs,
    problems=(
        AttentionProblem(1, 16, 16384, 128, DTYPE),
        AttentionProblem(1, 8, 16384, 256, DTYPE),
    ),
    flops=attention_problem.flops,
    bytes_moved=attention_problem.bytes_moved,
)
