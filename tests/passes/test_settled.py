"""Tensors that nothing enqueued right before a call writes: read at once, all else later."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from compiling import kernel_on

import tilecore.language as T
from tilecore.compiler import lower
from tilecore_kernels.decode_problem import DecodeConfig, DecodeProblem, inputs, outputs
from tilecore_kernels.flash_decode import FLASH_DECODE

N = 256
WAIT = "hopper::wait_for_earlier();"
PROBLEM = DecodeProblem(3, 8, 400, 64, kv_heads=2, is_settled=True)
PAGED = dataclasses.replace(PROBLEM, page_size=64, heads_inside=True)


def config(stages: int) -> DecodeConfig:
    return DecodeConfig(16, 64, stages, 128, 2, T.GemmWarpPolicy.FullCol)


def first_kernel(problem: DecodeProblem) -> str:
    program = FLASH_DECODE.program(problem, config(2))
    return lower(program, backend="cuda_hopper").source.text.split("TC_KERNEL")[1]


@pytest.mark.parametrize("problem", [PROBLEM, PAGED], ids=["contiguous", "paged"])
def test_each_role_waits_before_what_is_not_settled(problem: DecodeProblem) -> None:
    common, _, roles = first_kernel(problem).partition("{  // producers")
    producer, _, consumer = roles.partition("{  // consumers")
    assert WAIT not in common and "load_global(Lengths" in common
    early, late = producer.split(WAIT)
    assert "K__map" in early and "V__map" in early and "Q__map" not in early
    assert "Q__map" in late and "K__map" in late
    steps, end = consumer.split(WAIT)
    assert "store_global" not in steps and "store_global" in end


def test_without_the_promise_all_wait_first() -> None:
    text = first_kernel(dataclasses.replace(PROBLEM, is_settled=False))
    before, after = text.split(WAIT)
    assert "_global" not in before and "bulk_load" not in before and "bulk_load" in after


@pytest.mark.parametrize(
    ("problem", "backend"),
    [(PROBLEM, "cuda_hopper"), (PAGED, "cuda_hopper"), (PROBLEM, "cpu_llvm")],
    ids=["contiguous", "paged", "another target"],
)
def test_no_bit_changes(problem: DecodeProblem, backend: str) -> None:
    given = [np.array(x) for x in inputs(problem, np.random.default_rng(0))]
    given[3][:] = [400, 0, 70]  # all slots, no step at all, fewer steps than slots
    results = []
    for stages, settled in ((2, False), (2, True), (3, True), (4, True)):
        if backend != "cuda_hopper" and stages > 2:
            continue
        chosen = dataclasses.replace(problem, is_settled=settled)
        got = [np.full(shape, np.nan, dtype) for shape, dtype in outputs(problem)]
        kernel_on(backend, FLASH_DECODE.program(chosen, config(stages)))(*given, *got)
        results.append(got)
    assert not np.isnan(results[0][0]).any() and not results[0][0][1].any()
    for got in results[1:]:
        for one, other in zip(got, results[0], strict=True):
            np.testing.assert_array_equal(one, other)


def handed_on(settles_its_own: bool) -> object:
    """Two kernels; the second says of what the first writes that it is settled."""

    @T.prim_func
    def handed_on(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        Twice = T.alloc_global((N,), "float32")
        with T.Kernel(1, threads=128) as _:
            T.annotate_settled(A)
            for i in T.Parallel(N):
                Twice[i] = A[i] * 2.0
        with T.Kernel(1, threads=128) as _:
            if settles_its_own:
                T.annotate_settled(Twice)
            for i in T.Parallel(N):
                B[i] = Twice[N - 1 - i] + 1.0

    return handed_on


def test_what_the_program_writes_is_never_settled() -> None:
    texts = [lower(handed_on(own), backend="cuda_hopper").source.text for own in (False, True)]
    second = [text.split("TC_KERNEL")[2] for text in texts]
    assert all("load_global" not in text.split(WAIT)[0] for text in second)
