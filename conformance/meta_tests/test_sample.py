"""`--sample`: every program stays, with cases from all of its range."""

from __future__ import annotations

from collections import Counter

import pytest

from tilecore_conformance.cases import all_cases, sampled


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_program_is_kept(count: int) -> None:
    every = list(all_cases())
    totals = Counter((case.area, case.program) for case in every)
    kept = sampled(every, count)
    assert {c.id for c in kept} <= {c.id for c in every}
    for program, number in Counter((case.area, case.program) for case in kept).items():
        assert number == min(count, totals[program])
    assert {(case.area, case.program) for case in kept} == set(totals)


def test_no_count_is_all() -> None:
    every = list(all_cases())
    assert sampled(every, 0) == every


def test_the_cases_are_spread() -> None:
    every = [case for case in all_cases() if (case.area, case.program) == ("gemm", "gemm_tiled")]
    assert len(every) > 8
    first, second = sampled(every, 2)
    assert first == every[0] and second == every[len(every) // 2]
