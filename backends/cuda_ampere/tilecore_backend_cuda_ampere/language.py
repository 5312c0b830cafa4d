"""Extras of ``tilecore.language.cuda``: what NVIDIA GPUs have beyond the common language."""

from __future__ import annotations

from typing import Any

from tilecore.ir.dtypes import uint32
from tilecore.language import operators as ops
from tilecore.language.families import extra
from tilecore.language.locate import fail
from tilecore.language.values import Scalar
from tilecore_backend_cuda_ampere.copy import L2_PREFETCH, L2_PREFETCH_BYTES

__all__ = ["l2_prefetch", "lop3", "prmt"]


def prmt(a: Any, b: Any, selector: Any) -> Scalar:
    """Four bytes chosen from the eight of `a` (0 to 3) and `b` (4 to 7), as uint32.

    Each of the lowest four hexadecimal digits of `selector` says which byte comes there; 8 added to
    it gives that byte's sign in all bits (PTX ISA, "prmt").
    """
    return extra("cuda.prmt", (a, b, selector), uint32)


def l2_prefetch(size_bytes: int) -> dict[str, int]:
    """Annotation of `T.copy`: bytes that the second-level cache fetches along with each piece.

    It is advice to copies from global to shared memory that lanes issue asynchronously
    (``cp.async``), and has no effect on others. Where none is given, pieces of 16 bytes ask for
    128 and smaller ones for nothing.

    Args:
        size_bytes: 0 (nothing beyond what is copied), 64, 128 or 256.
    """
    if size_bytes not in L2_PREFETCH_BYTES or isinstance(size_bytes, bool):
        fail(
            "T.l2_prefetch of a size that no instruction has",
            expected=", ".join(map(str, L2_PREFETCH_BYTES)),
            got=repr(size_bytes),
        )
    return {L2_PREFETCH: size_bytes}


def lop3(a: Any, b: Any, c: Any, table: int) -> Scalar:
    """Any bitwise function of three uint32 values.

    Args:
        a, b, c: the values.
        table: the function's value for 0xF0, 0xCC, 0xAA in place of them (PTX ISA, "lop3").
    """
    known = ops.static_int(table, "table of T.lop3", at_least=0, at_most=255)
    return extra("cuda.lop3", (a, b, c, known), uint32)
