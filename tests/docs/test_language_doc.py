"""The code of ``docs/language.md`` runs, section by section, and its claims hold."""

from __future__ import annotations

import itertools
import linecache
import re
from pathlib import Path

import pytest

from tilecore.hooks.manager import installed_backends

PAGE = Path(__file__).parents[2] / "docs" / "language.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sections() -> dict[str, list[tuple[int, str]]]:
    """Section title -> (line, code) of its blocks; "" holds what every section starts with."""
    found: dict[str, list[tuple[int, str]]] = {"": []}
    starts = [0, *(match.start() for match in re.finditer(r"^## ", TEXT, re.MULTILINE)), len(TEXT)]
    for begin, end in itertools.pairwise(starts):
        title = TEXT[begin:end].splitlines()[0].removeprefix("## ") if begin else ""
        for match in BLOCK.finditer(TEXT, begin, end):
            line = TEXT.count("\n", 0, match.start(1))
            found.setdefault(title, []).append((line, match[1]))
    return found


SECTIONS = sections()


def run(line: int, code: str, names: dict[str, object]) -> None:
    """Run a block so that its lines are the page's, for messages and for reading programs."""
    name = f"<{PAGE.name}:{line}>"
    text = "\n" * line + code
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), names)


@pytest.mark.skipif("cpu_llvm" not in installed_backends(), reason="needs cpu_llvm")
@pytest.mark.parametrize("title", [title for title in SECTIONS if title])
def test_code_of_the_section_runs(title: str) -> None:
    names: dict[str, object] = {"__name__": "language_page"}
    for line, code in [*SECTIONS[""], *SECTIONS[title]]:
        run(line, code, names)


def test_every_kind_of_rule_has_code() -> None:
    assert len(SECTIONS) >= 11
    assert all(blocks for blocks in SECTIONS.values())
