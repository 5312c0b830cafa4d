"""Values of elements narrower than a byte, computed in a dtype that every target has.

Registers and on-chip memory hold ``int4`` as int8, ``uint4`` as uint8 and ``float4_e2m1fn`` as
float8_e4m3fn, which has all of its values. What an operation gives is brought back to the narrow
dtype's own values, so that nobody can tell the difference. In global memory two elements share a
byte, the first one in the low bits (`packed_storage`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilecore.errors import UnsupportedError
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import (
    DType,
    float4_e2m1fn,
    float8_e4m3fn,
    float32,
    float64,
    int4,
    int8,
    int32,
    uint4,
    uint8,
)
from tilecore.ir.expr import (
    COMPARISON,
    Binary,
    Bitcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    as_dtype,
    binary,
    const,
    dtype_of_expr,
    rebuild,
)

WIDE = {int4: int8, uint4: uint8, float4_e2m1fn: float8_e4m3fn}
"""What holds a narrow dtype on the chip."""

_LARGEST = 6.0
"""Of float4_e2m1fn: 1.5 * 2^2 (OCP Microscaling Formats Specification 1.0, 5.3.3)."""
_CLOSED = frozenset({"min", "max", "floormod", "bitand", "bitor", "bitxor", "shr"})
"""Operations whose result in the wide dtype is the narrow dtype's own."""


def is_narrow(dtype: DType) -> bool:
    """True for dtypes of which several elements share a byte."""
    return dtype in WIDE


def wide(dtype: DType) -> DType:
    """What values of `dtype` are computed in on the chip; itself from a byte on."""
    return WIDE.get(dtype, dtype)


def code_of(value: Expr, dtype: DType) -> Expr:
    """The four bits of a narrow value, as an int32 from 0 to 15.

    Args:
        value: in the wide dtype.
        dtype: the narrow one.
    """
    if dtype.is_int:
        return _and(Cast(value, int32), 15)
    # float8_e4m3fn: sign, 4 exponent bits (bias 7), 3 of the fraction; here 1, 2 (bias 1) and 1.
    bits = Cast(Bitcast(value, uint8), int32)
    size = _shift("shr", _and(bits, 0x7F), 2)  # 0; 12 for 0.5; 14 ... 19 for 1, 1.5, 2, 3, 4, 6
    small = Select(binary("eq", size, const(12)), const(1), const(0), int32)
    normal = Select(binary("gt", size, const(12)), binary("sub", size, const(12)), small, int32)
    return binary("bitor", normal, _and(_shift("shr", bits, 4), 8))


def value_of(code: Expr, dtype: DType) -> Expr:
    """The wide value of four bits, an int32 from 0 to 15. The inverse of `code_of`."""
    if dtype is int4:
        return Cast(binary("sub", binary("bitxor", code, const(8)), const(8)), int8)
    if dtype is uint4:
        return Cast(code, uint8)
    size = _and(code, 7)
    small = Select(binary("eq", size, const(1)), const(48), const(0), int32)
    normal = _shift("shl", binary("add", size, const(12)), 2)
    bits = Select(binary("gt", size, const(1)), normal, small, int32)
    bits = binary("bitor", bits, _shift("shl", _and(code, 8), 4))
    return Bitcast(Cast(bits, uint8), float8_e4m3fn)


def narrowed(value: Expr, dtype: DType) -> Expr:
    """`value` converted to a narrow dtype, by the rules of `ir.expr.Cast`; in the wide dtype."""
    source = dtype_of_expr(value)
    if dtype.is_float:
        exact = value if source is float64 else as_dtype(value, float32)
        return Cast(_rounded(exact), float8_e4m3fn)
    low, high = (-8, 7) if dtype.is_signed else (0, 15)
    if source.is_float:  # towards zero, saturating; nan gives 0
        number = binary("max", binary("min", Cast(value, int32), const(high)), const(low))
        return Cast(number, wide(dtype))
    return value_of(_and(as_dtype(value, int32), 15), dtype)


def _rounded(value: Expr) -> Expr:
    """To the nearest value of float4_e2m1fn, ties to even; beyond the largest, the largest.

    The steps are 0.5 below 2, 1 below 4, and 2. A nan becomes -0, as the host's conversion does.
    """
    dtype = dtype_of_expr(value)

    def number(x: float) -> Const:
        return const(x, dtype)

    def stepped(scale: float) -> Expr:
        steps = Call("round", (binary("mul", value, number(1 / scale)),), dtype)
        return binary("mul", steps, number(scale))

    size = Call("abs", (value,), dtype)
    most = binary("max", binary("min", stepped(2), number(_LARGEST)), number(-_LARGEST))
    large = Select(binary("lt", size, number(4)), stepped(1), most, dtype)
    known = Select(binary("lt", size, number(2)), stepped(0.5), large, dtype)
    return Select(Call("isnan", (value,), dtype_of_expr(binary("lt", size, size))),
                  Const(-0.0, dtype), known, dtype)  # fmt: skip


class Values:
    """Rewrites expressions so that no narrow dtype is left in them.

    Args:
        load: what a `Load` of a narrow buffer becomes, given its rewritten indices.
    """

    def __init__(self, load: Callable[[Load], Expr]) -> None:
        self._load = load

    def __call__(self, expr: Expr) -> Expr:
        """The same value; of the wide dtype where `expr` has a narrow one."""
        dtype = dtype_of_expr(expr)
        if isinstance(expr, Const):
            return Const(expr.value, wide(dtype)) if is_narrow(dtype) else expr
        if isinstance(expr, Var):
            return replace(expr, dtype=wide(dtype)) if is_narrow(dtype) else expr
        old = expr.children
        new = tuple(self(child) for child in old)
        if isinstance(expr, Load):
            return self._load(Load(expr.buffer, new))
        if not is_narrow(dtype) and not any(is_narrow(dtype_of_expr(child)) for child in old):
            same = all(a is b for a, b in zip(new, old, strict=True))
            return expr if same else rebuild(expr, new)
        return self._narrow(expr, new)

    def _narrow(self, expr: Expr, new: tuple[Expr, ...]) -> Expr:
        """An operation with narrow operands or a narrow result, over rewritten operands."""
        dtype = dtype_of_expr(expr)
        match expr:
            case Cast():
                return narrowed(new[0], dtype) if is_narrow(dtype) else as_dtype(new[0], dtype)
            case Bitcast(a=a):
                return value_of(code_of(new[0], dtype_of_expr(a)), dtype)
            case Select():
                return Select(new[0], new[1], new[2], wide(dtype))
            case Binary(op=op, a=a) if op in COMPARISON:
                of = dtype_of_expr(a)
                return binary(op, *(as_dtype(x, float32) for x in new)) if of.is_float else binary(
                    op, *new
                )  # fmt: skip
            case Call(op=op, args=args):
                return self._call(op, dtype, dtype_of_expr(args[0]), new)
            case Binary() | Unary() if dtype.is_float:
                return narrowed(self._again(expr, tuple(as_dtype(x, float32) for x in new)), dtype)
            case Binary(op=op) if op in _CLOSED:
                return binary(op, *new)
            case Binary() | Unary():
                return narrowed(self._again(expr, new), dtype)
            case _:
                raise UnsupportedError(f"{type(expr).__name__} of {dtype}", got=expr)

    def _again(self, expr: Expr, new: tuple[Expr, ...]) -> Expr:
        if isinstance(expr, Unary):
            return Unary(expr.op, new[0], dtype_of_expr(new[0]))
        return rebuild(expr, new)

    def _call(self, op: str, dtype: DType, of: DType, new: tuple[Expr, ...]) -> Expr:
        if op in ("popcount", "clz"):
            code = Call(op, (code_of(new[0], of),), int32)
            count = code if op == "popcount" else binary("sub", code, const(28))
            return narrowed(count, dtype) if is_narrow(dtype) else as_dtype(count, dtype)
        if of.is_int and op != "abs":
            raise UnsupportedError(
                f"{op} of {of}", hint="convert it to a dtype of 8 bits or more first"
            )
        args = tuple(as_dtype(x, float32) for x in new) if of.is_float else new
        if not is_narrow(dtype):
            return Call(op, args, dtype)
        return narrowed(Call(op, args, float32 if of.is_float else wide(dtype)), dtype)


def _and(value: Expr, mask: int) -> Expr:
    return binary("bitand", value, const(mask))


def _shift(op: str, value: Expr, count: int) -> Expr:
    return binary(op, value, const(count))


def is_packed(buffer: Buffer) -> bool:
    """True for a buffer in global memory of which several elements share a byte."""
    return is_narrow(buffer.dtype) and buffer.scope is Scope.GLOBAL


def halved(index: Expr) -> Expr:
    """The byte of an element."""
    return binary("floordiv", index, const(2, dtype_of_expr(index)))


def shift_of(index: Expr) -> Expr:
    """0 for an element in the low bits, 4 for one in the high bits."""
    dtype = dtype_of_expr(index)
    odd = binary("bitand", index, const(1, dtype))
    return binary("mul", as_dtype(odd, int32), const(4))


def less(a: Expr, b: Expr) -> Expr:
    """``a < b`` of integers of any two widths."""
    wider = max((dtype_of_expr(x) for x in (a, b)), key=lambda dtype: dtype.bits)
    return binary("lt", as_dtype(a, wider), as_dtype(b, wider))
