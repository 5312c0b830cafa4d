"""Programs over most of the vocabulary mean the same in every variant and on every backend."""

from __future__ import annotations

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from running import assert_same, wide_results
from test_random_programs import depths, needs_cpu, needs_lanes, thread_counts, warp_tiles
from wide_programs import WideProgram, wide_programs

from tilecore.hooks.manager import installed_backends

SHARDS, EACH = 20, 50  # 1,000 programs on the host
LANES = (("cuda_ampere", 6), ("cuda_hopper", 3), ("rocm_cdna3", 3))
EACH_IN_LANES = 10
lane_threads = st.sampled_from([64, 128, 256])


def check(program: WideProgram, depth: int, threads: int, other: int, backend: str) -> None:
    """One variant on the backend agrees with another one in the reference interpreter."""
    expected = wide_results(program, other, 128, backend="reference")
    came = wide_results(program, depth, threads, backend)
    assert_same("CDE", program, came, expected, f"{backend}, {depth} stages, {threads} threads")


@needs_cpu
@settings(max_examples=10)
@given(wide_programs(), depths, thread_counts, depths)
def test_host_agrees_with_reference(
    program: WideProgram, depth: int, threads: int, other: int
) -> None:
    check(program, depth, threads, other, backend="cpu_llvm")


@needs_lanes
@settings(max_examples=2)
@given(wide_programs(warp_tiles, 40), depths, lane_threads, depths)
def test_lanes_agree_with_reference(
    program: WideProgram, depth: int, threads: int, other: int
) -> None:
    check(program, depth, threads, other, backend="cuda_ampere")


# Programs that failed once: (what was wrong, program, stages, threads, stages of the reference).
FOUND = [
    ("lanes whose value decided an any or all skipped the exchange that the others waited for",
     WideProgram(("for q in T.unroll(2):", "    if T.all_of(s):", "        n = n + 1"),
                 (22, 26, 28, 32, 16, 16), ("float16", "bfloat16", "bfloat16", "int8", "float16"),
                 "int8", (False, True), True), 0, 256, 2),
    ("a loop took the threads of one place of a fragment that is spread over all of them",
     WideProgram(("total = T.alloc_reducer((BN,), 'int32', op='sum')", "T.reducer_init(total)",
                  "for i, j in T.Parallel(BM, BN):",
                  "    T.reducer_update(total[j], T.cast(f[i, j], 'int32'))",
                  "last = T.alloc_fragment((BN,), 'int32')", "T.finalize_reducer(total, last)",
                  "for j in T.Parallel(BN):",
                  "    col[j] = T.cast(T.max(T.min(last[j], 48), -48), 'float32')"),
                 (1, 1, 1, 16, 16, 16), ("float32",) * 5), 0, 64, 0),
]  # fmt: skip


@pytest.mark.parametrize("backend", ["cuda_ampere", "cuda_hopper", "rocm_cdna3"])
@pytest.mark.parametrize("case", FOUND, ids=lambda case: case[0].replace(" ", "-"))
def test_found_cases(case: tuple[str, WideProgram, int, int, int], backend: str) -> None:
    if backend not in installed_backends():
        pytest.skip(f"needs {backend}")
    check(*case[1:], backend=backend)


@pytest.mark.slow
@needs_cpu
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_thousand_programs_on_the_host(shard: int) -> None:
    @seed(shard)
    @settings(max_examples=EACH, database=None)
    @given(wide_programs(), depths, thread_counts, depths)
    def agree(program: WideProgram, depth: int, threads: int, other: int) -> None:
        check(program, depth, threads, other, backend="cpu_llvm")

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
    @given(wide_programs(warp_tiles, 40), depths, lane_threads, depths)
    def agree(program: WideProgram, depth: int, threads: int, other: int) -> None:
        check(program, depth, threads, other, backend=backend)

    agree()
