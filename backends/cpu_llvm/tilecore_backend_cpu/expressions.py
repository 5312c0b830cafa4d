"""Scalar and vector expressions to LLVM values.

A value is a scalar while it does not depend on the vector axis; mixing widens it. Integer index
expressions have a second form, `index`, in 64 bits and for lane 0 only: addresses are made of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilecore.errors import UnsupportedError
from tilecore.ir.dtypes import DType
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
    dtype_of_expr,
    reads_memory,
)
from tilecore.ir.intervals import dtype_interval

from .analysis import coefficient, depends_on, interval
from .builder import (
    Value,
    element_bits,
    element_type,
    is_float,
    lane_count,
    like,
    mangle,
    vector_type,
)
from .conversions import compute_type, convert, narrow, round_to, storage_type, widen
from .memory import load_element
from .state import BlockState

_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_INT_OPS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "bitand": "and",
    "bitor": "or",
    "bitxor": "xor",
}
_FLOAT_OPS = {"add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract", "div": "fdiv"}
_VECTOR_MATH = frozenset({"exp", "exp2", "log", "log2", "tanh", "erf", "sin", "cos", "sigmoid"})
_LIBM = {
    "exp10": "exp10",
    "log10": "log10",
    "log1p": "log1p",
    "tan": "tan",
    "atan2": "atan2",
    "fmod": "fmod",
}
_ROUNDING = {
    "floor": "floor",
    "ceil": "ceil",
    "round": "roundeven",
    "trunc": "trunc",
    "abs": "fabs",
    "sqrt": "sqrt",
}


def same_lanes(s: BlockState, values: Sequence[Value]) -> list[Value]:
    """Widen scalars so that all values have one lane count."""
    lanes = max(lane_count(value.type) for value in values)
    return [s.w.splat(value, lanes) for value in values]


def evaluate(s: BlockState, expr: Expr) -> Value:
    """The value of `expr` in its compute type."""
    match expr:
        case Const(value=value, dtype=dtype):
            return s.w.const(value, compute_type(dtype))
        case Var():
            return _variable(s, expr)
        case Binary(op=op, a=a, b=b):
            return _binary(s, op, a, b)
        case Unary(op=op, a=a, dtype=dtype):
            value = evaluate(s, a)
            if op == "neg":
                return s.w.neg(value)
            return s.w.binary("xor", value, s.w.const(True if dtype.is_bool else -1, value.type))
        case Cast(a=a, dtype=dtype):
            source = a.dtype  # type: ignore[attr-defined]
            value = convert(s.w, evaluate(s, a), source, dtype)
            return round_to(s.w, value, dtype) if dtype.name == "tfloat32" else value
        case Bitcast(a=a, dtype=dtype):
            return _bitcast(s, a, dtype)
        case Select(condition=condition, a=a, b=b):
            return _select(s, condition, a, b)
        case Load(buffer=buffer):
            return widen(s.w, load_element(s, buffer, expr.indices), buffer.dtype)
        case Call(op=op, args=args, dtype=dtype):
            return _call(s, op, args, dtype)
        case _:
            raise UnsupportedError(f"the CPU backend has no {type(expr).__name__} expression")


def evaluate_stored(s: BlockState, expr: Expr, dtype: DType) -> Value:
    """The value of `expr` in the storage form of `dtype`, rounded once."""
    return narrow(s.w, evaluate_unrounded(s, expr, dtype), dtype)


def evaluate_unrounded(s: BlockState, expr: Expr, dtype: DType) -> Value:
    """The value of `expr` in the compute form of `dtype`, as it is before it is rounded to it."""
    if isinstance(expr, Cast) and expr.dtype == dtype and dtype.is_float and dtype.bits < 32:
        source: DType = expr.a.dtype  # type: ignore[attr-defined]
        if source.is_float:
            value = evaluate(s, expr.a)
            return s.w.cast("fptrunc", value, like(value.type, "float"))
    return evaluate(s, expr)


def index(s: BlockState, expr: Expr) -> Value:
    """An integer expression in 64 bits, in lane 0."""
    w = s.w
    match expr:
        case Const(value=value):
            return w.i64(int(value))
        case Var(name=name):
            if s.axis is not None and name == s.axis.name:
                return s.axis.base
            if name in s.wide:
                return s.wide[name]
            return _to_wide(s, w.extract(s.values[name], 0), expr.dtype)
        case Binary(op="add" | "sub" | "mul" as op, a=a, b=b):
            left, right = index(s, a), index(s, b)
            return {"add": w.add, "sub": w.sub, "mul": w.mul}[op](left, right)
        case Binary(op="floordiv" | "floormod" as op, a=a, b=b):
            is_positive = interval(a, s.ranges, s.definitions)[0] >= 0
            return _floor_divide(s, op, wrapped(s, a), wrapped(s, b), b, is_positive)
        case Cast(a=a, dtype=dtype) if dtype.is_int and dtype.bits >= 32 and _is_wide_int(a):
            return index(s, a) if dtype_of_expr(a).bits == dtype.bits else wrapped(s, a)
        case _:
            axis, s.axis = s.axis, None
            kept = {}
            if axis is not None:
                kept[axis.name] = s.wide.get(axis.name)
                s.wide[axis.name] = axis.base
            try:
                value = w.extract(evaluate(s, expr), 0)
            finally:
                s.axis = axis
                for name, old in kept.items():
                    if old is None:
                        del s.wide[name]
                    else:
                        s.wide[name] = old
            return _to_wide(s, value, expr.dtype)  # type: ignore[attr-defined]


def wrapped(s: BlockState, expr: Expr) -> Value:
    """`index`, within the expression's dtype: for what does not only lead to an address.

    In 64 bits sums and products of int32 do not wrap; what is divided, compared or counted does.
    """
    value, dtype = index(s, expr), dtype_of_expr(expr)
    low, high = interval(expr, s.ranges, s.definitions)
    limits = dtype_interval(dtype)
    fits = limits[0] <= low and (high <= limits[1] or high == math.inf)  # as of sums of sizes
    if fits or dtype.bits >= 64 or isinstance(expr, Var):
        return value
    return _to_wide(s, s.w.cast("trunc", value, compute_type(dtype)), dtype)


def _is_wide_int(expr: Expr) -> bool:
    dtype = expr.dtype  # type: ignore[attr-defined]
    return dtype.is_int and dtype.bits >= 32 and dtype.kind == "int"


def _to_wide(s: BlockState, value: Value, dtype: DType) -> Value:
    if value.type == "i64":
        return value
    return s.w.cast("sext" if dtype.kind == "int" else "zext", value, "i64")


def _variable(s: BlockState, var: Var) -> Value:
    w = s.w
    kind = compute_type(var.dtype)
    if s.axis is not None and var.name == s.axis.name:
        base = w.cast("trunc", s.axis.base, kind) if kind != "i64" else s.axis.base
        steps = w.const_vector(range(s.axis.lanes), kind)
        return base if s.axis.lanes == 1 else w.add(w.splat(base, s.axis.lanes), steps)
    if var.name in s.values:
        return s.values[var.name]
    wide = s.wide[var.name]
    return wide if kind == "i64" else w.cast("trunc", wide, kind)


def _binary(s: BlockState, op: str, a: Expr, b: Expr) -> Value:
    w = s.w
    dtype: DType = a.dtype  # type: ignore[attr-defined]
    if op in ("and", "or") and reads_memory(b) and s.axis is None:
        # The right side may be guarded by the left one.
        return (
            _select(s, a, b, Const(False, dtype))
            if op == "and"
            else _select(s, a, Const(True, dtype), b)
        )
    left, right = evaluate(s, a), evaluate(s, b)
    if op in ("shl", "shr"):
        return _shift(s, op, left, right, dtype)
    if op in ("floordiv", "floormod") and dtype.is_int:
        is_positive = interval(a, s.ranges, s.definitions)[0] >= 0 or dtype.kind == "uint"
        return _floor_divide(s, op, left, right, b, is_positive)
    left, right = same_lanes(s, [left, right])
    if op in COMPARISON:
        if dtype.is_float:
            return w.fcmp(_FLOAT_COMPARE[op], left, right)
        prefix = "" if op in ("eq", "ne") else ("s" if dtype.kind == "int" else "u")
        return w.icmp(prefix + op, left, right)
    if op in ("and", "or"):
        return w.binary(op, left, right)
    if op in ("min", "max"):
        if dtype.is_float:
            return w.intrinsic(f"{op}num", [left, right])
        return w.intrinsic(("s" if dtype.kind == "int" else "u") + op, [left, right])
    if op == "pow":
        return _power(s, left, right, b, dtype)
    if dtype.is_float:
        if op in ("floordiv", "floormod"):
            quotient = w.intrinsic("floor", [w.binary("fdiv", left, right)])
            return quotient if op == "floordiv" else w.fma(w.neg(quotient), right, left)
        return w.binary(_FLOAT_OPS[op], left, right)
    if op == "div":
        safe = _safe_divisor(s, left, right, dtype)
        return w.binary("sdiv" if dtype.kind == "int" else "udiv", left, safe)
    return w.binary(_INT_OPS[op], left, right)


def _shift(s: BlockState, op: str, left: Value, right: Value, dtype: DType) -> Value:
    w = s.w
    bits = element_bits(left.type)
    if element_bits(right.type) != bits:
        opcode = "trunc" if element_bits(right.type) > bits else "zext"
        right = w.cast(opcode, right, like(right.type, element_type(left.type)))
    left, right = same_lanes(s, [left, right])
    opcode = "shl" if op == "shl" else ("ashr" if dtype.kind == "int" else "lshr")
    return w.binary(opcode, left, right)


def _safe_divisor(s: BlockState, left: Value, right: Value, dtype: DType) -> Value:
    """A divisor on which the processor does not trap: 1 for 0, and for -1 under the minimum."""
    w = s.w
    one = w.const(1, right.type)
    bad = w.icmp("eq", right, w.const(0, right.type))
    if dtype.kind == "int":
        least = w.const(-(1 << (element_bits(left.type) - 1)), left.type)
        over = w.binary(
            "and", w.icmp("eq", right, w.const(-1, right.type)), w.icmp("eq", left, least)
        )
        bad = w.binary("or", bad, over)
    return w.select(bad, one, right)


def _floor_divide(
    s: BlockState, op: str, left: Value, right: Value, divisor: Expr, is_positive: bool
) -> Value:
    """Python's floor division and modulo; unsigned when neither side can be negative."""
    w = s.w
    left, right = same_lanes(s, [left, right])
    known = int(divisor.value) if isinstance(divisor, Const) else None
    dtype: DType = divisor.dtype  # type: ignore[attr-defined]
    if known is None or known == 0:
        right = _safe_divisor(s, left, right, dtype)
    divisor_low = interval(divisor, s.ranges, s.definitions)[0]
    if is_positive and (divisor_low > 0 or dtype.kind == "uint"):
        return w.binary("udiv" if op == "floordiv" else "urem", left, right)
    if known is not None and known > 0 and known & (known - 1) == 0:
        if op == "floordiv":
            return w.binary("ashr", left, w.const(known.bit_length() - 1, left.type))
        return w.binary("and", left, w.const(known - 1, left.type))
    quotient = w.binary("sdiv", left, right)
    rest = w.sub(left, w.mul(quotient, right))
    zero = w.const(0, left.type)
    is_off = w.binary(
        "and",
        w.icmp("ne", rest, zero),
        w.icmp("slt", w.binary("xor", rest, right), zero),
    )
    if op == "floordiv":
        return w.add(quotient, w.cast("sext", is_off, left.type))
    return w.add(rest, w.select(is_off, right, zero))


def _power(s: BlockState, left: Value, right: Value, exponent: Expr, dtype: DType) -> Value:
    w = s.w
    if (
        isinstance(exponent, Const)
        and float(exponent.value).is_integer()
        and 0 <= exponent.value <= 8
    ):
        total = w.const(1, left.type)
        for _ in range(int(exponent.value)):
            total = w.mul(total, left)
        return total
    if not dtype.is_float:
        raise UnsupportedError("integer power needs a constant exponent from 0 to 8", got=exponent)
    return s.math.by_lane("pow", [left, right])


def _bitcast(s: BlockState, a: Expr, dtype: DType) -> Value:
    source: DType = a.dtype  # type: ignore[attr-defined]
    stored = narrow(s.w, evaluate(s, a), source)
    raw = s.w.bitcast(stored, like(stored.type, storage_type(dtype)))
    return widen(s.w, raw, dtype)


def _select(s: BlockState, condition: Expr, a: Expr, b: Expr) -> Value:
    w = s.w
    chosen = evaluate(s, condition)
    if (
        not s.is_elementwise
        and lane_count(chosen.type) == 1
        and (reads_memory(a) or reads_memory(b))
    ):
        # Only the chosen branch may touch memory. In elementwise nests each load is guarded itself.
        kind = compute_type(a.dtype)  # type: ignore[attr-defined]
        slot = w.alloca(kind, 1, 8)
        label = w.fresh("pick")
        w.terminate(f"br {chosen}, label %{label}.a, label %{label}.b")
        w.begin_block(f"{label}.a")
        w.store(evaluate(s, a), slot)
        w.terminate(f"br label %{label}.end")
        w.begin_block(f"{label}.b")
        w.store(evaluate(s, b), slot)
        w.begin_block(f"{label}.end")
        return w.load(slot, kind)
    left, right = same_lanes(s, [evaluate(s, a), evaluate(s, b)])
    lanes = max(lane_count(left.type), lane_count(chosen.type))
    left, right = w.splat(left, lanes), w.splat(right, lanes)
    return w.select(w.splat(chosen, lanes) if lane_count(chosen.type) > 1 else chosen, left, right)


def _call(s: BlockState, op: str, args: tuple[Expr, ...], dtype: DType) -> Value:
    w = s.w
    if "." in op:
        raise UnsupportedError(f"the CPU backend has no operation {op!r}")
    values = same_lanes(s, [evaluate(s, arg) for arg in args])
    x = values[0]
    if op == "abs" and not is_float(x.type):
        return w.call(f"llvm.abs.{_suffix(x)}", x.type, [x, w.const(False, "i1")])
    if op in _VECTOR_MATH:
        return getattr(s.math, op)(x)
    if op in _ROUNDING:
        return w.intrinsic(_ROUNDING[op], [x])
    if op in _LIBM:
        return s.math.by_lane(_LIBM[op], values)
    match op:
        case "rsqrt":
            return w.binary("fdiv", w.const(1.0, x.type), w.intrinsic("sqrt", [x]))
        case "rcp":
            return w.binary("fdiv", w.const(1.0, x.type), x)
        case "fma":
            return w.fma(*values)
        case "isnan":
            return w.fcmp("uno", x, x)
        case "isinf" | "isfinite":
            size = w.intrinsic("fabs", [x])
            predicate = "oeq" if op == "isinf" else "olt"
            return w.fcmp(predicate, size, w.const(float("inf"), x.type))
        case "popcount":
            return _resize(s, w.intrinsic("ctpop", [x]), dtype)
        case "clz":
            counted = w.call(f"llvm.ctlz.{_suffix(x)}", x.type, [x, w.const(False, "i1")])
            return _resize(s, counted, dtype)
        case _:
            raise UnsupportedError(f"the CPU backend has no operation {op!r}")


def _suffix(value: Value) -> str:
    return mangle(value.type)


def _resize(s: BlockState, value: Value, dtype: DType) -> Value:
    kind = like(value.type, compute_type(dtype))
    if element_bits(value.type) == dtype.bits:
        return value
    return s.w.cast("trunc" if element_bits(value.type) > dtype.bits else "zext", value, kind)


__all__ = ["coefficient", "depends_on", "evaluate", "index", "same_lanes", "vector_type"]
