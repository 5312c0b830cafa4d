"""Kernels of one program on targets that start them before their predecessor has ended."""

from __future__ import annotations

import re

import numpy as np
import pytest
from compiling import kernel_on

import tilecore.language as T
from tilecore.compiler import lower
from tilecore_kernels.decode_problem import DecodeConfig, DecodeProblem
from tilecore_kernels.flash_decode import FLASH_DECODE

N = 256


def three_steps() -> object:
    """Two kernels whose results the next one reads, with blocks that read what others wrote."""

    @T.prim_func
    def three_steps(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        Twice = T.alloc_global((N,), "float32")
        Turned = T.alloc_global((N,), "float32")
        with T.Kernel(2, threads=128) as bx:
            for i in T.Parallel(N // 2):
                Twice[bx * (N // 2) + i] = A[bx * (N // 2) + i] * 2.0
        with T.Kernel(2, threads=128) as bx:
            for i in T.Parallel(N // 2):
                Turned[bx * (N // 2) + i] = Twice[N - 1 - bx * (N // 2) - i] + A[i]
        with T.Kernel(1, threads=128) as _:
            for i in T.Parallel(N):
                B[i] = Turned[i] + 1.0

    return three_steps


def kernels_of(backend: str) -> list[str]:
    text = lower(three_steps(), backend=backend).source.text
    return text.split("TC_KERNEL")[1:]


def test_every_kernel_lets_the_next_one_start_and_waits() -> None:
    for text in kernels_of("cuda_hopper"):
        assert text.count("let_next_start") == text.count("wait_for_earlier") == 1


def test_no_access_stands_before_the_wait() -> None:
    for text in kernels_of("cuda_hopper"):
        before, after = text.split("hopper::wait_for_earlier();")
        assert "_global" not in before and "_global" in after


def test_barriers_are_set_up_before_the_wait() -> None:
    problem = DecodeProblem(2, 8, 256, 64, kv_heads=2)
    config = DecodeConfig(16, 64, 2, 128, 2, T.GemmWarpPolicy.FullCol)
    text = lower(FLASH_DECODE.program(problem, config), backend="cuda_hopper").source.text
    first = text.split("TC_KERNEL")[1]
    before, after = first.split("hopper::wait_for_earlier();")
    assert "barrier_init" in before and "_global" not in before and "bulk_load" not in before
    assert "load_global(Lengths" in after, "lengths may be what ran before has written"


def test_one_kernel_starts_as_every_launch_does() -> None:
    problem = DecodeProblem(2, 8, 256, 64, kv_heads=2)
    config = DecodeConfig(16, 64, 2, 128, 1, T.GemmWarpPolicy.FullCol)
    text = lower(FLASH_DECODE.program(problem, config), backend="cuda_hopper").source.text
    assert "let_next_start" not in text and "wait_for_earlier" not in text


def test_what_others_write_is_neither_constant_nor_the_kernels_own() -> None:
    _, second, third = (
        text.partition(")")[2].partition("{")[0] for text in kernels_of("cuda_hopper")
    )
    assert re.search(r"[(, ]float\* Twice\b", second) and re.search(r"[(, ]float\* A\b", second)
    assert re.search(r"[(, ]float\* Turned\b", third) and "float* TC_RESTRICT B" in third


def test_other_targets_launch_in_order() -> None:
    for text in kernels_of("cuda_ampere"):
        assert "let_next_start" not in text and "wait_for_earlier" not in text


@pytest.mark.parametrize("backend", ["cuda_hopper", "cuda_ampere", "cpu_llvm"])
def test_the_result_is_the_same_everywhere(backend: str) -> None:
    a = np.random.default_rng(0).standard_normal(N).astype(np.float32)
    got = np.full(N, np.nan, np.float32)
    kernel_on(backend, three_steps())(a, got)
    np.testing.assert_allclose(got, 2 * a[::-1] + np.tile(a[: N // 2], 2) + 1, rtol=1e-6)
