"""The author's dtypes: ``T.float16`` is a name, an annotation, and a conversion.

A dtype is a string (``T.float16 == "float16"``), so it may be compared with names, passed to
NumPy, or looked up in torch. Calling it converts: ``T.float32(x)``, ``T.int64(5)``.
"""

from __future__ import annotations

from typing import Any

from tilecore.errors import LanguageError
from tilecore.ir import dtypes as ir_dtypes
from tilecore.ir.dtypes import DType
from tilecore.language.locate import caller_loc, misuse


class dtype(str):
    """An element type of the language; see `tilecore.ir.dtypes` for the table.

    Raises:
        LanguageError: the value names no known dtype.
    """

    __slots__ = ("ir",)
    ir: DType

    def __new__(cls, *values: Any) -> dtype:
        """Take anything that names a dtype: a string, a NumPy or torch dtype, int, float."""
        if len(values) != 1:
            raise misuse(
                "T.dtype takes what names a dtype",
                expected="one string, or a NumPy or torch dtype",
                got=f"{len(values)} values",
                hint="T.float16(x) converts a value",
                loc=caller_loc(),
            )
        (value,) = values
        if isinstance(value, dtype):
            return value
        try:
            known = ir_dtypes.dtype_of("uint32" if value == "uint" else value)
        except LanguageError as error:
            raise misuse(
                error.reason,
                expected=error.expected,
                got=error.got,
                hint=error.hint,
                loc=caller_loc(),
            ) from None
        self = str.__new__(cls, known.name)
        self.ir = known
        return self

    def __call__(self, value: Any = None, *more: Any, **named: Any) -> Any:
        """Convert a scalar to this dtype (a typed constant for a Python number).

        Without a value: a variable of this dtype, to be set by an assignment or T.let.
        """
        from tilecore.language.builder import current_or_none
        from tilecore.language.math_ops import cast

        if more or named:
            raise misuse(
                f"T.{self} takes one value",
                expected="a scalar or a number to convert",
                got=f"{1 + len(more)} values" if more else f"{', '.join(named)}=",
                hint="convert each value by itself",
                loc=caller_loc(),
            )
        if value is not None:
            return cast(value, self)
        builder = current_or_none()
        if builder is not None and builder.kernel is not None:
            from tilecore.language.allocate import alloc_var

            return alloc_var(self)
        from tilecore.ir.expr import Var
        from tilecore.language.values import Scalar

        return Scalar(Var("v", self.ir))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str.__eq__(self, other)
        if isinstance(other, DType):
            return self.ir == other
        try:
            return self.ir == ir_dtypes.dtype_of(other)
        except Exception:
            return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __repr__(self) -> str:
        return f"T.{self!s}"

    @property
    def bits(self) -> int:
        """Width of one element in bits."""
        return self.ir.bits

    @property
    def bytes(self) -> int:
        """Width in whole bytes; 1 for sub-byte types."""
        return self.ir.bytes

    @property
    def itemsize(self) -> int:
        """The same as `bytes`, under NumPy's name."""
        return self.ir.bytes

    @property
    def is_float(self) -> bool:
        """True for the floating-point types."""
        return self.ir.is_float

    def as_torch(self) -> Any:
        """torch's dtype of the same name.

        Raises:
            AttributeError: torch has no dtype of that name.
        """
        import torch

        return getattr(torch, str(self))


float64 = double = dtype("float64")
float32 = dtype("float32")
tfloat32 = dtype("tfloat32")
float16 = half = dtype("float16")
bfloat16 = dtype("bfloat16")
float8_e4m3fn = float8_e4m3 = dtype("float8_e4m3fn")
float8_e4m3fnuz = dtype("float8_e4m3fnuz")
float8_e5m2 = dtype("float8_e5m2")
float8_e5m2fnuz = dtype("float8_e5m2fnuz")
float8_e8m0fnu = dtype("float8_e8m0fnu")
float4_e2m1fn = dtype("float4_e2m1fn")
int64 = long = dtype("int64")
int32 = dtype("int32")
int16 = short = dtype("int16")
int8 = dtype("int8")
int4 = dtype("int4")
uint64 = dtype("uint64")
uint32 = dtype("uint32")
uint16 = dtype("uint16")
uint8 = dtype("uint8")
uint4 = dtype("uint4")
bool_ = dtype("bool")

# Names that shadow Python's own; the facade exports them as `T.float`, `T.int`, `T.bool`.
PYTHON_NAMES = {"float": float32, "int": int32, "uint": uint32, "bool": bool_}

NAMES: dict[str, dtype] = {
    name: value for name, value in list(globals().items()) if isinstance(value, dtype)
} | PYTHON_NAMES
