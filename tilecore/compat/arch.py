"""Facts of architectures that programs ask for: only those of the device that is present."""

from __future__ import annotations

from typing import Any

from tilecore.compat import driver
from tilecore.compat.refused import Refused

__all__ = ["driver"]


def __getattr__(name: str) -> Any:
    """What is refused raises its reason when it is used."""
    if name.startswith("__"):
        raise AttributeError(name)
    return Refused(f"carver.arch.{name}")
