"""Every kernel of the conformance suite becomes gfx942 code; an eighth in the short selection.

The suite's own level ``compile`` leaves most cases to long runs; here all are compiled, a part of
them by each test, so that several processes share them. What spills is named: nothing else may.
The other parts are left to `make test-all`, which keeps `make test` short.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import tilecore
from tilecore.errors import TilecoreError
from tilecore.hooks.manager import targets_of
from tilecore_backend_rocm.compilers import Compiler

conformance = pytest.importorskip("tilecore_conformance.cases")
lists = pytest.importorskip("tilecore_conformance.lists")
programs = pytest.importorskip("tilecore_conformance.programs")

PARTS = 32
(TARGET,) = targets_of("rocm_cdna3")
SKIPPED = lists.read_list(Path(conformance.__file__).parent / "skips" / "rocm_cdna3.txt")
CASES = [
    case for case in conformance.all_cases()
    if lists.find_entry(SKIPPED, case.id, "compile") is None
    and (not case.capability or TARGET.has(case.capability))
]  # fmt: skip
SPILL = {
    "attention/attention-q_len.130-dtype.float16-threads.32-tile.128x64":
        "half a wavefront holds 128 rows: 960 registers a lane",
    **{
        "attention_backward/attention_backward-adds.True-q_len.130-kv_len.200-dtype.float16-dim.64"
        f"-left.70-causal.True-threads.128-num_stages.{stages}-tile.128x64":
        "two wavefronts hold the sums of dK and dV and three tiles of 128 x 64"
        for stages in (1, 2, 3)
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "part",
    [pytest.param(part, marks=pytest.mark.slow) if part % 8 else part for part in range(PARTS)],
)
def test_compiles_without_spills(compiler: Compiler, part: int) -> None:
    wrong: list[str] = []
    for case in CASES[part::PARTS]:
        try:
            kernel = tilecore.compile(programs.build(case).function, "rocm_cdna3")
        except TilecoreError as error:
            wrong.append(f"{case.id}: {error}")
            continue
        spills = [r.name for r in kernel.resources if r.spill_bytes]
        if bool(spills) != (case.id in SPILL):
            wrong.append(f"{case.id}: spills in {spills}, expected in {case.id in SPILL}")
    assert not wrong, "\n".join(wrong)


def test_all_cases_are_among_the_parts() -> None:
    assert len(CASES) > 1000 and set(SPILL) <= {case.id for case in CASES}
