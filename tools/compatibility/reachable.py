"""Which names outside the shared vocabulary the code of one test, or of a program, reaches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tilecore.migrate import examine
from tools.compatibility.vocabulary import is_common

_INNER = ("another compiler", "one target", "one architecture", "one toolchain", "no backend")


def reached_outside(path: Path, test: str | None) -> str | None:
    """The first refused construct that a test (None: the program itself) reaches, with its reason.

    Followed are the file's own functions and classes, by name. Imports alone do not count.

    Args:
        path: the file as its authors wrote it.
        test: name of a test function.
    """
    tree, refused = _findings(path)
    lines = {line for first, last in _ranges(tree, test) for line in range(first, last + 1)}
    for construct, reason, places in refused:
        if lines & places:
            return f"{construct}: {reason}"
    return None


ACCESSORS = re.compile(
    r"get_kernel_source|kernel_source|get_host_source|\.script\(|\.source\b|inspect_source|\.params\b"
)
_RUNS = re.compile(
    r"allclose|assert_close|assert_similar|torch\.equal|array_equal|do_bench|\.item\("
)


def reads_text_only(path: Path, test: str | None) -> bool:
    """True for a test whose assertions are about generated text, and that compares no values."""
    if test is None:
        return False
    text = reached_text(path, test)
    return bool(ACCESSORS.search(text)) and "assert" in text and not _RUNS.search(text)


def reached_text(path: Path, test: str | None) -> str:
    """The source of what runs: the test, and all that it names."""
    tree, _ = _findings(path)
    lines = path.read_text("utf-8").splitlines()
    return "\n".join("\n".join(lines[a - 1 : b]) for a, b in _ranges(tree, test))


@cache
def _findings(path: Path) -> tuple[ast.Module, tuple[tuple[str, str, frozenset[int]], ...]]:
    text = path.read_text("utf-8")
    found = []
    for one in examine(text):
        if one.supported or one.construct.startswith(("import ", "from ", "pass_configs ")):
            continue
        reason = str(one.reason)
        name = one.construct.removeprefix("T.")
        foreign = one.construct.startswith("T.") and not is_common(name)
        if foreign or any(word in reason for word in _INNER):
            found.append((one.construct, reason, frozenset(one.lines)))
    return ast.parse(text), tuple(found)


def _ranges(tree: ast.Module, test: str | None) -> Iterator[tuple[int, int]]:
    """Line ranges of what runs: the test and all it names, or the statements at the top."""
    defined = {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    waiting: list[ast.AST] = [node for node in tree.body if not isinstance(node, kinds)]
    if test is not None:
        waiting = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.name == test
        ]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        decorators = getattr(node, "decorator_list", [])
        first = min([getattr(node, "lineno", 0), *(one.lineno for one in decorators)])
        yield first, getattr(node, "end_lineno", 0) or 0
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in defined:
                waiting.append(defined[inner.id])
