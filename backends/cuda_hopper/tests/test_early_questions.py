"""Short steps of attention: the next slot asked for early, rings counted, descriptors held.

The plan's choice for three warpgroups; options say otherwise, either way. Results have the same
bits with and without, whatever the number of stages.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilecore
from tilecore import driver
from tilecore.compiler import lower
from tilecore.errors import EmulatorFault
from tilecore.hooks.records import CompileOptions
from tilecore.ir.expr import TRUE
from tilecore.passes.roles.ring import Ring
from tilecore_backend_cuda_hopper.descriptors import HOLDS
from tilecore_backend_cuda_hopper.overlap import ASKS_EARLY
from tilecore_kernels.attention_problem import AttentionConfig, AttentionProblem, inputs
from tilecore_kernels.flash_attention import FLASH_ATTENTION
from tilecore_kernels.gemm import GEMM, GemmProblem
from tilecore_kernels.gemm_configs import GemmConfig

Problem = AttentionProblem
ALL = (ASKS_EARLY, HOLDS)
CASES = {
    "full": (Problem(1, 2, 450, 64, "float16", kv_len=700, has_lse=True), (192, 80, 384)),
    "causal": (Problem(1, 2, 450, 64, "float16", right=0, has_lse=True), (192, 64, 384)),
    "rows without keys": (
        Problem(1, 1, 400, 64, "float16", kv_len=200, right=0, has_lse=True), (192, 64, 384),
    ),
    "window": (Problem(1, 1, 400, 64, "float16", left=70, right=10), (128, 64, 256)),
    "clusters": (Problem(1, 1, 384, 128, "float16", kv_len=1290), (192, 80, 384)),
    "two warpgroups": (Problem(2, 2, 300, 64, "bfloat16", kv_heads=1), (128, 64, 256)),
    "one warpgroup": (Problem(1, 1, 100, 64, "float16", kv_len=300), (64, 64, 128)),
    "one step": (Problem(1, 1, 100, 64, "float16", kv_len=50), (128, 64, 256)),
    "no step": (Problem(1, 1, 100, 64, "float16", kv_len=0, has_lse=True), (128, 64, 256)),
}  # fmt: skip


def options(*names: str) -> CompileOptions:
    return CompileOptions(extra=tuple((name, name in names) for name in ALL))


def attention(name: str, stages: int, *names: str):
    problem, (block_q, block_k, threads) = CASES[name]
    config = AttentionConfig(block_q, block_k, stages, threads)
    return problem, FLASH_ATTENTION.program(problem, config), options(*names)


def outcome(name: str, stages: int, *names: str) -> list[np.ndarray]:
    problem, program, chosen = attention(name, stages, *names)
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator", options=chosen)
    given = inputs(problem, np.random.default_rng(0))
    kinds = (given[0].dtype, np.dtype(np.float32))
    shapes = [shape for shape, _ in FLASH_ATTENTION.outputs(problem)]
    got = [np.full(shape, np.nan, kind) for shape, kind in zip(shapes, kinds, strict=False)]
    kernel(*given, *got)
    return got


def compare(name: str, *stages: int) -> None:
    want = outcome(name, 2)
    assert not any(np.isnan(one).any() for one in want)
    for count in stages:
        for one, other in zip(outcome(name, count, *ALL), want, strict=True):
            np.testing.assert_array_equal(one, other)


def test_no_bit_changes() -> None:
    compare("one warpgroup", 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_bit_changes_for_any_number_of_stages(name: str) -> None:
    compare(name, 2, 3, 4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_any_order_of_lanes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question may be answered by no, and by lanes of a warp differently."""
    want = {name: outcome(name, 2) for name in ("causal", "clusters")}
    monkeypatch.setenv("TILECORE_EMULATOR_SEED", str(seed))
    driver.clear_memory_cache()
    for name, stages in itertools.product(want, (2, 3)):
        for one, other in zip(outcome(name, stages, *ALL), want[name], strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_missing_wait_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wait behind a question products read what has not landed."""
    wait = Ring.wait_full_unless
    monkeypatch.setattr(Ring, "wait_full_unless", lambda ring, step, known: wait(ring, step, TRUE))
    monkeypatch.setattr(driver, "_memory", {})
    with pytest.raises(EmulatorFault):
        outcome("full", 2, ASKS_EARLY)


def steady_loop(text: str) -> str:
    """The text of the consumers' loop over key tiles."""
    begin = text.index("hopper::wgmma_wait<1>()")
    begin = text.rindex("TC_NO_UNROLL", 0, begin)
    return text[begin : text.index("wgmma_wait<0>", begin)]


@pytest.mark.parametrize("stages", [3, 4])
def test_the_question_stands_before_the_softmax_and_no_slot_is_divided_out(stages: int) -> None:
    _, program, chosen = attention("full", stages, ASKS_EARLY)
    loop = steady_loop(lower(program, backend="cuda_hopper", options=chosen).source.text)
    places = [loop.index(w) for w in ("wgmma_wait<1>", "barrier_test(", "exp2(", "there[0] != 0")]
    assert places == sorted(places)
    assert "floor_mod" not in loop and "floor_div" not in loop and "%" not in loop


def test_each_descriptor_is_held_once() -> None:
    _, program, chosen = attention("causal", 2, HOLDS)
    text = lower(program, backend="cuda_hopper", options=chosen).source.text
    assert text.count("hopper::hold(") == text.count("hopper::descriptor(") == 3
    gemm = GEMM.program(GemmProblem(256, 256, 256, "float16"), GemmConfig(128, 128, 64, 3, 256))
    text = lower(gemm, backend="cuda_hopper", options=chosen).source.text
    assert text.count("hopper::hold(") == text.count("hopper::descriptor(") == 2


WORDS = ("barrier_test", "hold(", "__words", "there[0]")


def test_without_the_options_nothing_of_them_is_generated() -> None:
    _, program, chosen = attention("causal", 2)
    text = lower(program, backend="cuda_hopper", options=chosen).source.text
    assert not any(word in text for word in WORDS)


@pytest.mark.parametrize(("name", "is_chosen"), [("causal", True), ("two warpgroups", False)])
def test_the_plan_chooses_where_options_say_nothing(name: str, is_chosen: bool) -> None:
    _, program, both = attention(name, 2, *ALL)
    _, _, neither = attention(name, 2)
    wanted = lower(program, backend="cuda_hopper", options=both if is_chosen else neither)
    assert lower(program, backend="cuda_hopper").source.text == wanted.source.text
