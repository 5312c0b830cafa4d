"""Random programs around pipelined contractions: one result, on every backend and on devices."""

from __future__ import annotations

import numpy as np
import pytest
from compiling import EMULATED, HOST, kernel_on
from mixed_programs import OUTPUTS, MixedProgram, mixed_program
from running import assert_same, module_of, on_device, torch_beside
from test_random_programs import needs_cpu

import tilecore
from tilecore.errors import ResourceError, UnsupportedError

SMALL, LARGE = 70, 260  # largest extents, emulated and elsewhere
HOST_SHARDS, EACH = 10, 40
LANE_SHARDS, EACH_IN_LANES = 2, 12
DEVICE_SHARDS, EACH_ON_DEVICE = 8, 25
CROWD = 150  # tiles, more than a device has places for large ones; of every sixth program there
TIMES = 3  # that a device runs each program: races need not show at once


def expected(program: MixedProgram) -> list[np.ndarray]:
    """The outputs in the reference interpreter, which faults on what was never written."""
    arguments = program.arguments()
    kernel_on("reference", module_of(program.text).make(0, 128))(*arguments)
    return arguments[-len(OUTPUTS) :]


def check(seed: int, backend: str, largest: int) -> None:
    """One program, as it is drawn and with other stages, agrees bit by bit with the reference.

    Programs that a target has no room for, or refuses with a reason, are no mismatch.
    """
    program = mixed_program(seed, largest)
    want = expected(program)
    for stages in {program.stages, 2}:
        function = module_of(program.text).make(stages, program.threads)
        try:
            kernel = kernel_on(backend, function)
        except (ResourceError, UnsupportedError):
            continue
        arguments = program.arguments()
        kernel(*arguments)
        note = f"seed {seed}, {backend}, {stages} stages, {program.threads} threads"
        assert_same(OUTPUTS, program, arguments[-len(OUTPUTS) :], want, note)


@needs_cpu
def test_host_agrees_with_reference() -> None:
    for seed in range(8):
        check(seed, HOST, SMALL)


@pytest.mark.parametrize("backend", EMULATED)
def test_lanes_agree_with_reference(backend: str) -> None:
    check(3, backend, SMALL)


@pytest.mark.slow
@needs_cpu
@pytest.mark.parametrize("shard", range(HOST_SHARDS))
def test_programs_on_the_host(shard: int) -> None:
    for seed in range(shard * EACH, (shard + 1) * EACH):
        check(seed, HOST, LARGE)


@pytest.mark.slow
@pytest.mark.parametrize("backend", EMULATED)
@pytest.mark.parametrize("shard", range(LANE_SHARDS))
def test_programs_in_lanes(shard: int, backend: str) -> None:
    for seed in range(shard * EACH_IN_LANES, (shard + 1) * EACH_IN_LANES):
        check(seed, backend, SMALL)


@pytest.mark.parametrize("backend", EMULATED)
@pytest.mark.parametrize("shard", range(DEVICE_SHARDS))
def test_programs_on_a_device(shard: int, backend: str) -> None:
    """Again and again, as races and missing fences show only there."""
    torch = torch_beside(backend)
    for seed in range(shard * EACH_ON_DEVICE, (shard + 1) * EACH_ON_DEVICE):
        program = mixed_program(seed, LARGE, CROWD if seed % 6 == 0 else 0)
        try:
            kernel = tilecore.compile(
                module_of(program.text).make(program.stages, program.threads), backend
            )
        except (ResourceError, UnsupportedError):
            continue
        want = expected(program)
        for number in range(TIMES):
            arguments = [on_device(torch, one) for one in program.arguments()]
            kernel(*arguments)
            came = [one.cpu().numpy() for one in arguments[-len(OUTPUTS) :]]
            assert_same(OUTPUTS, program, came, want, f"seed {seed}, {backend}, run {number}")
