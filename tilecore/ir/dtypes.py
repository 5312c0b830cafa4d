"""Element types: names, widths, and how they mix.

The table is the whole truth: a dtype that is not here does not exist. Names are NumPy's and
ml_dtypes' names, so the host side needs no translation.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilecore.errors import LanguageError

_KINDS = {"is_float": ("float",), "is_int": ("int", "uint"), "is_bool": ("bool",)}


@dataclass(frozen=True, slots=True)
class DType:
    """An element type.

    Attributes:
        name: NumPy / ml_dtypes name, e.g. ``"float16"``.
        kind: ``"float"``, ``"int"``, ``"uint"`` or ``"bool"``.
        bits: width of one element in bits; sub-byte types are packed, low bits first.
        mantissa_bits: stored fraction bits (floats only); sets tolerances and promotion.
        exponent_bits: exponent bits (floats only).
        is_float: true for all floating-point types.
        is_int: true for signed and unsigned integers, not for bool.
        is_bool: true for bool.
    """

    name: str
    kind: str
    bits: int
    mantissa_bits: int = 0
    exponent_bits: int = 0
    is_float: bool = field(init=False, compare=False)
    is_int: bool = field(init=False, compare=False)
    is_bool: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        for name, kinds in _KINDS.items():  # kept: asked at every step of index arithmetic
            object.__setattr__(self, name, self.kind in kinds)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def bytes(self) -> int:
        """Width in whole bytes; 1 for sub-byte types."""
        return max(1, self.bits // 8)

    @property
    def is_signed(self) -> bool:
        """True for signed integers and floats."""
        return self.kind in ("int", "float")

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"DType({self.name})"


float64 = DType("float64", "float", 64, 52, 11)
float32 = DType("float32", "float", 32, 23, 8)
tfloat32 = DType("tfloat32", "float", 32, 10, 8)
float16 = DType("float16", "float", 16, 10, 5)
bfloat16 = DType("bfloat16", "float", 16, 7, 8)
float8_e4m3fn = DType("float8_e4m3fn", "float", 8, 3, 4)
float8_e4m3fnuz = DType("float8_e4m3fnuz", "float", 8, 3, 4)
float8_e5m2 = DType("float8_e5m2", "float", 8, 2, 5)
float8_e5m2fnuz = DType("float8_e5m2fnuz", "float", 8, 2, 5)
float8_e8m0fnu = DType("float8_e8m0fnu", "float", 8, 0, 8)
float4_e2m1fn = DType("float4_e2m1fn", "float", 4, 1, 2)
int64 = DType("int64", "int", 64)
int32 = DType("int32", "int", 32)
int16 = DType("int16", "int", 16)
int8 = DType("int8", "int", 8)
int4 = DType("int4", "int", 4)
uint64 = DType("uint64", "uint", 64)
uint32 = DType("uint32", "uint", 32)
uint16 = DType("uint16", "uint", 16)
uint8 = DType("uint8", "uint", 8)
uint4 = DType("uint4", "uint", 4)
boolean = DType("bool", "bool", 8)

ALL: tuple[DType, ...] = (
    float64, float32, tfloat32, float16, bfloat16,
    float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu, float4_e2m1fn,
    int64, int32, int16, int8, int4, uint64, uint32, uint16, uint8, uint4, boolean,
)  # fmt: skip
_BY_NAME = {dtype.name: dtype for dtype in ALL}
_ALIASES = {
    "float": "float32", "half": "float16", "double": "float64", "int": "int32",
    "float8_e4m3": "float8_e4m3fn", "bool_": "bool", "boolean": "bool",
}  # fmt: skip


def dtype_of(value: Any) -> DType:
    """Turn a dtype-like value into a `DType`.

    Accepts a `DType`, a name, a NumPy dtype or scalar type, a torch dtype, ``int``, ``float``,
    ``bool``, or anything with a ``dtype`` attribute of those kinds.

    Raises:
        LanguageError: the value names no known dtype.
    """
    if isinstance(value, DType):
        return value
    if value is float:
        return float32
    if value is int:
        return int32
    if value is bool:
        return boolean
    name = value if isinstance(value, str) else _foreign_name(value)
    name = _ALIASES.get(name, name)
    if name not in _BY_NAME:
        close = difflib.get_close_matches(str(name), [*_BY_NAME, *_ALIASES], n=1)
        raise LanguageError(
            "unknown dtype",
            expected=f"one of {', '.join(_BY_NAME)}",
            got=value,
            hint=f"did you mean {close[0]}?"
            if close
            else "give the name as a string, or as T.<name>",
        )
    return _BY_NAME[name]


def _foreign_name(value: Any) -> str:
    text = str(value)
    if text.startswith("torch."):
        return text.removeprefix("torch.")
    try:
        return np.dtype(value).name
    except (TypeError, ValueError):  # what NumPy says of what has a dtype without being one
        inner = getattr(value, "dtype", None)
        return text if inner is None else _foreign_name(inner)


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype that stores `dtype` on the host (ml_dtypes for the narrow floats).

    ``tfloat32`` is stored as float32. Packed sub-byte types are stored as the unpacked ml_dtypes
    type of the same name: one element a byte.
    """
    if dtype is tfloat32:
        return np.dtype(np.float32)
    if dtype.name in ("float64", "float32", "float16") or (not dtype.is_float and dtype.bits >= 8):
        return np.dtype(dtype.name)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, dtype.name))


def promote(a: DType, b: DType) -> DType:
    """The dtype in which ``a op b`` is computed.

    The rule, in order: equal stays; bool gives way; a float beats an integer; of two floats the
    one that holds the other's values, or float32 when neither does (float16 with bfloat16);
    of two integers the wider, and of equal width the unsigned one (as in C).
    """
    if a == b:
        return a
    if a.is_bool or b.is_bool:
        return b if a.is_bool else a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_float:
        if (a.mantissa_bits, a.exponent_bits) == (b.mantissa_bits, b.exponent_bits):
            return float32  # two encodings of one width: neither holds the other's largest values
        if a.mantissa_bits >= b.mantissa_bits and a.exponent_bits >= b.exponent_bits:
            return a
        if b.mantissa_bits >= a.mantissa_bits and b.exponent_bits >= a.exponent_bits:
            return b
        return float32
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    return a if a.kind == "uint" else b
