"""What reductions compute: how two values combine, where they start, and in which dtype."""

from __future__ import annotations

import math

from tilecore.ir.dtypes import DType, boolean, float32, int32
from tilecore.ir.expr import Const, const

COMBINES = {
    "sum": "add", "abssum": "add", "absmax": "max", "max": "max", "min": "min",
    "bitand": "bitand", "bitor": "bitor", "bitxor": "bitxor", "any": "or", "all": "and",
}  # fmt: skip
"""The binary operation of each of `REDUCE_OPS`."""


def accumulator_dtype(op: str, dst: DType) -> DType:
    """The dtype in which partial results are kept."""
    if op in ("any", "all"):
        return boolean
    if dst.is_float:
        return dst if dst.bits >= 32 else float32
    if dst.is_bool:
        return int32
    return dst


def neutral(op: str, dtype: DType) -> Const:
    """The value that changes nothing."""
    if op in ("sum", "abssum", "absmax", "bitor", "bitxor"):
        return const(0, dtype)
    if op == "any":
        return const(False, dtype)
    if op == "all":
        return const(True, dtype)
    if op == "bitand":
        return const(-1 if dtype.kind == "int" else 2**dtype.bits - 1, dtype)
    if dtype.is_float:
        return const(-math.inf if op == "max" else math.inf, dtype)
    lowest = -(2 ** (dtype.bits - 1)) if dtype.kind == "int" else 0
    return const(lowest if op == "max" else lowest + 2**dtype.bits - 1, dtype)
