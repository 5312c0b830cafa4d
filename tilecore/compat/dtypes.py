"""Element types as a module: `dtype`, torch's names for them, and each dtype by its name."""

from __future__ import annotations

from typing import Any

import tilecore.language as T
from tilecore.ir.dtypes import ALL
from tilecore.language.dtypes import dtype

__all__ = ["dtype"]


def _torch_names() -> dict[Any, str]:
    import torch

    found = ((getattr(torch, kind.name, None), kind.name) for kind in ALL)
    return {torch_dtype: name for torch_dtype, name in found if torch_dtype is not None}


def __getattr__(name: str) -> Any:
    """A table from torch dtypes to names, or a dtype."""
    if name == "_TORCH_DTYPE_TO_STR":
        return _torch_names()
    return getattr(T, name)
