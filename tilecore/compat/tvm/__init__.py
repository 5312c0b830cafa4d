"""The few names of another compiler that programs use for element types; the rest is refused."""

from __future__ import annotations

from typing import Any

from tilecore.compat.refused import Refused
from tilecore.compat.tvm import target, tirx
from tilecore.language.dtypes import dtype as DataType

__all__ = ["DataType", "target", "tirx"]


def __getattr__(name: str) -> Any:
    """What is refused raises its reason when it is used."""
    if name.startswith("__"):
        raise AttributeError(name)
    return Refused(f"tvm.{name}")
