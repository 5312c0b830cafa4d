"""Write docs/names.md, the index of all names of the language: python tools/language_names.py"""

from __future__ import annotations

import enum
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import tilecore.language as T
from tilecore.language.dtypes import dtype
from tilecore.language.refused import refused_names

PAGE = Path(__file__).resolve().parents[1] / "docs" / "names.md"
HEAD = """\
# Names of the language

Everything that `import tilecore.language as T` gives, by topic, with what its docstring says first;
`help(T.copy)` says the rest, [language.md](language.md) what programs mean. This page is made by
`python tools/language_names.py`, and a test compares it.
"""
REFUSED = """\
## Not supported

Names that other tile languages have. Using one raises `UnsupportedError` with the reason.
"""


def topics() -> list[tuple[ModuleType, list[str]]]:
    """Modules of the vocabulary with their names, in the order of the modules' names."""
    found: dict[str, list[str]] = {}
    for name in dir(T):
        if not name.startswith("_"):
            value = getattr(T, name)
            found.setdefault(getattr(value, "__module__", type(value).__module__), []).append(name)
    return [(sys.modules[module], found[module]) for module in sorted(found)]


def first_sentence(text: str) -> str:
    """The first paragraph of a docstring up to its first sentence, in one line of a table."""
    line = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", line)[0].replace("``", "`").replace("|", "\\|")


def shown(name: str, value: Any) -> str:
    """A name as it is called: parameters and defaults, without annotations."""
    if isinstance(value, enum.EnumType):
        return f"T.{name}"
    empty = inspect.Parameter.empty
    called = inspect.signature(value)
    parameters = [
        one.replace(annotation=empty, default=Default(one.default))
        if isinstance(one.default, enum.Enum)
        else one.replace(annotation=empty)
        for one in called.parameters.values()
    ]
    return f"T.{name}{called.replace(parameters=parameters, return_annotation=empty)}"


class Default:
    """A default that is shown as an author writes it."""

    def __init__(self, value: enum.Enum) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"T.{type(self.value).__name__}.{self.value.name}"


def section(module: ModuleType, names: list[str]) -> str:
    """One topic: a heading and a table."""
    values = {name: getattr(T, name) for name in names}
    title = first_sentence(inspect.getdoc(module) or "").rstrip(".")
    kinds = [name for name, value in values.items() if isinstance(value, dtype)]
    if kinds:
        return f"## {title}\n\n" + ", ".join(f"`T.{name}`" for name in names) + "\n"
    rows = [
        f"| `{shown(name, value)}` | {first_sentence(inspect.getdoc(value) or '')} |"
        for name, value in values.items()
    ]
    return f"## {title}\n\n| name | |\n| --- | --- |\n" + "\n".join(rows) + "\n"


def page() -> str:
    """The whole page."""
    refused = "\n".join(f"| `T.{name}` | {why} |" for name, why in refused_names())
    table = f"{REFUSED}\n| name | |\n| --- | --- |\n{refused}\n"
    return "\n".join([HEAD, *(section(*topic) for topic in topics()), table])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
