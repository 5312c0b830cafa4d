"""A tile program means the same whatever its pipeline depth, its threads and its backend."""

from __future__ import annotations

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from random_programs import RandomProgram, random_programs
from running import assert_same, results

from tilecore.hooks.manager import installed_backends

SHARDS, EACH = 40, 50  # 2,000 programs in all

depths = st.integers(0, 3)
thread_counts = st.sampled_from([32, 64, 96, 128, 256])
warp_tiles = st.tuples(*[st.sampled_from([16, 32])] * 3)

needs_cpu = pytest.mark.skipif("cpu_llvm" not in installed_backends(), reason="needs cpu_llvm")
needs_lanes = pytest.mark.skipif(
    "cuda_ampere" not in installed_backends(), reason="needs a lane-parallel backend"
)


def check(program: RandomProgram, depth: int, threads: int, other: int, backend: str) -> None:
    """One variant on the backend agrees with another one in the reference interpreter."""
    expected = results(program, other, 128, backend="reference")
    came = results(program, depth, threads, backend)
    assert_same("CD", program, came, expected, f"{backend}, {depth} stages, {threads} threads")


@needs_cpu
@settings(max_examples=12)
@given(random_programs(), depths, thread_counts, depths)
def test_host_agrees_with_reference(
    program: RandomProgram, depth: int, threads: int, other: int
) -> None:
    check(program, depth, threads, other, backend="cpu_llvm")


@needs_lanes
@settings(max_examples=2)
@given(random_programs(warp_tiles, 40), depths, st.sampled_from([32, 64, 128]), depths)
def test_lanes_agree_with_reference(
    program: RandomProgram, depth: int, threads: int, other: int
) -> None:
    check(program, depth, threads, other, backend="cuda_ampere")


@pytest.mark.slow
@needs_cpu
@pytest.mark.parametrize("shard", range(SHARDS))
def test_two_thousand_programs_on_the_host(shard: int) -> None:
    @seed(shard)
    @settings(max_examples=EACH, database=None)
    @given(random_programs(), depths, thread_counts, depths)
    def agree(program: RandomProgram, depth: int, threads: int, other: int) -> None:
        check(program, depth, threads, other, backend="cpu_llvm")

    agree()


@pytest.mark.slow
@needs_lanes
@pytest.mark.parametrize("shard", range(8))
def test_programs_in_lanes(shard: int) -> None:
    @seed(shard)
    @settings(max_examples=10, database=None)
    @given(random_programs(warp_tiles, 40), depths, st.sampled_from([32, 64, 128]), depths)
    def agree(program: RandomProgram, depth: int, threads: int, other: int) -> None:
        check(program, depth, threads, other, backend="cuda_ampere")

    agree()
