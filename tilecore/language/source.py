"""From a function object to its syntax tree, with the author's file name and line numbers."""

from __future__ import annotations

import ast
import copy
import functools
import linecache
import time
from types import CodeType, FunctionType

from tilecore.errors import Loc
from tilecore.language.locate import misuse

_begin = time.time()
"""A file that was not written since is what its functions were made of."""


@functools.lru_cache(maxsize=64)
def _functions(filename: str, text: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """Every function of a file by (name, first line), decorators counted in."""
    found: dict[tuple[str, int], ast.FunctionDef] = {}
    for node in ast.walk(ast.parse(text, filename)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            found[node.name, first] = node
    return found


@functools.lru_cache(maxsize=64)
def _codes(filename: str, text: str) -> dict[tuple[str, int], CodeType]:
    """What Python makes of every function of a file, by (name, first line)."""
    found: dict[tuple[str, int], CodeType] = {}
    left = [compile(text, filename, "exec", dont_inherit=True)]
    while left:
        code = left.pop()
        found[code.co_name, code.co_firstlineno] = code
        left += (const for const in code.co_consts if isinstance(const, CodeType))
    return found


def _is_written_since(code: CodeType, text: str) -> bool:
    """Whether the file says something else than when it was imported, in this function."""
    entry = linecache.cache.get(code.co_filename)
    written = entry[1] if entry is not None and len(entry) == 4 else None
    if written is None or written < _begin:  # None: a notebook's cell, which is kept as it was
        return False
    if _is_instrumented(code):
        return False
    return _codes(code.co_filename, text).get((code.co_name, code.co_firstlineno)) != code


def _is_instrumented(code: CodeType) -> bool:
    """Whether a tool has changed a function before it ran, as pytest does to ``assert``: names that
    no source can have. What the file said then cannot be told from it."""
    if any(name.startswith("@") for name in (*code.co_names, *code.co_varnames)):
        return True
    inside = (const for const in code.co_consts if isinstance(const, CodeType))
    return any(_is_instrumented(const) for const in inside)


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
        text = "".join(lines)
        node = _functions(code.co_filename, text).get((code.co_name, code.co_firstlineno))
        changed = node is None or _is_written_since(code, text)
    except SyntaxError:
        node, changed = None, True
    if node is None or changed:
        raise misuse(
            f"the source of {function.__name__} is not a `def` at this line, or the file has "
            "changed since it was imported",
            loc=function_loc(function),
            hint="import it again",
        )
    return copy.deepcopy(node)
