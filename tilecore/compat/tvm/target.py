"""Targets by name, as programs of the other compiler write them: ``with tvm.target.Target("c"):``.

A target here is only a name, which chooses a backend (`tilecore.compat.settings.backend_for`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tilecore.compat.refused import refusing
from tilecore.compat.settings import current_targets, target_kind
from tilecore.errors import ArgumentError


class Target(str):
    """A target's text; as a context it is what programs inside compile for by default."""

    __slots__ = ()

    def __new__(cls, target: Any, host: Any = None) -> Target:
        """From a text or from a dict with its ``kind``.

        Raises:
            ArgumentError: there is no kind in it.
        """
        del host  # launches are made from Python
        kind = target_kind(target)
        if kind is None:
            raise ArgumentError("a target needs a kind", expected="e.g. 'c' or 'cuda'", got=target)
        return str.__new__(cls, kind if isinstance(target, dict) else str(target))

    @property
    def kind(self) -> Any:
        """Its kind, with the ``name``."""
        return SimpleNamespace(name=target_kind(str(self)))

    def __enter__(self) -> Target:
        current_targets.append(str(self))
        return self

    def __exit__(self, *_: Any) -> None:
        current_targets.pop()


__getattr__ = refusing("tvm.target")


__all__ = ["Target"]
