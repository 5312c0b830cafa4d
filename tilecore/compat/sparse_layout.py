"""How much of a 2:4 sparse operand its metadata describes; the format is that of `T.gemm_sp`."""

from __future__ import annotations

from typing import Any

import tilecore.language as T
from tilecore.compat.refused import refusing
from tilecore.errors import ArgumentError
from tilecore.language.dtypes import dtype
from tilecore.language.sparse import ENTRY_BITS

_TWO_OF_FOUR = (
    T.float16, T.bfloat16, T.int8, T.uint8, T.float8_e4m3fn, T.float8_e5m2,
)  # fmt: skip
GROUP_CONFIG: dict[dtype, tuple[int, int]] = {
    T.float32: (1, 2),
    **dict.fromkeys(_TWO_OF_FOUR, (2, 4)),
}
"""Kept elements and elements of one group, by the operand's dtype."""


def get_e_factor(a_dtype: Any, meta_dtype: Any) -> int:
    """Elements along k of the dense operand that one integer of the metadata describes.

    Raises:
        ArgumentError: no operand of that dtype is sparse.
    """
    kind = dtype(a_dtype)
    if kind not in GROUP_CONFIG:
        known = ", ".join(map(str, GROUP_CONFIG))
        raise ArgumentError("no sparse operand has this dtype", expected=known, got=str(kind))
    return dtype(meta_dtype).bits // ENTRY_BITS * GROUP_CONFIG[kind][1]


__all__ = ["GROUP_CONFIG", "get_e_factor"]

__getattr__ = refusing("intrinsics")
