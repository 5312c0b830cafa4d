"""The text form: what is printed is read back as the same program, at every level."""

from __future__ import annotations

import pytest

import tilecore
from tilecore.ir.parser import parse_program
from tilecore.ir.printer import format_program
from tilecore.ir.verifier import verify
from tilecore_conformance.cases import all_cases
from tilecore_conformance.programs import build
from tilecore_conformance.subjects import Subject

SAMPLES = [case for case in all_cases() if case.smoke]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda case: case.id)
def test_every_stage_is_read_back(subject: Subject, sample: object) -> None:
    function = build(sample).function  # type: ignore[arg-type]
    if subject.target is None:
        programs = [("tile", function.program)]
    else:
        programs = list(tilecore.lower(function, target=subject.target).stages)
    for stage, program in programs:
        text = format_program(program)
        again = parse_program(text)
        assert again == program, f"stage {stage} reads back as another program"
        assert format_program(again) == text, f"stage {stage} prints differently when read back"
        verify(again)
