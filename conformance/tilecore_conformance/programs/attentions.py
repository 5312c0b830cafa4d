"""Attention kernels of tilecore-kernels: forward, decoding, latent attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilecore.language import GemmWarpPolicy
from tilecore_conformance import bounds
from tilecore_conformance.experiment import Experiment
from tilecore_conformance.programs.families import experiment_of
from tilecore_kernels import FAMILIES
from tilecore_kernels.attention_problem import (
    AttentionConfig,
    AttentionProblem,
    with_heads_inside,
)
from tilecore_kernels.backward_problem import BackwardConfig
from tilecore_kernels.decode_problem import DecodeConfig, DecodeProblem, as_attention, gathered
from tilecore_kernels.flash_attention_fp8 import DTYPE, dequantised
from tilecore_kernels.score_mods import Alibi, Softcap
from tilecore_kernels.varlen_problem import VarlenProblem, sequences_of


def attention(
    rng: np.random.Generator,
    q_len: int,
    dim: int = 32,
    heads: int = 2,
    batch: int = 1,
    tile: list[int] | None = None,
    threads: int = 128,
    num_stages: int = 2,
    logits: float = 1.0,
    left: int | None = None,
    right: int | None = None,
    causal: bool = False,
    softcap: float = 0.0,
    alibi: bool = False,
    bshd: bool = False,
    **problem: Any,
) -> Experiment:
    """Flash attention; `logits` scales the queries, for scores far from zero."""
    block_q, block_k = tile or [64, 64]
    right = 0 if causal else right
    mod = Softcap(softcap) if softcap else Alibi(heads) if alibi else None
    p = AttentionProblem(
        batch, heads, q_len, dim, left=left, right=right, score_mod=mod, **problem
    )  # fmt: skip
    p = with_heads_inside(p) if bshd else p
    config = AttentionConfig(block_q, block_k, num_stages, threads)
    q, *rest = FAMILIES["flash_attention"].inputs(p, rng)
    if logits != 1.0:
        q = (q.astype(np.float32) * logits).astype(q.dtype)

    def allowed(arrays: Any, values: Any) -> list[Any]:
        return bounds.attention(p, arrays, values)

    experiment = experiment_of("flash_attention", p, config, (q, *rest), allowed)
    if not bshd:
        return experiment
    out, *others = experiment.outputs
    stored = np.ascontiguousarray(out.swapaxes(1, 2)).swapaxes(1, 2)
    return replace(experiment, outputs=(stored, *others))


def attention_8_bit(
    rng: np.random.Generator,
    q_len: int,
    dim: int = 32,
    heads: int = 2,
    batch: int = 1,
    tile: list[int] | None = None,
    threads: int = 128,
    num_stages: int = 2,
    causal: bool = False,
    **problem: Any,
) -> Experiment:
    """Flash attention of float8_e4m3fn tensors with one scale a head."""
    p = AttentionProblem(
        batch, heads, q_len, dim, DTYPE, right=0 if causal else None, **problem
    )  # fmt: skip
    config = AttentionConfig(*(tile or [64, 64]), num_stages, threads)
    arrays = FAMILIES["flash_attention_fp8"].inputs(p, rng)

    def allowed(arrays: Any, values: Any) -> list[Any]:
        return bounds.attention_8_bit(p, dequantised(p, *arrays), values)

    return experiment_of("flash_attention_fp8", p, config, arrays, allowed)


def attention_backward(
    rng: np.random.Generator,
    q_len: int,
    dim: int = 32,
    heads: int = 2,
    batch: int = 1,
    tile: list[int] | None = None,
    threads: int = 64,
    num_stages: int = 2,
    causal: bool = False,
    adds: bool = False,
    staged: bool = False,
    **problem: Any,
) -> Experiment:
    """Gradients of attention; `tile` is what a block owns and one of its steps, `adds` says that
    dQ is added up, `staged` from shared memory."""
    own, step = tile or [32, 32]
    right = 0 if causal else problem.pop("right", None)
    p = AttentionProblem(batch, heads, q_len, dim, right=right, has_lse=True, **problem)
    config = BackwardConfig(own, step, own, step, num_stages, threads, adds, staged)
    arrays = FAMILIES["attention_backward"].inputs(p, rng)

    def allowed(arrays: Any, values: Any) -> list[Any]:
        return bounds.attention_backward(p, arrays, values)

    return experiment_of("attention_backward", p, config, arrays, allowed)


def _packed(
    lengths: list[list[int]], dim: int, heads: int, causal: bool, **problem: Any
) -> VarlenProblem:
    """The problem of packed sequences of so many (queries, keys)."""
    right = 0 if causal else problem.pop("right", None)
    pairs = tuple((queries, keys) for queries, keys in lengths)
    longest = max(queries for queries, _ in pairs)
    return VarlenProblem(heads, dim, longest, right=right, lengths=pairs, **problem)


def flash_varlen(
    rng: np.random.Generator,
    lengths: list[list[int]],
    dim: int = 32,
    heads: int = 2,
    causal: bool = False,
    tile: list[int] | None = None,
    threads: int = 128,
    num_stages: int = 2,
    **problem: Any,
) -> Experiment:
    """Packed sequences of so many (queries, keys)."""
    block_q, block_k = tile or [64, 32]
    p = _packed(lengths, dim, heads, causal, **problem)
    config = AttentionConfig(block_q, block_k, num_stages, threads)
    arrays = FAMILIES["flash_varlen"].inputs(p, rng)

    def allowed(arrays: Any, values: Any) -> list[Any]:
        found = [np.zeros(values[0].shape), np.zeros(values[1].shape)]
        for rows, (q, k, v) in sequences_of(p, *arrays):
            one = p.one(q.shape[2], k.shape[2])
            its = (values[0][rows].swapaxes(0, 1)[None], values[1][None, :, rows])
            out, sums = bounds.attention(one, (q, k, v), its)
            found[0][rows], found[1][:, rows] = out[0].swapaxes(0, 1), sums[0]
        return found

    return experiment_of("flash_varlen", p, config, arrays, allowed)


def varlen_backward(
    rng: np.random.Generator,
    lengths: list[list[int]],
    dim: int = 32,
    heads: int = 2,
    causal: bool = False,
    tile: list[int] | None = None,
    threads: int = 64,
    num_stages: int = 2,
    staged: bool = False,
    **problem: Any,
) -> Experiment:
    """Gradients over packed sequences; `tile` and `staged` as for `attention_backward`."""
    own, step = tile or [32, 32]
    p = _packed(lengths, dim, heads, causal, **problem)
    config = BackwardConfig(own, step, own, step, num_stages, threads, True, staged)
    arrays = FAMILIES["varlen_backward"].inputs(p, rng)

    def allowed(arrays: Any, values: Any) -> list[Any]:
        *packed, out, sums, grad = arrays
        starts_k, found = packed[4], [np.zeros(value.shape) for value in values]
        for b, (rows, one) in enumerate(sequences_of(p, *packed)):
            single = p.one(one[0].shape[2], one[1].shape[2])
            its_out, its_grad = (x[rows].swapaxes(0, 1)[None] for x in (out, grad))
            own_arrays = (*one, its_out, sums[None, :, rows], its_grad)
            where = (rows, *(slice(int(starts_k[b]), int(starts_k[b + 1])),) * 2)
            its = [v[at].swapaxes(0, 1)[None] for v, at in zip(values, where, strict=True)]
            parts = bounds.attention_backward(single, own_arrays, its)
            for whole, at, part in zip(found, where, parts, strict=True):
                whole[at] = part[0].swapaxes(0, 1)
        return found

    return experiment_of("varlen_backward", p, config, arrays, allowed)


def _decode(
    rng: np.random.Generator,
    name: str,
    problem: DecodeProblem,
    tile: list[int],
    threads: int,
    num_stages: int,
    num_splits: int,
    num_shares: int,
    lengths: list[int] | None,
) -> Experiment:
    block_h, block_k = tile
    columns = GemmWarpPolicy.FullCol
    config = DecodeConfig(block_h, block_k, num_stages, threads, num_splits, columns, num_shares)
    arrays = FAMILIES[name].inputs(problem, rng)
    if lengths is not None:
        place = next(k for k, a in enumerate(arrays) if a.shape == (problem.batch,))
        arrays[place][:] = lengths

    def allowed(arrays: Any, values: Any) -> list[Any]:
        q, *rest = arrays
        if name == "mla_decode":
            rest.insert(1, rest[0][..., : problem.dim_v])
        table = rest[3] if problem.page_size else None
        keys, values_ = (gathered(problem, cache, table) for cache in rest[:2])
        return bounds.attention(as_attention(problem), (q, keys, values_, rest[2]), values)

    return experiment_of(name, problem, config, arrays, allowed)


def flash_decode(
    rng: np.random.Generator,
    kv_len: int,
    dim: int = 32,
    heads: int = 4,
    batch: int = 2,
    tile: list[int] | None = None,
    threads: int = 128,
    num_stages: int = 2,
    num_splits: int = 2,
    num_shares: int = 0,
    lengths: list[int] | None = None,
    **problem: Any,
) -> Experiment:
    """Flash decoding: one query a sequence, the cache divided among blocks, in `num_splits` for
    each sequence or in `num_shares` for all."""
    batch = batch if lengths is None else len(lengths)
    p = DecodeProblem(batch, heads, kv_len, dim, **problem)
    return _decode(
        rng, "flash_decode", p, tile or [64, 64], threads, num_stages, num_splits, num_shares,
        lengths,
    )  # fmt: skip


def mla_decode(
    rng: np.random.Generator,
    kv_len: int,
    dim: int = 96,
    dim_v: int = 64,
    heads: int = 20,
    batch: int = 2,
    tile: list[int] | None = None,
    threads: int = 128,
    num_stages: int = 2,
    num_splits: int = 2,
    num_shares: int = 0,
    lengths: list[int] | None = None,
    **problem: Any,
) -> Experiment:
    """Latent attention: the values are columns of the keys."""
    batch = batch if lengths is None else len(lengths)
    p = DecodeProblem(batch, heads, kv_len, dim, kv_heads=1, dim_v=dim_v, **problem)
    tile = tile or [16, 32]
    return _decode(rng, "mla_decode", p, tile, threads, num_stages, num_splits, num_shares, lengths)


BUILDERS: tuple[Any, ...] = (
    attention, attention_8_bit, attention_backward, flash_varlen, varlen_backward, flash_decode,
    mla_decode,
)  # fmt: skip
