"""What to do about each misuse: the part of an error that its place in the code need not repeat.

The list is data (``remedies.txt``): a sentence in which "..." stands for anything, a hint, and what
was expected and what came where the place that found the misuse says neither.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class Remedy:
    """A row of the list; None where it says nothing."""

    sentence: re.Pattern[str]
    hint: str | None
    expected: str | None
    got: str | None


@functools.cache
def remedies() -> tuple[Remedy, ...]:
    """The rows of the list, in its order."""
    text = resources.files("tilecore.language").joinpath("remedies.txt").read_text("utf-8")
    return tuple(
        _row(line) for line in text.splitlines() if line.strip() and not line.startswith("#")
    )


def _row(line: str) -> Remedy:
    cells = [cell.strip() for cell in line.split(" | ")]
    sentence, *rest = cells
    pattern = ".*".join(re.escape(part) for part in sentence.split("..."))
    found = [None if cell in ("-", "") else cell for cell in rest]
    hint, expected, got = (*found, None, None, None)[:3]
    return Remedy(re.compile(pattern, re.DOTALL), hint, expected, got)


def completed(reason: str, expected: Any, got: Any, hint: str | None) -> tuple[Any, Any, Any]:
    """(expected, got, hint) of an error, what is missing taken from the list."""
    if expected is not None and got is not None and hint is not None:
        return expected, got, hint
    for row in remedies():
        if row.sentence.fullmatch(reason):
            return (
                row.expected if expected is None else expected,
                row.got if got is None else got,
                row.hint if hint is None else hint,
            )
    return expected, got, hint
