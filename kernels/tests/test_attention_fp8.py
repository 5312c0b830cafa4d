"""8-bit attention against float64."""

from __future__ import annotations

import numpy as np
import pytest

import tilecore
from tilecore.compiler import lower
from tilecore_kernels.attention_problem import AttentionConfig, AttentionProblem
from tilecore_kernels.flash_attention_fp8 import DTYPE, FLASH_ATTENTION_FP8, key_at, slot_of

CASES = {
    "full": (AttentionProblem(1, 1, 160, 64, DTYPE), (128, 64, 2, 256)),
    "causal, shared heads, ragged": (
        AttentionProblem(1, 2, 200, 64, DTYPE, kv_heads=1, right=0, has_lse=True),
        (128, 64, 2, 256),
    ),
    "anchors at the maximum": (
        AttentionProblem(1, 1, 64, 64, DTYPE, kv_len=200, lag=0.0, has_lse=True), (64, 64, 2, 128),
    ),
    "values longer": (AttentionProblem(1, 1, 100, 64, DTYPE, dim_v=128), (64, 64, 2, 128)),
    "rows without keys": (
        AttentionProblem(1, 1, 130, 64, DTYPE, kv_len=60, right=0, has_lse=True), (64, 64, 1, 128),
    ),
}  # fmt: skip


def test_slots_are_a_permutation_of_each_sixteen() -> None:
    slots = [slot_of(key) for key in range(48)]
    for first in (0, 16, 32):
        assert sorted(slots[first : first + 16]) == list(range(first, first + 16))
    assert [key_at(slot) for slot in slots[:16]] == list(range(16))


@pytest.mark.parametrize("backend", ["cuda_hopper", "cuda_ampere"])
@pytest.mark.parametrize("name", CASES)
def test_error_is_that_of_8_bit_weights(name: str, backend: str) -> None:
    pytest.importorskip(f"tilecore_backend_{backend}")
    problem, config = CASES[name]
    program = FLASH_ATTENTION_FP8.program(problem, AttentionConfig(*config))
    kernel = tilecore.compile(program, backend=backend, device="emulator")
    arrays = FLASH_ATTENTION_FP8.inputs(problem, np.random.default_rng(0))
    results = [
        np.full(shape, np.nan, dtype) for shape, dtype in FLASH_ATTENTION_FP8.outputs(problem)
    ]
    kernel(*arrays, *results)
    want = FLASH_ATTENTION_FP8.reference(problem, *arrays)
    error = np.linalg.norm(results[0] - want[0]) / max(np.linalg.norm(want[0]), 1e-30)
    assert error < 0.04  # weights have 3 bits after the leading one: 2**-4 at most, less in sums
    if problem.has_lse:
        assert np.array_equal(np.isneginf(results[1]), np.isneginf(want[1]))
        seen = np.isfinite(want[1])
        np.testing.assert_allclose(results[1][seen], want[1][seen], rtol=1e-4, atol=1e-3)


def test_weights_stay_in_registers() -> None:
    pytest.importorskip("tilecore_backend_cuda_hopper")
    problem = AttentionProblem(1, 1, 256, 128, DTYPE)
    program = FLASH_ATTENTION_FP8.program(problem, AttentionConfig(128, 160, 2, 256))
    text = lower(program, backend="cuda_hopper").source.text
    assert "TC_WGMMA(f32_e4m3_e4m3, 160, ss)" in text and "TC_WGMMA(f32_e4m3_e4m3, 128, rs)" in text
    assert "weights_staged" not in text and "store_pair(weights" in text
