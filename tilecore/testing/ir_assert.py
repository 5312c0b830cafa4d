"""Assertions about IR text: tests of passes are text in, text out."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable

from tilecore.ir.parser import parse_program
from tilecore.ir.printer import format_program
from tilecore.ir.program import Program
from tilecore.ir.verifier import verify


def normal_text(text: str) -> str:
    """A program's text as the printer writes it.

    Raises:
        ParseError: the text is no program.
    """
    return format_program(parse_program(textwrap.dedent(text)))


def assert_program(program: Program, expected: str) -> None:
    """The program prints as `expected` does (whitespace and comments aside).

    Raises:
        AssertionError: with the difference, line by line.
    """
    wanted, got = normal_text(expected), format_program(program)
    if wanted != got:
        lines = difflib.unified_diff(
            wanted.splitlines(), got.splitlines(), "expected", "got", lineterm=""
        )
        raise AssertionError("programs differ\n" + "\n".join(lines))


def assert_rewrites(rewrite: Callable[[Program], Program], before: str, after: str) -> None:
    """`rewrite` turns one text into another; both are legal at their levels.

    Raises:
        AssertionError: with the difference, line by line.
        TilecoreError: a text does not parse, or a program is illegal.
    """
    program = parse_program(textwrap.dedent(before), "before")
    verify(program)
    result = rewrite(program)
    verify(result)
    assert_program(result, after)


def assert_round_trip(program: Program) -> None:
    """The program's text reads back as the same program.

    Raises:
        AssertionError: it does not.
    """
    text = format_program(program)
    again = parse_program(text)
    if format_program(again) != text:
        assert_program(again, text)
    if again != program:
        raise AssertionError("the text reads back as another program that prints alike")
