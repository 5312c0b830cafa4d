"""Modules that are not offered can be imported, as programs do at their top; using them raises.

A program that imports another compiler's forms for one of its functions still runs the others.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from importlib import resources
from types import ModuleType
from typing import Any, NoReturn

from tilecore.errors import UnsupportedError

_PACKAGE = "tilecore.compat."


@functools.cache
def refused_modules() -> dict[str, str]:
    """Modules and names that are not offered, each with its reason."""
    text = resources.files("tilecore.compat").joinpath("refused_modules.txt").read_text("utf-8")
    rows = [row.split("\t", 1) for row in text.splitlines() if row and not row.startswith("#")]
    return dict(rows)


def reason_of(name: str) -> str | None:
    """Why a dotted name is not offered; None when it is not known as refused."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        found = refused_modules().get(".".join(parts[:length]))
        if found is not None:
            return found
    return None


class Refused:
    """Stands for a name that is not offered: every use of it raises the reason."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.reason = reason_of(name)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise UnsupportedError(f"{self._name} is not offered: {self.reason}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    __call__ = __getitem__ = __iter__ = __len__ = __bool__ = __enter__ = _refuse
    __mro_entries__ = __or__ = __ror__ = __index__ = __float__ = _refuse

    def __repr__(self) -> str:
        return f"<not offered: {self._name}>"


def refusing(module: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module: what it does not have raises its reason when it is used."""

    def get(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Refused(f"{module}.{name}")

    return get


class RefusedModule(ModuleType):
    """A module of which every name is `Refused`."""

    def __getattr__(self, name: str) -> Any:
        return refusing(self.__name__.removeprefix(_PACKAGE))(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes refused modules, where no module of that name exists."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for ``tilecore.compat.<refused name>``."""
        if not fullname.startswith(_PACKAGE) or not reason_of(fullname.removeprefix(_PACKAGE)):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The module, empty."""
        return RefusedModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def install() -> None:
    """Let refused modules be imported; asked last, after everything that exists."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
