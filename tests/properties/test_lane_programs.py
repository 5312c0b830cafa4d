"""A program written per lane means the same in the interpreter, on the host and in lanes."""

from __future__ import annotations

import numpy as np
import pytest
from compiling import EMULATED, HOST, kernel_on
from hypothesis import given, seed, settings
from lane_programs import LaneProgram, lane_programs
from running import assert_same, module_of
from test_random_programs import needs_cpu

from tilecore.hooks.manager import installed_backends

SHARDS, EACH = 6, 50  # 300 programs on the host
LANES = (("cuda_ampere", 3), ("cuda_hopper", 1), ("rocm_cdna3", 3))  # shards of each
EACH_IN_LANES = 10


def results(program: LaneProgram, backend: str) -> tuple[np.ndarray, np.ndarray]:
    """Y and Z of one run."""
    rng = np.random.default_rng(len(program.lines) * 7 + program.threads)
    x = rng.integers(-20, 21, program.sizes).astype(np.int32)
    y, z = np.zeros_like(x), np.zeros((program.blocks, 3), np.int32)
    kernel_on(backend, module_of(program.text).make(*program.sizes))(x, y, z)
    return y, z


def check(program: LaneProgram, backend: str) -> None:
    """One backend agrees with the reference interpreter, bit by bit."""
    assert_same("YZ", program, results(program, backend), results(program, "reference"), backend)


@needs_cpu
@settings(max_examples=12)
@given(lane_programs())
def test_host_agrees_with_reference(program: LaneProgram) -> None:
    check(program, HOST)


@pytest.mark.parametrize("backend", EMULATED)
@settings(max_examples=2)
@given(program=lane_programs())
def test_lanes_agree_with_reference(backend: str, program: LaneProgram) -> None:
    check(program, backend)


@pytest.mark.slow
@needs_cpu
@pytest.mark.parametrize("shard", range(SHARDS))
def test_three_hundred_programs_on_the_host(shard: int) -> None:
    @seed(shard)
    @settings(max_examples=EACH, database=None)
    @given(lane_programs())
    def agree(program: LaneProgram) -> None:
        check(program, HOST)

    agree()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "shard"), [(name, shard) for name, count in LANES for shard in range(count)]
)
def test_programs_in_lanes(backend: str, shard: int) -> None:
    if backend not in installed_backends():
        pytest.skip(f"needs {backend}")

    @seed(shard)
    @settings(max_examples=EACH_IN_LANES, database=None)
    @given(lane_programs())
    def agree(program: LaneProgram) -> None:
        check(program, backend)

    agree()
