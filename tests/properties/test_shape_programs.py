"""Programs over tiles of three axes and sizes of the call mean the same on every backend."""

from __future__ import annotations

import pytest
from compiling import EMULATED, HOST, kernel_on
from running import assert_same, module_of
from shape_programs import OUTPUTS, shape_program
from test_random_programs import needs_cpu

VARIANTS = ((2, 64), (0, 32), (3, 96), (2, 128), (1, 256))  # (stages, threads), by turns
HOST_SHARDS, EACH = 20, 50
LANE_SHARDS, EACH_IN_LANES = 8, 10


def check(seed: int, backend: str) -> None:
    """One program agrees bit by bit with the reference, where it has other stages and threads."""
    program = shape_program(seed)
    make = module_of(program.text).make
    want, came = program.arguments(), program.arguments()
    kernel_on("reference", make(0, 128))(*want)
    stages, threads = VARIANTS[seed % len(VARIANTS)]
    kernel_on(backend, make(stages, threads))(*came)
    note = f"seed {seed}, {backend}, {stages} stages, {threads} threads"
    assert_same(OUTPUTS, program, came[-len(OUTPUTS) :], want[-len(OUTPUTS) :], note)


@needs_cpu
def test_host_agrees_with_reference() -> None:
    for seed in range(5):
        check(seed, HOST)


@pytest.mark.parametrize("backend", EMULATED)
def test_lanes_agree_with_reference(backend: str) -> None:
    check(7, backend)


@pytest.mark.slow
@needs_cpu
@pytest.mark.parametrize("shard", range(HOST_SHARDS))
def test_programs_on_the_host(shard: int) -> None:
    for seed in range(shard * EACH, (shard + 1) * EACH):
        check(seed, HOST)


@pytest.mark.slow
@pytest.mark.parametrize("backend", EMULATED)
@pytest.mark.parametrize("shard", range(LANE_SHARDS))
def test_programs_in_lanes(shard: int, backend: str) -> None:
    for seed in range(shard * EACH_IN_LANES, (shard + 1) * EACH_IN_LANES):
        check(seed, backend)
