"""Attention over packed sequences in the emulator: blocks that stay on grids known at launch."""

from __future__ import annotations

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.compiler import lower
from tilecore_kernels.attention_problem import AttentionConfig
from tilecore_kernels.flash_varlen import FLASH_VARLEN
from tilecore_kernels.varlen_problem import VarlenProblem, inputs, reference

LENGTHS = ((300, 300), (0, 9), (65, 200), (400, 390), (5, 5))
CONFIGS = ((192, 80, 3, 384), (128, 64, 2, 256))


def problem_of(right: int | None) -> VarlenProblem:
    return VarlenProblem(2, 64, 400, kv_heads=1, right=right, lengths=LENGTHS)


@pytest.mark.parametrize("right", [0, None])
@pytest.mark.parametrize("config", CONFIGS)
def test_packed_sequences_equal_float64(
    config: tuple[int, int, int, int], right: int | None
) -> None:
    """Also where rows before the first sequence and behind the last belong to none."""
    problem = problem_of(right)
    program = FLASH_VARLEN.program(problem, AttentionConfig(*config))
    assert "hopper::take_tile(" in lower(program, backend="cuda_hopper").source.text
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    q, k, v, starts_q, starts_k = inputs(problem, np.random.default_rng(0))
    front, back = 210, 500
    wide_q = np.concatenate([q[:1].repeat(front, 0), q, q[:1].repeat(back, 0)])
    got = [np.full(wide_q.shape, np.nan, q.dtype), np.full((2, len(wide_q)), np.nan, np.float32)]
    kernel(wide_q, k, v, starts_q + np.int32(front), starts_k, *got)
    out, lse = reference(problem, q, k, v, starts_q, starts_k)
    own = slice(front, front + len(q))
    np.testing.assert_allclose(got[0][own].astype(np.float64), out, rtol=2e-3, atol=2e-3)
    finite = np.isfinite(lse)
    np.testing.assert_array_equal(np.isneginf(got[1][:, own]), ~finite)
    np.testing.assert_allclose(got[1][:, own][finite], lse[finite], rtol=1e-4, atol=1e-3)
    for outside in (slice(0, front), slice(own.stop, None)):
        assert np.isnan(got[0][outside]).all() and np.isnan(got[1][:, outside]).all()


@pytest.mark.parametrize("order", ["rows first", "batch second", "batch last"])
@pytest.mark.parametrize("causal", [False, True])
def test_any_axis_may_be_known_at_launch_only(order: str, causal: bool) -> None:
    """Every place of a grid is visited once, whichever of its extents are dynamic."""
    heads, dim, tile = 3, 64, 64
    batch, length = T.dynamic("batch, length")
    type_ = T.Tensor((batch, heads, length, dim), "float16")
    rows = T.ceildiv(length, tile)
    grid = (rows, heads, batch) if order != "batch second" else (rows, batch, heads)
    if order == "rows first":
        grid = (rows, batch * heads)  # type: ignore[assignment]

    @T.prim_func
    def attention(Q: type_, K: type_, V: type_, Out: type_):  # type: ignore[valid-type]
        with T.Kernel(*grid, threads=128) as places:
            q = T.alloc_shared((tile, dim), "float16")
            k = T.alloc_shared((tile, dim), "float16")
            v = T.alloc_shared((tile, dim), "float16")
            scores = T.alloc_fragment((tile, tile), "float32")
            weights = T.alloc_fragment((tile, tile), "float16")
            out = T.alloc_fragment((tile, dim), "float32")
            if order == "rows first":
                head, b = places[1] % heads, places[1] // heads
            elif order == "batch second":
                head, b = places[2], places[1]
            else:
                head, b = places[1], places[2]
            first = places[0] * tile
            T.copy(Q[b, head, first : first + tile, 0:dim], q)
            T.clear(out)
            steps = places[0] + 1 if causal else T.ceildiv(length, tile)
            for step in T.Pipelined(steps, num_stages=2):
                T.copy(K[b, head, step * tile : step * tile + tile, 0:dim], k)
                T.copy(V[b, head, step * tile : step * tile + tile, 0:dim], v)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                T.copy(scores, weights)
                T.gemm(weights, v, out)
            T.copy(out, Out[b, head, first : first + tile, 0:dim])

    text = lower(attention, backend="cuda_hopper").source.text
    assert ("hopper::take_tile(" if causal else "round_loaded") in text
    kernel = tilecore.compile(attention, backend="cuda_hopper", device="emulator")
    rng = np.random.default_rng(0)
    shape = (5, heads, 192, dim)
    q, k, v = (rng.integers(-1, 2, shape).astype(np.float16) for _ in range(3))
    got = np.full(shape, np.nan, np.float16)
    kernel(q, k, v, got)
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3)
    if causal:
        at = np.arange(192) // tile
        scores *= at[:, None] >= at[None, :]
    want = scores @ v.astype(np.float64)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=2e-3, atol=0.5)
