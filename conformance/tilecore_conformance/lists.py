"""Skip and xfail lists: which cases a backend does not pass, each with its reason.

One entry a line: ``[level:] pattern  # reason``. The pattern is a case id, ``*`` matches within
it. A line without a reason, an unknown area, and a pattern that matches no case are errors: a
list that nobody keeps is worse than none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tilecore_conformance.subjects import LEVELS


class ListError(ValueError):
    """A skip or xfail file that is malformed or stale."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a list.

    Attributes:
        pattern: what case ids are matched against.
        level: only at this level, or "" for all.
        reason: why.
        place: file and line, for messages.
    """

    pattern: str
    level: str
    reason: str
    place: str

    def matches(self, case_id: str, level: str) -> bool:
        """True when the entry speaks of this case at this level."""
        return self.level in ("", level) and fnmatchcase(case_id, self.pattern)


def read_list(path: Path) -> list[Entry]:
    """The entries of one file; a missing file has none.

    Raises:
        ListError: a line without a reason, or with an unknown level.
    """
    if not path.exists():
        return []
    entries = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        place = f"{path.name}:{number}"
        text, found, reason = line.partition("#")
        if not found or not reason.strip():
            raise ListError(f"{place}: entry {text.strip()!r} has no reason")
        level, colon, pattern = text.strip().rpartition(":")
        if colon and level not in LEVELS:
            raise ListError(f"{place}: unknown level {level!r}, expected one of {LEVELS}")
        entries.append(Entry(pattern.strip(), level, reason.strip(), place))
    return entries


def check_entries(entries: Iterable[Entry], case_ids: Iterable[str]) -> None:
    """Every entry must match at least one case of the suite.

    Raises:
        ListError: naming the stale entries.
    """
    known = list(case_ids)
    stale = [
        f"{entry.place}: {entry.pattern!r} matches no case"
        for entry in entries
        if not any(fnmatchcase(case_id, entry.pattern) for case_id in known)
    ]
    if stale:
        raise ListError("; ".join(stale))


def find_entry(entries: Iterable[Entry], case_id: str, level: str) -> Entry | None:
    """The first entry that speaks of this case, or None."""
    return next((entry for entry in entries if entry.matches(case_id, level)), None)
