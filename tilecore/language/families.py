"""``import tilecore.language.FAMILY as T``: the common language and one family's extras.

A backend's plugin module says ``TILECORE_LANGUAGE = ("family", "package.module")``. That module's
``__all__`` are the extras: functions that build `extra` values, whose operations are called
``family.name`` and get their text from the backend's emit rules. Whoever imports a family's module
so says what the program is portable to; a program that uses an extra is refused elsewhere.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Call, as_dtype
from tilecore.language import operators as ops
from tilecore.language.builder import current
from tilecore.language.locate import hide_file
from tilecore.language.values import Scalar

PACKAGE = __name__.rpartition(".")[0]


def extra(operation: str, arguments: Sequence[Any], dtype: DType) -> Scalar:
    """A value that a family's operation gives of arguments of the same dtype.

    Args:
        operation: ``"family.name"``, the name of the backend's emit rule.
        arguments: numbers and scalars; they are converted to `dtype`.
        dtype: of the arguments and of the result.
    """
    current().require_kernel(f"T.{operation.partition('.')[2]}")
    given = (ops.as_expr(value, f"operand of {operation}") for value in arguments)
    cast = tuple(as_dtype(e, dtype) for e in given)
    return Scalar(Call(operation, cast, dtype))


class _Loader(importlib.abc.Loader):
    def __init__(self, extras: str) -> None:
        self.extras = extras

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """The usual module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """The common names, then the extras; unknown names are explained as in the language."""
        common = importlib.import_module(PACKAGE)
        added = importlib.import_module(self.extras)
        hide_file(added.__file__)
        for name in common.__all__:
            setattr(module, name, getattr(common, name))
        for name in added.__all__:
            setattr(module, name, getattr(added, name))
        module.__doc__ = added.__doc__
        module.__dict__["__all__"] = [*common.__all__, *added.__all__]

        def explained(name: str) -> Any:
            return getattr(common, name)

        module.__dict__["__getattr__"] = explained


class _Families(importlib.abc.MetaPathFinder):
    """Finds ``tilecore.language.FAMILY``; the language's own modules are found before."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for a family of an installed backend."""
        parent, _, family = fullname.rpartition(".")
        if parent != PACKAGE:
            return None
        from tilecore.hooks.families import families  # plugins are looked for when one is asked for

        found = families().get(family)
        return (
            None if found is None else importlib.machinery.ModuleSpec(fullname, _Loader(found[0]))
        )


def install() -> None:
    """Let Python find families' modules."""
    if not any(isinstance(finder, _Families) for finder in sys.meta_path):
        sys.meta_path.append(_Families())
