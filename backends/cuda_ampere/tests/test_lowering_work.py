"""How much work the compiler does for one kernel, counted in function calls: clocks are noisy."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

import tilecore
from tilecore.ir.expr import Var, binary, const
from tilecore.ir.ranges import Ranges
from tilecore.ir.simplify import simplify
from tilecore_backend_cuda_ampere.target import make_target
from tilecore_kernels.attention_problem import AttentionConfig, AttentionProblem
from tilecore_kernels.flash_attention import FLASH_ATTENTION
from tilecore_kernels.gemm import GEMM, GemmProblem
from tilecore_kernels.gemm_configs import GemmConfig


def calls_of(function: object, *arguments: object) -> int:
    """How many Python functions run inside `function`."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function(*arguments)  # type: ignore[operator]
    finally:
        sys.setprofile(before)
    return count


def gemm(config: GemmConfig) -> object:
    return GEMM.program(GemmProblem(4096, 4096, 4096, "float16"), config)


def attention() -> object:
    problem = AttentionProblem(8, 32, 4096, 128, "float16")
    return FLASH_ATTENTION.program(problem, AttentionConfig(128, 64, 2, 128))


@pytest.mark.parametrize(
    ("make", "budget"),
    [
        (lambda: gemm(GemmConfig(128, 256, 64, 3, 256, 8)), 340_000),
        (lambda: gemm(GemmConfig(128, 128, 32, 4, 128, 8)), 325_000),
        (attention, 375_000),
    ],
)
def test_lowering_stays_within_its_budget(make: object, budget: int) -> None:
    """A tenth more than it takes now: a pass that walks everything again for each statement shows.

    What is done once per process (imports, tables of atoms) is done by another kernel before.
    """
    target = make_target("sm_90")
    tilecore.lower(gemm(GemmConfig(64, 64, 32, 2, 128, 8)), target=target)
    program = make()  # type: ignore[operator]
    calls = calls_of(lambda: tilecore.lower(program, target=target))
    assert calls <= budget, f"{calls} calls"


def test_equal_parts_are_simplified_once() -> None:
    """The same sum 64 times over costs as much as once, and a lookup for each."""
    lane = Var("lane")
    ranges = Ranges().with_index(lane, const(128))
    part = binary("floormod", binary("add", binary("mul", lane, const(6)), const(5)), const(4))
    once = calls_of(simplify, part, ranges)
    total = part
    for number in range(2, 66):
        total = binary("add", total, binary("mul", part, const(number)))
    again = calls_of(simplify, total, Ranges().with_index(lane, const(128)), True)
    assert again < once + 64 * 60
