"""From a function object to its syntax tree, with the author's file name and line numbers."""

from __future__ import annotations

import ast
import copy
import functools
import linecache
from types import CodeType, FunctionType

from tilecore.errors import Loc
from tilecore.language.locate import misuse


@functools.lru_cache(maxsize=64)
def _functions(filename: str, text: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """Every function of a file by (name, first line), decorators counted in."""
    found: dict[tuple[str, int], ast.FunctionDef] = {}
    for node in ast.walk(ast.parse(text, filename)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            found[node.name, first] = node
    return found


def function_loc(function: FunctionType) -> Loc:
    """Where a function is written."""
    return Loc(function.__code__.co_filename, function.__code__.co_firstlineno)


def function_tree(function: FunctionType) -> ast.FunctionDef:
    """A fresh copy of the function's syntax tree.

    Raises:
        LanguageError: the source is not available, or has changed since it was imported.
    """
    code: CodeType = function.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise misuse(
            f"the source of {function.__name__} is not available",
            expected="a function defined in a file (or a notebook cell)",
            got=code.co_filename,
            hint="exec() and the plain interactive prompt keep no source",
        )
    try:
        found = _functions(code.co_filename, "".join(lines))
    except SyntaxError:
        found = {}
    node = found.get((code.co_name, code.co_firstlineno))
    if node is None:
        raise misuse(
            f"the source of {function.__name__} is not a `def` at this line, or the file has "
            "changed since it was imported",
            loc=function_loc(function),
        )
    return copy.deepcopy(node)
