"""Assertions about text, and the oracle with positional arguments."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tilecore.errors import LanguageError
from tilecore.ir.parser import parse_program
from tilecore.testing import assert_program, assert_rewrites, assert_round_trip, oracle

TEXT = """
    program double(x: float16[4], y: float16[4]) outputs (1) level tile {
      kernel main(b in 1) threads 32 {   # one block
        parallel (i) in (4) {
          y[i] = x[i] * float16(2.0)
        }
      }
    }
"""


def renamed(program):
    return dataclasses.replace(program, name="twice")


def test_texts_are_compared_by_meaning():
    program = parse_program(TEXT)
    assert_program(program, TEXT.replace("      ", "   ").replace("# one block", ""))
    assert_round_trip(program)
    with pytest.raises(AssertionError, match=r"\+program double"):
        assert_program(program, TEXT.replace("double", "twice"))


def test_rewrites():
    assert_rewrites(renamed, TEXT, TEXT.replace("double", "twice"))
    with pytest.raises(AssertionError, match="-program double"):
        assert_rewrites(renamed, TEXT, TEXT)
    with pytest.raises(LanguageError):
        assert_rewrites(renamed, TEXT.replace("x[i]", "x[i, i]"), TEXT)


def test_the_oracle_leaves_its_arguments_alone():
    program = parse_program(TEXT)
    x, y = np.arange(4, dtype=np.float16), np.zeros(4, np.float16)
    assert oracle(program, x)["y"].tolist() == [0, 2, 4, 6]
    assert oracle(program, x, y)["y"].tolist() == [0, 2, 4, 6]
    assert not y.any()
    with pytest.raises(ValueError, match="0 arguments"):
        oracle(program)


def test_the_oracle_reads_torch():
    torch = pytest.importorskip("torch")
    text = TEXT.replace("float16", "bfloat16")
    x = torch.arange(4, dtype=torch.bfloat16)
    assert oracle(parse_program(text), x)["y"].tolist() == [0, 2, 4, 6]
