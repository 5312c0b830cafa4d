"""Generated gradients of attention: in the emulator against float64, and what is made of a step."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

import tilecore
from tilecore.compiler import lower
from tilecore.errors import UnsupportedError
from tilecore.targets import choose_target
from tilecore_kernels.attention_backward import ATTENTION_BACKWARD
from tilecore_kernels.attention_problem import AttentionProblem as Problem
from tilecore_kernels.backward_problem import BackwardConfig, configs, inputs, reference

CASES = {
    "ragged": (Problem(1, 2, 130, 128, "float16", kv_len=150, has_lse=True), 64),
    "causal, shared heads": (
        Problem(1, 2, 200, 128, "float16", kv_heads=1, kv_len=260, right=0, has_lse=True), 64,
    ),
    "as many queries as keys": (Problem(1, 1, 300, 64, "float16", right=0, has_lse=True), 128),
    "one step": (Problem(1, 1, 50, 64, "bfloat16", kv_len=100, right=0, has_lse=True), 64),
    "blocks without steps": (
        Problem(1, 1, 60, 64, "float16", kv_len=300, right=0, left=20, has_lse=True), 64,
    ),
}  # fmt: skip


def config_of(step: int, adds: bool = True, staged: bool = False) -> BackwardConfig:
    return BackwardConfig(128, step, 128, 96, 2, 256, adds, staged)


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_float64(name: str, staged: bool) -> None:
    problem, step = CASES[name]
    program = ATTENTION_BACKWARD.program(problem, config_of(step, staged=staged))
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    # Rows of lengths that are no multiples of four are out of the copy engine's reach.
    has_roles = problem.q_len % 4 == 0
    assert ("// producer" in kernel.source) == has_roles
    assert ("// storer" in kernel.source) == (staged and has_roles)
    arrays = inputs(problem, np.random.default_rng(0))
    got = [np.full(problem.shapes()[n], np.nan, arrays[0].dtype) for n in "QKV"]
    kernel(*arrays, *got)
    allowed = 2.0**-7 if problem.dtype == "bfloat16" else 2.0**-10
    for one, want in zip(got, reference(problem, *arrays), strict=True):
        error = np.abs(one.astype(np.float64) - want).max()
        assert error <= allowed * max(1.0, np.abs(want).max())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("adds", "staged"), [(False, False), (True, False), (True, True)])
def test_all_fits_registers(causal: bool, adds: bool, staged: bool) -> None:
    problem = Problem(8, 32, 4096, 128, "float16", right=0 if causal else None, has_lse=True)
    program = ATTENTION_BACKWARD.program(problem, config_of(64 if adds else 48, adds, staged))
    kernel = tilecore.compile(program, backend="cuda_hopper")
    assert [(r.spill_bytes, r.notes) for r in kernel.resources] == [(0, ())] * 3


@pytest.mark.parametrize("causal", [False, True])
def test_square_steps_of_half_the_columns_fit_registers(causal: bool) -> None:
    """As many queries a step as a block has keys: both kinds of slopes are rounded first."""
    problem = Problem(8, 32, 4096, 64, "float16", right=0 if causal else None, has_lse=True)
    config = ATTENTION_BACKWARD.default_config(problem, choose_target("cuda_hopper"))
    assert (config.step_q, config.adds) == (128, True)
    program = ATTENTION_BACKWARD.program(problem, config)
    kernel = tilecore.compile(program, backend="cuda_hopper")
    assert [(r.spill_bytes, r.notes) for r in kernel.resources] == [(0, ())] * 3


def scheduled(problem: Problem) -> str:
    program = ATTENTION_BACKWARD.program(problem, config_of(64))
    return lower(program, backend="cuda_hopper").ir("scheduled")


@pytest.mark.parametrize("causal", [False, True])
def test_sums_are_added_and_rounded_in_whole_lines(causal: bool) -> None:
    problem = Problem(2, 2, 256, 128, "float16", right=0 if causal else None, has_lse=True)
    program = ATTENTION_BACKWARD.program(problem, config_of(64))
    source = lower(program, backend="cuda_hopper").source.text
    # Four neighbours an addition: no element alone, no guard around them.
    assert set(re.findall(r"atomic_add_global(.*?)\(", source)) == {"<4>"}
    assert set(re.findall(r"load_global(.*?)\(Sums_in", source)) == {"<4>"}
    assert "sums_staged" not in source  # a lane rounds what it has read


@pytest.mark.parametrize("kv_heads", [1, 4])
def test_nothing_but_arithmetic_between_scores_and_slopes(kv_heads: int) -> None:
    """Masks are set on scores, before the exponentials; additions need no guard of their own; lanes
    publish once a step, with their slopes, and that is after their last read of a slot."""
    problem = Problem(2, 4, 1024, 128, "float16", kv_heads=kv_heads, right=0, has_lse=True)
    source = lower(
        ATTENTION_BACKWARD.program(problem, config_of(64)), backend="cuda_hopper"
    ).source.text
    consumers = source[source.index("// consumers") :]
    step = consumers[consumers.index("hopper::wgmma_wait<1>(); hopper::pin(weights)") :]
    step = step[: step.index("barrier_arrive(q_empty")]
    exponentials = step[step.index("fast_exp2") : step.index("T.copy(weights, weights_in)")]
    assert "if (" not in exponentials
    assert step.count("hopper::publish()") == 1
    assert set(re.findall(r"atomic_add_global(.*?)\(", step)) == {"<4>"}


@pytest.mark.parametrize("heads", [3, 4, 6])
def test_heads_walked_together_give_the_same(heads: int) -> None:
    """Also where they are no multiple of those together; long tiles come first."""
    problem = Problem(1, heads, 260, 64, "float16", right=0, has_lse=True)
    program = ATTENTION_BACKWARD.program(problem, config_of(64))
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    assert "in_panel" in kernel.source
    check(kernel, problem)


def test_barriers_lie_close_where_there_is_no_room() -> None:
    """226 KiB of tiles and a storer: blocks stay, 16 bytes from one barrier to the next."""
    problem = Problem(1, 2, 1024, 64, "float16", right=0, has_lse=True)
    program = ATTENTION_BACKWARD.program(problem, config_of(128, staged=True))
    lowered = lower(program, backend="cuda_hopper")
    (kernel,) = (k for k in lowered.source.kernels if dict(k.extra).get("persistent"))
    assert kernel.smem_bytes <= choose_target("cuda_hopper").smem_bytes
    places = [int(x) for x in re.findall(r"buffer<uint64_t>\(smem, (\d+)", lowered.source.text)]
    assert len(places) == 12  # of six rings
    assert {b - a for a, b in itertools.pairwise(sorted(places))} == {16}


def test_staged_sums_are_whole_panels() -> None:
    problem = Problem(1, 1, 64, 60, "float16", has_lse=True)
    with pytest.raises(UnsupportedError, match="multiple of 8"):
        ATTENTION_BACKWARD.program(problem, config_of(64, staged=True))
    target = choose_target("cuda_hopper")
    assert not any(c.staged for c in configs(problem, target))
    assert configs(CASES["ragged"][0], target)[0].staged


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize(("tiles", "right", "pairs"), [(4, None, 1), (3, None, 0), (4, 0, 0)])
def test_neighbours_load_queries_for_one_another(
    tiles: int, right: int | None, pairs: int, staged: bool
) -> None:
    """Where tiles walk the same queries and their number is even: in clusters of two."""
    problem = Problem(1, 2, 192, 128, "float16", kv_len=128 * tiles, right=right, has_lse=True)
    program = ATTENTION_BACKWARD.program(problem, config_of(64, staged=staged))
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    assert kernel.source.count("bulk_load_shared<2>(q ") == pairs
    assert kernel.source.count("bulk_load_shared<2>(grad") == pairs
    check(kernel, problem)


def test_descriptors_are_held() -> None:
    """Made once by the consumers, not in every step: all of the five products'."""
    problem = Problem(1, 2, 256, 128, "float16", has_lse=True)
    program = ATTENTION_BACKWARD.program(problem, config_of(64))
    source = lower(program, backend="cuda_hopper").source.text
    step = source[source.index("for (int step = 0") :]
    assert source.count("hopper::hold(") >= 5 and "hopper::descriptor(" not in step


def check(kernel: tilecore.driver.CompiledKernel, problem: Problem) -> None:
    """Gradients of a kernel beside float64's."""
    arrays = inputs(problem, np.random.default_rng(0))
    got = [np.full(problem.shapes()[n], np.nan, arrays[0].dtype) for n in "QKV"]
    kernel(*arrays, *got)
    for one, want in zip(got, reference(problem, *arrays), strict=True):
        assert np.abs(one.astype(np.float64) - want).max() <= 2.0**-10 * max(1, np.abs(want).max())


def test_small_loads_share_the_barrier_of_larger_ones() -> None:
    problem = Problem(1, 1, 256, 128, "float16", has_lse=True)
    program = ATTENTION_BACKWARD.program(problem, config_of(64))
    source = lower(program, backend="cuda_hopper").source.text
    assert "rows_full" not in source
    assert re.search(r"bulk_load(_shared<2>)?\(rows\b", source)


def test_contractions_are_waited_for_where_they_must_be() -> None:
    """Order of starts and waits in a step; one barrier of the block in it, one a tile."""
    text = scheduled(Problem(1, 1, 1024, 128, "float16", has_lse=True))
    loop = text[text.index("for step in serial(0, 16)") : text.index("parallel (j_2")]
    events = re.findall(
        r"gemm [^>]*-> (\w+)|(atomic) add|contraction\.(wait)\((\d)|(sync_block)"
        r"|arrive(?:_each)?\(&(\w)\w*_empty",
        loop,
    )
    assert ["".join(event) for event in events] == [
        "weights", "slopes", "wait1", "wait0", "dv", "sync_block", "dq", "dk", "wait1", "g",
        "atomic", "wait0", "q", "k", "v", "sync_block",
    ]  # fmt: skip
