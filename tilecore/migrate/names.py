"""Which names of a program mean the other framework's modules, and what stands for them here."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass

from tilecore.compat import MODULES
from tilecore.compat.refused import Refused, reason_of

FRAMEWORK = "tilelang"
"""The import name of the framework that programs come from."""
COMPILER = "tvm"
"""The import name of the compiler under it, whose forms have no counterpart here."""


@dataclass(frozen=True, slots=True)
class ModuleName:
    """A module that a program imports.

    Attributes:
        path: its dotted name below the framework, "" for the framework itself.
        target: the module that stands for it here; None when it is not offered.
        reason: why not.
    """

    path: str
    target: str | None
    reason: str | None = None


def is_foreign(name: str) -> bool:
    """True for the framework, its compiler, and what is below them."""
    return name.split(".")[0] in (FRAMEWORK, COMPILER)


def locate(name: str) -> ModuleName:
    """What stands for a foreign module's full dotted name."""
    first, _, path = name.partition(".")
    if first == COMPILER:
        path = name
    if not path:
        return ModuleName("", "tilecore.compat")
    target = MODULES.get(path)
    if target is not None:
        return ModuleName(path, target)
    return ModuleName(path, None, reason_of(path) or "this module is not known")


def offers(module: str, name: str) -> str | None:
    """None when the module that stands here has `name`, else why it has not."""
    from tilecore.errors import TilecoreError

    try:
        found = getattr(importlib.import_module(module), name)
    except AttributeError:
        return "this name is not known"
    except TilecoreError as error:
        return error.reason.split(": ", 1)[-1]
    return found.reason if isinstance(found, Refused) else None


def bindings(tree: ast.Module) -> dict[str, str]:
    """Local name -> full dotted name, of everything foreign that the program imports."""
    found: dict[str, str] = {}
    for node in imports(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if is_foreign(alias.name):
                    top = alias.name.split(".")[0]
                    found[alias.asname or top] = alias.name if alias.asname else top
        else:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """The program's imports of foreign modules, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            if any(is_foreign(alias.name) for alias in node.names):
                yield node
        elif (
            isinstance(node, ast.ImportFrom)
            and node.module
            and not node.level
            and is_foreign(node.module)
        ):
            yield node
