"""A backend that gets one operation of the language wrong does not pass, whichever it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tilecore.ir import expr as E
from tilecore.ir import stmts as S
from tilecore.reference.tile_ops import ATOMIC_OPS

sys.path.insert(0, str(Path(__file__).parent))
import operation_faults as faults
from catching import aimed_at, sees, subject_of
from fakes import Fault


@pytest.mark.parametrize("fault", faults.OPERATIONS, ids=lambda fault: fault.name)
def test_cases_catch(fault: Fault) -> None:
    subject, aimed = subject_of(fault), aimed_at(fault)
    assert aimed, "no case is aimed at this operation"
    assert any(sees(case, subject) for case in aimed), f"{len(aimed)} cases pass"


def test_every_case_about_atomics_needs_them() -> None:
    subject = subject_of(faults.NO_ATOMICS)
    blind = [case.id for case in aimed_at(faults.NO_ATOMICS) if not sees(case, subject)]
    assert not blind


def test_no_kind_of_statement_is_forgotten() -> None:
    classes = [one for one in vars(S).values() if isinstance(one, type)]
    kinds = {one.__name__ for one in classes if issubclass(one, S.Stmt)} - {"Stmt"}
    rows = {name.split(".")[0] for name in faults.STATEMENTS}
    elsewhere = {name.split(".")[0] for name in faults.ELSEWHERE}
    assert kinds == rows | elsewhere
    assert {f"For.{kind}" for kind in S.LoopKind} <= set(faults.STATEMENTS)
    assert {f"Reduce.{op}" for op in S.REDUCE_OPS} <= set(faults.STATEMENTS)


def test_no_operation_is_forgotten() -> None:
    assert {name.split(".")[0] for name in faults.ATOMICS} == ATOMIC_OPS
    assert set(faults.BINARY) == E.BINARY_OPS
    assert set(faults.MATH) == E.MATH_OPS
