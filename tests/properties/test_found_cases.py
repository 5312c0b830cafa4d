"""Programs that failed once, as small as they could be made; each must stay right."""

from __future__ import annotations

import pytest
from random_programs import RandomProgram
from test_random_programs import check, needs_cpu, needs_lanes

# (what was wrong, program, stages, threads, stages of the reference)
FOUND = [
    ("a kernel called main was refused by the C++ compiler",
     RandomProgram((), (1, 1, 1, 16, 16, 16)), 0, 32, 0),
    ("a tile that nothing reads was given up while its copy was under way",
     RandomProgram(("for ko in T.Pipelined(T.ceildiv(K, BK), num_stages=num_stages):",
                    "    T.copy(A[by * BM, ko * BK], a)", "    T.copy(B[ko * BK, bx * BN], b)",
                    "    T.gemm(a, b, acc)", "for i, j in T.Parallel(BM, BN):",
                    "    acc[i, j] = T.max(T.min(acc[i, j], 48), -48)"),
                   (1, 1, 1, 32, 32, 32)), 0, 32, 0),
]  # fmt: skip


@needs_cpu
@pytest.mark.parametrize("case", FOUND, ids=lambda case: case[0].replace(" ", "-"))
def test_on_the_host(case: tuple[str, RandomProgram, int, int, int]) -> None:
    check(*case[1:], backend="cpu_llvm")


@needs_lanes
@pytest.mark.parametrize("case", FOUND, ids=lambda case: case[0].replace(" ", "-"))
def test_in_lanes(case: tuple[str, RandomProgram, int, int, int]) -> None:
    check(*case[1:], backend="cuda_ampere")
