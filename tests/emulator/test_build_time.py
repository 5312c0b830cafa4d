"""What one kernel's build for the emulator costs: it is paid for every kernel of every test."""

from __future__ import annotations

import resource
import time
import uuid
from typing import Any

import pytest

import tilecore
from tilecore.emulator import build_kernel
from tilecore_backend_cuda_ampere.emulation import SUPPORT
from tilecore_kernels.attention_problem import AttentionConfig, AttentionProblem
from tilecore_kernels.flash_attention import FLASH_ATTENTION
from tilecore_kernels.gemm import GEMM, GemmProblem
from tilecore_kernels.gemm_configs import GemmConfig

LIMIT_SECONDS = 1.0
KERNELS: dict[str, Any] = {
    "gemm": lambda: GEMM.program(
        GemmProblem(256, 256, 256, "float16"), GemmConfig(128, 256, 64, 3, 256, 8)
    ),
    "attention": lambda: FLASH_ATTENTION.program(
        AttentionProblem(1, 2, 256, 64, "float16", right=0), AttentionConfig(64, 64, 2, 128)
    ),
}


def children_seconds() -> float:
    """Processor time of the compilers that ended so far: others on the machine do not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_built_in_less_than_a_second_and_once(name: str) -> None:
    source = tilecore.lower(KERNELS[name](), backend="cuda_ampere", arch="sm_80").source
    kernel = source.kernels[0].name
    build_kernel(source.text, kernel, SUPPORT)  # the engine, too
    costs = []
    for _ in range(2):
        text = f"{source.text}\n// {uuid.uuid4()}\n"  # never built before
        before = children_seconds()
        build_kernel(text, kernel, SUPPORT)
        costs.append(children_seconds() - before)
    print(f"{name}: {min(costs):.2f} s")
    assert 0.0 < min(costs) < LIMIT_SECONDS
    before, begin = children_seconds(), time.process_time()
    build_kernel(text, kernel, SUPPORT)
    assert children_seconds() == before, "a text that was built before is not built again"
    assert time.process_time() - begin < LIMIT_SECONDS
