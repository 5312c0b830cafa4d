"""Which names the framework under test itself calls common to all its targets.

Its checkout says so: ``tilelang/language/common.py`` lists what every dialect offers, and each
vendor's package adds its own. Names that reach the common module only from the compiler's
intermediate form (``language/tir``, ``language/ast``) are that compiler's inner forms.
"""

from __future__ import annotations

import ast
from pathlib import Path

_common: set[str] = set()

_INNER = ("tir", "ast", "parser", "overrides")
_FACADES = ("math_intrinsics.py", "eager/__init__.py")


def load_vocabulary(checkout: Path) -> None:
    """Learn the common names from a checkout, without importing it."""
    language = checkout / "tilelang" / "language"
    for node in ast.parse((language / "common.py").read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and _is_language(node.module or ""):
            _common.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.FunctionDef):
            _common.add(node.name)
        elif isinstance(node, ast.Assign) and _assigns(node, "_LOCAL_EXPORTS"):
            _common.update(ast.literal_eval(node.value))
    for path in (language / name for name in _FACADES):
        for node in ast.parse(path.read_text("utf-8")).body if path.exists() else []:
            if isinstance(node, ast.Assign) and _assigns(node, "__all__"):
                _common.update(_strings(node.value))
    _common.discard("*")


def is_common(name: str) -> bool:
    """True for a name that the framework offers on every target."""
    return name in _common


def _is_language(module: str) -> bool:
    return not module.startswith("tvm") and module.split(".")[0] not in _INNER


def _assigns(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)


def _strings(node: ast.expr) -> list[str]:
    return [
        one.value
        for one in ast.walk(node)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]
