"""Scalar expressions under the names of another compiler, as helpers of programs build them."""

from __future__ import annotations

from typing import Any

import tilecore.language as T
from tilecore.compat.refused import refusing
from tilecore.language.dtypes import dtype as _dtype
from tilecore.language.values import Scalar as PrimExpr

Select = T.Select
Cast = T.Cast
Min = T.min
Max = T.max


def const(value: Any, dtype: Any = "int32") -> Any:
    """A typed constant."""
    return _dtype(dtype)(value)


def reinterpret(dtype: Any, value: Any) -> Any:
    """The same bits as another dtype."""
    return T.reinterpret(value, dtype)


__all__ = ["Cast", "Max", "Min", "PrimExpr", "Select", "const", "reinterpret"]

__getattr__ = refusing("tvm.tirx")
