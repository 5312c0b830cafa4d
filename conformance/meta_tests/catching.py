"""Whether the suite sees a deliberate fault."""

from __future__ import annotations

from fnmatch import fnmatchcase

import fakes

from tilecore.errors import TilecoreError
from tilecore_conformance.cases import Case, all_cases
from tilecore_conformance.execute import check
from tilecore_conformance.programs import build
from tilecore_conformance.subjects import Subject, find_subjects


def subject_of(fault: fakes.Fault) -> Subject:
    """The backend with that fault."""
    (subject,) = find_subjects([f"broken_{fault.name}"], ["run"], None)
    return subject


def aimed_at(fault: fakes.Fault) -> list[Case]:
    """The cases that must see it, or one of them."""
    return [case for case in all_cases() if fnmatchcase(case.id, fault.caught_by)]


def sees(case: Case, subject: Subject) -> bool:
    """True when the case fails on the backend, though it passes on the healthy one."""
    try:
        check(subject, build(case))
    except (AssertionError, TilecoreError, RuntimeError):
        check(subject_of(fakes.HEALTHY), build(case))
        return True
    return False
