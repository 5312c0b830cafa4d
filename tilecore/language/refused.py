"""Names of the vocabulary that are known and not supported, each with its reason.

The list is data (``refused_names.txt``): ``pattern<TAB>reason`` a line, a trailing ``*`` matches
any rest. It names what belongs to one vendor, which is why it is no part of the code. So is what
other languages call things (``other_names.txt``).
"""

from __future__ import annotations

import difflib
import functools
from importlib import resources
from typing import NoReturn

from tilecore.errors import UnsupportedError
from tilecore.language.locate import caller_loc


@functools.cache
def refused_names() -> tuple[tuple[str, str], ...]:
    """(pattern, reason) pairs, in the order of the file."""
    text = resources.files("tilecore.language").joinpath("refused_names.txt").read_text("utf-8")
    pairs: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, reason = line.split("\t", 1)
            pairs.append((pattern, reason.strip()))
    return tuple(pairs)


@functools.cache
def other_names() -> dict[str, str]:
    """What other kernel languages and array libraries call things, and what is written here."""
    text = resources.files("tilecore.language").joinpath("other_names.txt").read_text("utf-8")
    rows = (line.split("\t", 1) for line in text.splitlines() if line and line[0] != "#")
    return {name: written.strip() for name, written in rows}


def reason_of(name: str) -> str | None:
    """Why `name` is not supported, or None when it is not in the list."""
    for pattern, reason in refused_names():
        stem = pattern.removesuffix("*")
        if name == pattern or (stem != pattern and name.startswith(stem)):
            return reason
    return None


def refuse_name(name: str) -> NoReturn:
    """What ``T.<name>`` does for a name that the language does not have.

    Raises:
        UnsupportedError: the name is known, with the reason.
        AttributeError: the name is unknown.
    """
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)
    reason = reason_of(name)
    if reason is not None:
        raise UnsupportedError(f"T.{name} is not supported: {reason}", loc=caller_loc())
    written = other_names().get(name)
    if written is not None:
        raise AttributeError(f"tilecore.language has no {name!r}: here it is {written}")
    import tilecore.language as language

    close = difflib.get_close_matches(name, dir(language), n=1)
    raise AttributeError(
        f"tilecore.language has no {name!r}" + (f"; did you mean T.{close[0]}?" if close else "")
    )
