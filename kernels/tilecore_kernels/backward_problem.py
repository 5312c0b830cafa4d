"""Gradients of attention: float64 reference and tuning space, for an `AttentionProblem`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.target import Target
from tilecore_kernels import attention_problem
from tilecore_kernels.attention_problem import AttentionProblem, visible_pairs
from tilecore_kernels.family import Arrays
from tilecore_kernels.tiles import (
    dtype_bytes,
    fits_registers,
    fits_shared,
    fits_threads,
    has_lanes,
    pow2_at_least,
)

PANEL = 8
"""Columns of the sums of dQ that are kept together."""


@dataclass(frozen=True, slots=True)
class BackwardConfig:
    """Tiles of the kernels.

    Attributes:
        block_k: keys that a block of the kernel of dK and dV owns.
        step_q: queries of one of its steps.
        block_q: queries that a block of the kernel of dQ owns.
        step_k: keys of one of its steps.
        num_stages: steps in flight.
        threads: threads of a block.
        adds: the kernel of dK and dV adds to sums of dQ, too, which has no kernel of its own then.
        staged: with `adds`, what is added goes through shared memory as a whole tile, which a copy
            engine may add while lanes go on; else lanes add what they hold.
    """

    block_k: int
    step_q: int
    block_q: int
    step_k: int
    num_stages: int
    threads: int
    adds: bool = False
    staged: bool = False


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


def weights_of(problem: AttentionProblem, *arrays: np.ndarray) -> np.ndarray:
    """Softmax weights (batch, heads, q_len, kv_len) in float64, by the given log-sum-exp."""
    p = problem
    q, k, sums = (arrays[n].astype(np.float64) for n in (0, 1, 4))
    keys = np.repeat(k, p.heads // p.kv_heads, axis=1)
    visible = np.broadcast_to(visible_pairs(p), (p.batch, p.heads, p.q_len, p.kv_len))
    if p.padded:
        visible = visible & (np.arange(p.kv_len) < arrays[6][:, None, None, None])
    scores = np.einsum("bhqd,bhkd->bhqk", q, keys, optimize=True) * p.scale
    anchor = np.where(np.isneginf(sums), 0.0, sums)[..., None]
    return np.where(visible, np.exp(np.where(visible, scores - anchor, 0.0)), 0.0)


def reference(problem: AttentionProblem, *arrays: np.ndarray) -> Arrays:
    """Gradients in float64, with the score matrix, from the given O and log-sum-exp."""
    p = problem
    q, k, v, out, _, grad = (array.astype(np.float64) for array in arrays[:6])
    group = p.heads // p.kv_heads
    keys, values = (np.repeat(x, group, axis=1) for x in (k, v))
    weights = weights_of(p, *arrays)
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
    """Legal tiles, the first choice in front: adding to dQ where tiles are added in bulk."""
    longest_q = max(16, pow2_at_least(problem.q_len))
    longest_k = max(16, pow2_at_least(problem.kv_len))
    sizes = ((64, 64), (128, 64), (64, 32)) if not has_lanes(target) else (
        (128, 64), (128, 48), (128, 32), (64, 64), (64, 32), (32, 32), (32, 16), (16, 16),
    )  # fmt: skip
    stages, threads = ((1,), (128,)) if not has_lanes(target) else ((2, 1), (256, 128, 64, 32))

    def tiles(sizes: Sequence[tuple[int, int]], adds: bool) -> list[BackwardConfig]:
        return [
            BackwardConfig(
                min(own, longest_k), min(step, longest_q), min(own, longest_q),
                min(step, longest_k), num_stages, lanes, adds,
            )
            for own, step in sizes
            for num_stages in stages
            for lanes in (*threads, target.lanes_per_warp)[: 5 if has_lanes(target) else 1]
        ]  # fmt: skip

    space = tiles(sizes, adds=False)
    if has_lanes(target) and not problem.deterministic:
        # Rows of dQ are divided, too, where a step has as many queries as a block has keys.
        square = ((128, 128),) if problem.dim <= 64 else ()
        adding = tiles((*square, *sizes), adds=True)
        in_front = target.has("bulk_copy") and dtype_bytes(problem.dtype) <= 2
        if in_front and problem.dim % PANEL == 0:
            staged = [replace(c, staged=True) for c in adding]
            # Staging pays where tiles are alike and load for one another, by 2 to 5 %, and costs
            # 1 to 2.5 % elsewhere (docs/performance-log.md).
            alike = problem.right is None and problem.left is None
            adding = [*staged, *adding] if alike else [*adding, *staged]
        space = [*adding, *space] if in_front else [*space, *adding]
    return [c for c in dict.fromkeys(space) if _is_legal(c, problem, target)]


def _is_legal(config: BackwardConfig, problem: AttentionProblem, target: Target) -> bool:
    if not has_lanes(target):
        return True
    width, both = dtype_bytes(problem.dtype), problem.dim + problem.dim_v
    smem_bytes = (config.block_k + config.num_stages * config.step_q) * both * width
    if width > 2:
        smem_bytes += 2 * config.block_k * config.step_q * width
    fragment_bytes = config.block_k * (config.step_q * (8 + 2 * width) + both * 4)
    if config.staged and problem.dim % PANEL:
        return False  # nothing lies in the rest of a panel
    if config.adds:  # slopes for all warps, dQ on its way; weights are rounded in place
        smem_bytes += config.step_q * (2 * config.block_k * width + 4 * problem.dim)
        fragment_bytes = config.block_k * (config.step_q * 8 + both * 4)
    owned = min(config.block_k, config.block_q)
    return (
        config.threads // target.lanes_per_warp * 16 <= owned
        and fits_threads(config.threads, target)
        and fits_shared(smem_bytes, target)
        and fits_registers(fragment_bytes, config.threads, target, share=0.85)
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
