"""Every misuse of ``misuses.txt`` gets its sentence, with a place and with what would be right.

The reference (docs/language.md, "Misuses") lists the same sentences.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tilecore
import tilecore.language as T
from tilecore.errors import TilecoreError, UnsupportedError
from tilecore.language.remedies import remedies

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "language.md"
SOURCES = HERE.parents[1] / "tilecore" / "language"

FRAME = """\
@T.macro
def inlined_in_itself(x):
    inlined_in_itself(x)


@T.macro
def by_reference(x: T.Ref):
    x = 1

@T.prim_func
def main(A: T.Tensor((8, 8), "float32"), I: T.Tensor((8,), "int32")):
    with T.Kernel(2, threads=32) as bx:
        s = T.alloc_shared((8, 8), "float32")
        f = T.alloc_fragment((8, 8), "float32")
        r = T.alloc_fragment((8,), "float32")
"""


@dataclass(frozen=True, slots=True)
class Misuse:
    """A sentence and the module that must get it."""

    sentence: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The whole module."""
        if self.lines[0] == "whole":
            return "\n".join(self.lines[1:]) + "\n"
        return FRAME + "".join(f"        {line}\n" for line in self.lines)


def _read() -> Iterator[Misuse]:
    text = (HERE / "misuses.txt").read_text("utf-8")
    for part in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        sentence, *lines = part.rstrip("\n").split("\n")
        yield Misuse(sentence, tuple(lines))


MISUSES = tuple(_read())


def pattern(sentence: str) -> str:
    """A regular expression for a sentence in which "..." stands for anything."""
    return ".*".join(re.escape(part) for part in sentence.split("..."))


@functools.cache
def provoke(misuse: Misuse, number: int) -> TilecoreError:
    """The error that the program gets."""
    name = f"<misuse {number}>"
    text = misuse.text
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names: dict[str, Any] = {"T": T, "tilecore": tilecore, "kept": []}
    with pytest.raises(TilecoreError) as caught:
        exec(compile(text, name, "exec", dont_inherit=True), names)
    return caught.value


@pytest.mark.parametrize("number", range(len(MISUSES)), ids=lambda k: MISUSES[k].sentence[:60])
def test_the_error_says_what_where_and_what_would_be_right(number: int) -> None:
    misuse = MISUSES[number]
    error = provoke(misuse, number)
    assert re.fullmatch(pattern(misuse.sentence), error.reason, re.DOTALL), str(error)
    assert error.loc is not None and error.loc.file == f"<misuse {number}>", str(error)
    if isinstance(error, UnsupportedError):  # "X is not supported: why" is what came and the reason
        assert " is not supported: " in error.reason
        return
    for part in ("expected", "got", "hint"):
        value = getattr(error, part)
        assert value is not None and str(value) not in ("", error.reason), f"no {part}: {error}"
        assert "Var(name=" not in str(value), f"{part} shows the inside of a value: {error}"


def test_every_remedy_belongs_to_a_misuse() -> None:
    """No row of the list is left over, so that a renamed sentence cannot lose its remedy."""
    reasons = [provoke(misuse, number).reason for number, misuse in enumerate(MISUSES)]
    templates = [template.replace("*", "x") for _, template in _templates()]
    unused = [
        row.sentence.pattern
        for row in remedies()
        if not any(row.sentence.fullmatch(text) for text in (*reasons, *templates))
    ]
    assert unused == []


def test_the_reference_lists_these_sentences() -> None:
    section = PAGE.read_text("utf-8").split("\n## Misuses\n", 1)[1].split("\n## ", 1)[0]
    listed = [
        row.split(" | ")[0].removeprefix("| ").replace("\\|", "|")
        for row in section.splitlines()
        if row.startswith("| ") and not row.startswith(("| error", "| ---"))
    ]
    assert sorted(listed) == sorted(misuse.sentence for misuse in MISUSES)


# Sentences that the table cannot provoke: other files, other systems, or the language's own faults.
ELSEWHERE = (
    "a * block was closed out of order", "T.comm_reducer *", "T.attr(*)", "T.tvm_thread_allreduce*",
    "this layout", "an eager function is traced for known sizes", "the source of *",
    "argument * is a tensor", "* is declared twice", "layout of * leaves its storage",
    "* of a tensor with a layout of its own", "metadata of T.gemm_sp *", "result of T.im2col *",
    "T.Buffer(*=...)", "* of T.any_of *", "T.*_of takes a tile of constant shape",
    "value of * is no tile", "range() of a runtime value *", "a `while` on a runtime value *",
    "the layout of *", "`*` outside of a loop", "T.view needs compact storage",
    "T.StridedTensor lives in global memory", "T.ClusterKernel(prelude=...)",
    "cluster_dims has too many axes",
)  # fmt: skip


def _templates() -> Iterator[tuple[str, str]]:
    """(place, template with * for what varies) of every sentence in the sources."""
    for path in sorted(SOURCES.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                continue
            first = node.args[0]
            if node.func.id in ("fail", "refuse", "misuse") and isinstance(
                first, ast.Constant | ast.JoinedStr
            ):
                yield f"{path.name}:{node.lineno}", _template(first)


def _template(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.JoinedStr)
    parts = (part.value if isinstance(part, ast.Constant) else "*" for part in node.values)
    return "".join(str(part) for part in parts)


def _fits(template: str, text: str) -> bool:
    parts = template.replace("...", "x").split("*")
    return bool(re.match(".*".join(map(re.escape, parts)), text, re.DOTALL))


def test_every_sentence_of_the_language_is_provoked() -> None:
    sentences = [misuse.sentence.replace("...", "x") for misuse in MISUSES]
    missing = [
        f"{place}: {template}"
        for place, template in _templates()
        if not any(_fits(one, template.replace("...", "x")) for one in ELSEWHERE)
        and not any(_fits(template, one) for one in sentences)
    ]
    assert not missing, "\n".join(missing)
