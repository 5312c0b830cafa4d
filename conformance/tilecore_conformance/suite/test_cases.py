"""The data-driven part: every case of ``cases/*.toml`` on every subject.

Select with ``-k``: ``-k "attention and causal.True and q_len.129"``.
"""

from __future__ import annotations

from tilecore_conformance.cases import Case
from tilecore_conformance.execute import check
from tilecore_conformance.programs import build
from tilecore_conformance.subjects import Subject


def test_case(subject: Subject, case: Case) -> None:
    check(subject, build(case))
