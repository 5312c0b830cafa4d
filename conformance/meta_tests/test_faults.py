"""Every deliberate fault must be seen by the suite, and a healthy backend must not be accused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tilecore.errors import TilecoreError
from tilecore_conformance.cases import Case, all_cases
from tilecore_conformance.execute import check
from tilecore_conformance.programs import build
from tilecore_conformance.subjects import Subject
from tilecore_conformance.suite import test_determinism, test_hooks_contract

sys.path.insert(0, str(Path(__file__).parent))
import fakes
from catching import aimed_at, sees, subject_of

SAMPLES = [case for case in all_cases() if case.smoke]
PLAIN = [fault for fault in fakes.FAULTS if fault.caught_by.startswith("test_")]
BY_CASES = [fault for fault in fakes.FAULTS if fault not in PLAIN]


def _run_plain(name: str, subject: Subject) -> None:
    """Call a test of the suite by its name, with each of its samples."""
    module = test_determinism if hasattr(test_determinism, name) else test_hooks_contract
    test = getattr(module, name)
    needs_sample = any(mark.name == "parametrize" for mark in getattr(test, "pytestmark", ()))
    for sample in SAMPLES if needs_sample else [None]:
        try:
            test(subject, sample) if needs_sample else test(subject)
        except pytest.skip.Exception:
            continue


@pytest.mark.parametrize("fault", BY_CASES, ids=lambda fault: fault.name)
def test_cases_catch(fault: fakes.Fault) -> None:
    subject, aimed = subject_of(fault), aimed_at(fault)
    assert aimed, "no case is aimed at this fault"
    passed = f"{fault.name} passes all {len(aimed)} cases of {fault.caught_by}"
    assert any(sees(case, subject) for case in aimed), passed


@pytest.mark.parametrize("fault", PLAIN, ids=lambda fault: fault.name)
def test_contracts_catch(fault: fakes.Fault) -> None:
    with pytest.raises((AssertionError, TilecoreError)):
        _run_plain(fault.caught_by, subject_of(fault))


@pytest.mark.parametrize("case", SAMPLES, ids=lambda case: case.id)
def test_healthy_is_not_accused(case: Case) -> None:
    check(subject_of(fakes.HEALTHY), build(case))


@pytest.mark.parametrize("name", sorted({fault.caught_by for fault in PLAIN}))
def test_healthy_passes_the_same_contracts(name: str) -> None:
    _run_plain(name, subject_of(fakes.HEALTHY))
