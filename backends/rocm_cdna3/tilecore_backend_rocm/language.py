"""Extras of ``tilecore.language.rocm``: what AMD GPUs have beyond the common language."""

from __future__ import annotations

from typing import Any

from tilecore.ir.dtypes import uint32
from tilecore.language.families import extra
from tilecore.language.values import Scalar

__all__ = ["perm"]


def perm(a: Any, b: Any, selector: Any) -> Scalar:
    """Four bytes chosen from the eight of `b` (0 to 3) and `a` (4 to 7), as uint32.

    Each byte of `selector` from 0 to 7 says which byte comes there; 12 gives 0 and 13 or more 0xFF
    (AMD CDNA3 Instruction Set Architecture, V_PERM_B32).
    """
    return extra("rocm.perm", (a, b, selector), uint32)
