"""Short steps of attention: the next slot asked for early, rings counted, descriptors held,
conversions beside exponentials.

Options that are off by default: with them results have the same bits, whatever the number of
stages, and texts without them stay as they were.
"""

from __future__ import annotations

import dataclasses
import itertools
import re

import numpy as np
import pytest

import tilecore
from tilecore import driver
from tilecore.compiler import lower
from tilecore.errors import EmulatorFault
from tilecore.hooks.records import CompileOptions
from tilecore.ir.buffers import Buffer
from tilecore.ir.dtypes import float32
from tilecore.ir.expr import TRUE, Cast, Load, const
from tilecore.ir.program import Kernel, Program
from tilecore.ir.stmts import Block, For, Intrinsic, Stmt, Store
from tilecore.ir.visit import buffers_in, walk_stmts
from tilecore.passes.lowering.convert_beside import BESIDE, convert_beside
from tilecore.passes.roles.ring import Ring
from tilecore_backend_cuda_hopper.copy import ASKS_EARLY, CONVERTS_BESIDE
from tilecore_backend_cuda_hopper.descriptors import HOLDS
from tilecore_kernels.attention_problem import AttentionConfig, AttentionProblem, inputs
from tilecore_kernels.flash_attention import FLASH_ATTENTION
from tilecore_kernels.gemm import GEMM, GemmProblem
from tilecore_kernels.gemm_configs import GemmConfig

Problem = AttentionProblem
ALL = (ASKS_EARLY, CONVERTS_BESIDE, HOLDS)
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
    return CompileOptions(extra=tuple((name, True) for name in sorted(names)))


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


@pytest.mark.parametrize("name", ["full", "causal"])
def test_the_last_quarter_of_the_exponentials_stands_behind_the_wait(name: str) -> None:
    _, program, chosen = attention(name, 3, ASKS_EARLY, CONVERTS_BESIDE)
    text = lower(program, backend="cuda_hopper", options=chosen).source.text
    groups = CASES[name][1][1] // 8  # of 8 columns
    first = groups - groups // 4
    loop = text[text.index("barrier_test(") :]
    loop = re.split(r"slot\w* = slot", loop)[0]
    words = (f" < {first}; ", "pin(scores);", "wgmma_wait<0>", f" = {first}; ", "store_pair(")
    places = [loop.index(word) for word in words]
    assert places == sorted(places)
    assert loop.count("fast_exp2(scores") == loop.count("store_pair(") == 2


def test_work_that_shares_more_than_the_result_is_left_where_it_is() -> None:
    _, program, chosen = attention("full", 3)
    kernel = lower(program, backend="cuda_hopper", options=chosen).stages[-1][1].kernels[0]
    loops = [s for s in walk_stmts(kernel.body) if isinstance(s, For)]
    steady = next(s for s in loops if any(is_settle(t) for t in s.body))
    hinted = dataclasses.replace(steady, hints=((BESIDE, True),))
    assert divided(hinted) != hinted
    at = next(k for k, s in enumerate(steady.body) if is_settle(s))
    weights = next(b for b in buffers_in(steady.body) if b.name == "weights")
    reads = Store(total_of(steady.body), (const(0),), Cast(Load(weights, (const(0),)), float32))
    body = (*steady.body[:at], reads, *steady.body[at:])
    spoilt = dataclasses.replace(hinted, body=body)
    assert divided(spoilt) == spoilt


def divided(loop: For) -> For:
    """The loop after the pass."""
    kernel = Kernel("k", (), (), 128, (loop,))
    (after,) = convert_beside(Program("p", (), (kernel,)), None).kernels
    return after.body[0]


def is_settle(stmt: Stmt) -> bool:
    return isinstance(stmt, Intrinsic) and stmt.op == "contraction.settle"


def total_of(body: Block) -> Buffer:
    return next(b for b in buffers_in(body) if b.name == "total")


def test_without_the_options_nothing_of_them_is_generated() -> None:
    _, program, _ = attention("causal", 2)
    text = lower(program, backend="cuda_hopper").source.text
    assert not any(word in text for word in ("barrier_test", "hold(", "__words", "there[0]"))
