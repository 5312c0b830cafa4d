"""A program's text with its imports rewritten; nothing else changes, and lines stay in place."""

from __future__ import annotations

import ast
import re

from tilecore.migrate.names import imports, is_foreign, locate


def rewrite_imports(text: str) -> str:
    """The same program importing from tilecore. Modules that are not offered keep their name
    under ``tilecore.compat``, where using them raises the reason.

    Raises:
        SyntaxError: `text` is no Python.
    """
    lines = text.splitlines(keepends=True)
    for node in sorted(imports(ast.parse(text)), key=lambda found: -found.lineno):
        start, end = _span(lines, node)
        before = "".join(lines)
        new = _rewritten(node, before[start:end])
        new += "\n" * (before[start:end].count("\n") - new.count("\n"))
        lines = (before[:start] + new + before[end:]).splitlines(keepends=True)
    return "".join(lines)


def _span(lines: list[str], node: ast.stmt) -> tuple[int, int]:
    """Character range of a statement in the joined lines."""
    assert node.end_lineno is not None and node.end_col_offset is not None

    def place(line: int, column: int) -> int:
        inside = lines[line - 1].encode()[:column].decode()
        return sum(len(one) for one in lines[: line - 1]) + len(inside)

    return place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)


def _rewritten(node: ast.Import | ast.ImportFrom, text: str) -> str:
    if isinstance(node, ast.ImportFrom):
        assert node.module is not None
        target = _target(node.module)
        return re.sub(rf"\bfrom\s+{re.escape(node.module)}\b", f"from {target}", text, count=1)
    return "; ".join(dict.fromkeys(_rewritten_alias(alias) for alias in node.names))


def _rewritten_alias(alias: ast.alias) -> str:
    if not is_foreign(alias.name):
        return f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
    if alias.asname:
        return f"import {_target(alias.name)} as {alias.asname}"
    top = alias.name.split(".")[0]  # ``import a.b`` binds a, whose attributes load on first use
    return f"import {_target(top)} as {top}"


def _target(module: str) -> str:
    found = locate(module)
    return found.target or f"tilecore.compat.{found.path}"
