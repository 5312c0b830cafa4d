"""The few names of another compiler that programs use for element types; the rest is refused."""

from __future__ import annotations

from tilecore.compat.refused import refusing
from tilecore.compat.tvm import target, tirx
from tilecore.language.dtypes import dtype as DataType

__all__ = ["DataType", "target", "tirx"]

__getattr__ = refusing("tvm")
