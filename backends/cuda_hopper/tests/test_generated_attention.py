"""Generated attention in the emulator against float64: clusters, counters, steps left out."""

from __future__ import annotations

import numpy as np
import pytest

import tilecore
from tilecore.compiler import lower
from tilecore.driver import clear_memory_cache
from tilecore_kernels.attention_problem import AttentionConfig, AttentionProblem, inputs, reference
from tilecore_kernels.flash_attention import FLASH_ATTENTION
from tilecore_kernels.flash_attention_fp8 import FLASH_ATTENTION_FP8

Problem, Config = AttentionProblem, AttentionConfig
CASES = {
    "causal, tiles from a counter": (Problem(1, 4, 512, 64, "float16", right=0), (192, 80, 3, 384)),
    "causal, two warpgroups": (
        Problem(2, 2, 500, 64, "float16", right=0, kv_heads=1), (128, 64, 2, 256),
    ),
    "causal, more keys": (
        Problem(1, 2, 300, 64, "float16", kv_len=500, right=0, has_lse=True), (192, 64, 3, 384),
    ),
    "causal, rows without keys": (
        Problem(1, 1, 400, 64, "float16", kv_len=200, right=0, has_lse=True), (192, 64, 3, 384),
    ),
    "window": (Problem(1, 1, 400, 64, "float16", left=70, right=10), (128, 64, 2, 256)),
    "clusters": (Problem(1, 1, 384, 128, "float16", kv_len=1290), (192, 80, 3, 384)),
    "too short for clusters": (Problem(1, 1, 256, 64, "float16"), (64, 64, 2, 128)),
    "clusters, one block beyond the end": (
        Problem(1, 1, 1060, 64, "float16", has_lse=True), (64, 64, 2, 128),
    ),
    "warpgroups without rows": (
        Problem(1, 2, 450, 64, "float16", kv_len=300, has_lse=True), (192, 80, 3, 384),
    ),
    "causal, warpgroups without rows": (
        Problem(1, 2, 450, 64, "float16", right=0, has_lse=True), (192, 64, 3, 384),
    ),
    "clusters, blocks go": (Problem(1, 1, 500, 256, "float16"), (128, 80, 2, 256)),
    "dim 192, values 128": (
        Problem(1, 1, 200, 192, "float16", dim_v=128, right=0), (128, 80, 2, 256),
    ),
    "dim 80": (Problem(1, 1, 200, 80, "bfloat16"), (128, 64, 2, 256)),
}  # fmt: skip


def run(
    problem: AttentionProblem, config: tuple[int, int, int, int], scale: float = 1.0
) -> tuple[list[np.ndarray], tuple[np.ndarray, ...]]:
    """(results, float64 reference); queries are multiplied by `scale`."""
    program = FLASH_ATTENTION.program(problem, AttentionConfig(*config))
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    q, *rest = inputs(problem, np.random.default_rng(0))
    q = (q.astype(np.float32) * scale).astype(q.dtype)
    dtypes = (q.dtype, np.float32)
    got = [
        np.full(shape, np.nan, dtype)
        for (shape, _), dtype in zip(FLASH_ATTENTION.outputs(problem), dtypes, strict=False)
    ]
    kernel(q, *rest, *got)
    return [x.astype(np.float64) for x in got], reference(problem, q, *rest)


@pytest.mark.parametrize("name", CASES)
def test_attention_equals_float64(name: str) -> None:
    problem, config = CASES[name]
    got, want = run(problem, config)
    step = 2.0**-8 if problem.dtype == "bfloat16" else 2.0**-10
    for one, other in zip(got, want, strict=True):
        finite = np.isfinite(other)
        assert np.array_equal(np.isneginf(one), np.isneginf(other))
        np.testing.assert_allclose(one[finite], other[finite], rtol=2 * step, atol=step)


@pytest.mark.parametrize("scale", [-1.0, 40.0, -40.0, 0.0])
def test_peaks_of_either_sign_and_large_ones(scale: float) -> None:
    """Maxima by bit patterns hold for floats that are not negative; others take the other way."""
    problem = Problem(1, 1, 130, 64, "float16", right=0, has_lse=True)
    got, want = run(problem, (128, 64, 2, 256), scale)
    np.testing.assert_allclose(got[0], want[0], rtol=4e-3, atol=4e-3)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-4, atol=1e-3)


def test_all_scores_negative() -> None:
    """Every running maximum is negative: no step may take the way by bit patterns alone."""
    problem = Problem(1, 1, 128, 64, "float16", has_lse=True)
    program = FLASH_ATTENTION.program(problem, Config(128, 64, 2, 256))
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    q, k, v = inputs(problem, np.random.default_rng(0))
    q, k = np.abs(q), -np.abs(k)
    got = np.zeros(q.shape, np.float16), np.zeros(q.shape[:-1], np.float32)
    kernel(q, k, v, *got)
    want = reference(problem, q, k, v)
    np.testing.assert_allclose(got[0].astype(np.float64), want[0], rtol=4e-3, atol=4e-3)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-4, atol=1e-3)


def source_of(name: str) -> str:
    problem, config = CASES[name]
    program = FLASH_ATTENTION.program(problem, AttentionConfig(*config))
    return lower(program, backend="cuda_hopper").source.text


@pytest.mark.parametrize("length", [450, 576])
def test_the_causal_tile_that_lacks_rows_is_the_one_that_sees_the_fewest_keys(length: int) -> None:
    problem = Problem(1, 1, length, 64, "float16", right=0)
    text = lower(FLASH_ATTENTION.program(problem, Config(192, 64, 3, 384)), backend="cuda_hopper")
    first = "(2 - bx_1) * 192" if length % 192 == 0 else "450 - (bx_1 + 1) * 192"
    assert f"const int first_q_1 = {first};" in text.source.text


def test_schedules_are_those_that_the_cases_name() -> None:
    assert "hopper::take_tile(" in source_of("causal, tiles from a counter")
    assert "own_steps" in source_of("causal, tiles from a counter")
    assert "own_steps" in source_of("warpgroups without rows")
    assert "bulk_load_shared<2>" in source_of("clusters")
    assert "bulk_load_shared<2>" in source_of("clusters, blocks go")
    assert "bulk_load_shared" not in source_of("too short for clusters")
    for name in ("causal, tiles from a counter", "clusters"):
        assert "hopper::max_bits(" in source_of(name)


@pytest.mark.parametrize("seed", [1, 2])
def test_any_order_of_lanes_and_deliveries(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILECORE_EMULATOR_SEED", str(seed))
    clear_memory_cache()
    for name in ("causal, more keys", "clusters, one block beyond the end"):
        test_attention_equals_float64(name)


@pytest.mark.parametrize("stages", [3, 4])
def test_result_does_not_depend_on_stages(stages: int) -> None:
    problem = Problem(1, 1, 400, 64, "float16", right=0)
    first = run(problem, (128, 64, 2, 256))[0][0]
    np.testing.assert_array_equal(run(problem, (128, 64, stages, 256))[0][0], first)


@pytest.mark.parametrize("lag", [0.0, 8.0])
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_anchors_that_move_in_every_tile(dim: int, lag: float) -> None:
    """Logits of some rows, and of some tiles only, grow from tile to tile by more than any lag."""
    problem = Problem(1, 1, 128, dim, "float16", kv_len=400, has_lse=True, lag=lag)
    program = FLASH_ATTENTION.program(problem, Config(128, 80, 2, 256))
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    q, k, v = (x.astype(np.float32) for x in inputs(problem, np.random.default_rng(0)))
    q[:, :, ::3], k[:, :, ::-1] = q[:, :, ::3] * 8, k * np.linspace(0.1, 4.0, 400)[:, None]
    q, k, v = (x.astype(np.float16) for x in (q, k, v))
    got = np.full(q.shape, np.nan, np.float16), np.zeros(q.shape[:-1], np.float32)
    kernel(q, k, v, *got)
    want = reference(problem, q, k, v)
    np.testing.assert_allclose(got[0].astype(np.float64), want[0], rtol=4e-3, atol=4e-3)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-4, atol=1e-3)


def test_rows_are_rescaled_one_by_one_beside_the_next_scores() -> None:
    text = source_of("clusters")
    loop = text[text.index("// consumers") :]
    loop = loop[loop.index("TC_NO_UNROLL\n        for (int step") :]
    places = [loop.index(f"vote_any(previous[{row}] != 1.0f)") for row in (0, 1)]
    assert loop.index(", ss)") < places[0] < places[1] < loop.index(", rs)")
    # 16 products a row and lane are too few for two tests
    assert "previous[0] != 1.0f || previous[1] != 1.0f" in source_of("causal, two warpgroups")


COMPILED = (
    (Problem(8, 32, 4096, 128, "float16"), (192, 80, 3, 384)),
    (Problem(8, 32, 4096, 128, "float16", right=0), (192, 80, 3, 384)),
    (Problem(16, 16, 1024, 128, "float16", right=0), (128, 128, 2, 256)),
    (Problem(1, 32, 16384, 64, "float16", right=0), (192, 128, 4, 384)),
    (Problem(1, 8, 16384, 256, "float16"), (128, 80, 2, 256)),
    (Problem(2, 8, 4096, 192, "float16", dim_v=128, right=0), (128, 112, 2, 256)),
    (Problem(2, 8, 4096, 96, "float16", right=0), (192, 112, 2, 384)),
    (Problem(2, 8, 4096, 80, "float16"), (192, 112, 2, 384)),
    (Problem(1, 8, 16384, 256, "float8_e4m3fn"), (128, 128, 2, 256)),
    (Problem(1, 8, 16384, 256, "float8_e4m3fn", right=0), (128, 128, 2, 256)),
    (Problem(1, 16, 16384, 128, "float8_e4m3fn"), (192, 96, 3, 384)),
)


@pytest.mark.parametrize("problem, config", COMPILED, ids=lambda x: str(x)[:40])
def test_no_remark_costs_speed(
    problem: AttentionProblem, config: tuple[int, int, int, int]
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed: not run")
    family = FLASH_ATTENTION_FP8 if problem.dtype.startswith("float8") else FLASH_ATTENTION
    kernel = tilecore.compile(
        family.program(problem, AttentionConfig(*config)), backend="cuda_hopper"
    )
    used = kernel.resources[-1]
    assert "wgmma_wait<1>" in kernel.source  # scores are on their way when values are added
    assert (used.notes, used.spill_bytes) == ((), 0)


@pytest.mark.parametrize("name", ["warpgroups without rows", "causal, tiles from a counter"])
def test_result_does_not_depend_on_the_number_of_blocks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that stay walk the same tiles, however many of them there are."""
    from tilecore import emulated

    first = run(*CASES[name])[0]
    for blocks in (1, 4):
        monkeypatch.setattr(emulated, "PERSISTENT_BLOCKS", blocks)
        clear_memory_cache()
        for one, other in zip(run(*CASES[name])[0], first, strict=True):
            np.testing.assert_array_equal(one, other)
