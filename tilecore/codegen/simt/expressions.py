"""Expressions as C++ text, with as few parentheses as precedence allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilecore.codegen.simt.dialect import Dialect
from tilecore.errors import LoweringError, UnsupportedError
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import (
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
)

_PRECEDENCE = {
    "or": 1, "and": 2, "bitor": 3, "bitxor": 4, "bitand": 5, "eq": 6, "ne": 6, "lt": 7, "le": 7,
    "gt": 7, "ge": 7, "shl": 8, "shr": 8, "add": 9, "sub": 9, "mul": 10, "div": 10,
}  # fmt: skip
_SIGNS = {
    "or": "||", "and": "&&", "bitor": "|", "bitxor": "^", "bitand": "&", "eq": "==", "ne": "!=",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "shl": "<<", "shr": ">>", "add": "+", "sub": "-",
    "mul": "*", "div": "/",
}  # fmt: skip
_TERNARY, _UNARY, _ATOM = 0, 11, 12


class ExpressionPrinter:
    """Prints expressions of one kernel."""

    def __init__(self, dialect: Dialect, rules: Mapping[str, Any], fast_math: bool) -> None:
        self.dialect = dialect
        self.rules = rules
        self.fast = dialect.fast_math if fast_math else dialect.fast

    def text(self, expr: Expr, level: int = 0) -> str:
        """C++ for `expr`, in parentheses if it binds less tightly than `level`."""
        text, precedence = self._print(expr)
        return f"({text})" if precedence < level else text

    def type_of(self, dtype: DType) -> str:
        """The C++ type of a dtype."""
        return self.dialect.type_of(dtype)

    def _print(self, expr: Expr) -> tuple[str, int]:
        match expr:
            case Const():
                text = self.constant(expr)
                return text, _UNARY if text.startswith("-") else _ATOM
            case Var(name=name):
                return name, _ATOM
            case Binary():
                return self._binary(expr)
            case Unary(op=op, a=a, dtype=dtype):
                sign = {"neg": "-", "not": "!", "bitnot": "~"}[op]
                if dtype.is_float and dtype.bits == 8:
                    return self._through_float(expr.dtype, f"-{self._as_float(a)}")
                return self._narrow(f"{sign}{self.text(a, _UNARY + 1)}", _UNARY, dtype)
            case Cast():
                return self._cast(expr)
            case Bitcast(a=a, dtype=dtype):
                return f"tc::bit_cast<{self.type_of(dtype)}>({self.text(a)})", _ATOM
            case Select(condition=c, a=a, b=b):
                return f"{self.text(c, 1)} ? {self.text(a, 1)} : {self.text(b, 0)}", _TERNARY
            case Load(buffer=buffer, indices=indices):
                return self._load(buffer, indices), _ATOM
            case Call():
                return self._call(expr)
            case _:
                raise UnsupportedError(f"no C++ for {type(expr).__name__}")

    # --- leaves --------------------------------------------------------------------------------

    def constant(self, value: Const) -> str:
        """A literal of exactly the constant's value."""
        dtype = value.dtype
        if dtype.is_bool:
            return "true" if value.value else "false"
        if dtype.is_int:
            return self._integer(int(value.value), dtype)
        number = float(value.value)
        if dtype.name == "float64":
            if math.isfinite(number):
                return repr(number)
            return f"tc::bit_cast<double>(0x{_bits(number, np.float64, np.uint64):016x}ull)"
        if dtype.name in ("float32", "tfloat32"):
            return self._single(number)
        return f"tc::convert<{self.type_of(dtype)}>({self._single(number)})"

    def _single(self, number: float) -> str:
        with np.errstate(over="ignore"):
            single = np.float32(number)
        if np.isfinite(single):
            return f"{single!s}f" if "." in str(single) or "e" in str(single) else f"{single!s}.0f"
        return f"tc::bit_cast<float>(0x{_bits(number, np.float32, np.uint32):08x}u)"

    def _integer(self, number: int, dtype: DType) -> str:
        if dtype.name == "int32":
            return "(-2147483647 - 1)" if number == -(2**31) else str(number)
        if dtype.name == "uint32":
            return f"{number}u"
        suffix = "ull" if dtype.kind == "uint" else "ll"
        if number == -(2**63):
            return "int64_t(-9223372036854775807ll - 1)"
        text = f"{number}{suffix}" if abs(number) >= 2**31 else str(number)
        return f"{self.type_of(dtype)}({text})"

    def address(self, buffer: Buffer, offset: Expr) -> str:
        """Pointer to an element."""
        if offset == Const(0, offset.dtype):  # type: ignore[attr-defined]
            return buffer.name
        return f"{buffer.name} + {self.text(offset, 9)}"

    def _load(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        if not indices and buffer.scope is Scope.LOCAL:
            return buffer.name
        if len(indices) != 1:
            raise LoweringError(
                f"an access of {buffer.name} was not lowered", expected="one offset", got=indices
            )
        (offset,) = indices
        if buffer.scope is Scope.LOCAL:
            return f"{buffer.name}[{self.text(offset)}]"
        space = "global" if buffer.scope is Scope.GLOBAL else "shared"
        return f"tc::load_{space}({self.address(buffer, offset)})"

    # --- arithmetic ----------------------------------------------------------------------------

    def _binary(self, expr: Binary) -> tuple[str, int]:
        op, a, b = expr.op, expr.a, expr.b
        operand = a.dtype  # type: ignore[attr-defined]
        if operand.is_float and operand.bits == 8:
            return self._eight_bit(expr)
        if op in ("min", "max"):
            if operand.is_float and operand.bits == 16:
                call = f"tc::{op}({self._as_float(a)}, {self._as_float(b)})"
                return self._through_float(operand, call)
            return f"tc::{op}({self.text(a)}, {self.text(b)})", _ATOM
        if op in ("floordiv", "floormod"):
            return self._floor(op, a, b, operand)
        if op == "div" and operand.is_int and not (isinstance(b, Const) and b.value > 0):
            return f"tc::trunc_div({self.text(a)}, {self.text(b)})", _ATOM
        if op == "pow":
            return self._math("pow", (a, b), operand)
        precedence = _PRECEDENCE[op]
        left = self.text(a, precedence)
        right = self.text(b, precedence + 1)
        if op in ("bitand", "bitor", "bitxor", "shl", "shr", "and"):  # quiet and plain to read
            left, right = self.text(a, 9), self.text(b, 9)
        text = f"{left} {_SIGNS[op]} {right}"
        return (
            self._narrow(text, precedence, expr.dtype)
            if not expr.dtype.is_bool
            else (text, precedence)
        )

    def _narrow(self, text: str, precedence: int, dtype: DType) -> tuple[str, int]:
        """Integers below 32 bits come back from C++'s promotion to int."""
        if dtype.is_int and dtype.bits < 32:
            return f"{self.type_of(dtype)}({text})", _ATOM
        return text, precedence

    def _floor(self, op: str, a: Expr, b: Expr, dtype: DType) -> tuple[str, int]:
        if dtype.is_float:
            quotient = f"tc::floor({self._as_float(a, 10)} / {self._as_float(b, 11)})"
            if op == "floormod":
                quotient = f"{self._as_float(a, 9)} - {quotient} * {self._as_float(b, 11)}"
            return self._through_float(dtype, quotient)
        name = "floor_div" if op == "floordiv" else "floor_mod"
        return f"tc::{name}({self.text(a)}, {self.text(b)})", _ATOM

    def _eight_bit(self, expr: Binary) -> tuple[str, int]:
        a, b = self._as_float(expr.a, 11), self._as_float(expr.b, 11)
        if expr.op in ("min", "max"):
            return self._through_float(expr.dtype, f"tc::{expr.op}({a}, {b})")
        if expr.op not in _SIGNS:
            raise UnsupportedError(f"{expr.op} on {expr.dtype}", hint="cast to float32 first")
        text = f"{a} {_SIGNS[expr.op]} {b}"
        if expr.dtype.is_bool:
            return text, _PRECEDENCE[expr.op]
        return self._through_float(expr.dtype, text)

    def _as_float(self, expr: Expr, level: int = 0) -> str:
        dtype = expr.dtype  # type: ignore[attr-defined]
        if dtype.bits >= 32:
            return self.text(expr, level)
        return f"tc::convert<float>({self.text(expr)})"

    def _through_float(self, dtype: DType, text: str) -> tuple[str, int]:
        if dtype.bits >= 32:
            return text, 9 if " - " in text else _ATOM
        return f"tc::convert<{self.type_of(dtype)}>({text})", _ATOM

    def _cast(self, expr: Cast) -> tuple[str, int]:
        source = expr.a.dtype  # type: ignore[attr-defined]
        target = expr.dtype
        if self.type_of(source) == self.type_of(target):
            return self._print(expr.a)
        if target.is_bool:
            if source.is_float and source.bits < 32:
                return f"{self._as_float(expr.a)} != 0.0f", 6
            return f"{self.text(expr.a, 7)} != 0", 6
        plain = (source.is_int or source.is_bool) and (target.is_int or target.bits >= 32)
        if plain:
            return f"{self.type_of(target)}({self.text(expr.a)})", _ATOM
        if source.is_bool:
            return f"tc::convert<{self.type_of(target)}>(float({self.text(expr.a)}))", _ATOM
        return f"tc::convert<{self.type_of(target)}>({self.text(expr.a)})", _ATOM

    # --- calls ---------------------------------------------------------------------------------

    def _call(self, call: Call) -> tuple[str, int]:
        if call.op == "lane.at_use" and call.op not in self.rules:
            return self._print(call.args[0])  # advice, which this backend has no use for
        if call.op in self.rules:
            return str(self.rules[call.op](self, call)), _ATOM
        if call.op in _PLAIN_DIVISIONS:
            a, b = call.args
            text = f"{self.text(a, 10)} {_PLAIN_DIVISIONS[call.op]} {self.text(b, 11)}"
            return self._narrow(text, 10, call.dtype)
        if call.op in _LANE_CALLS:
            arguments = ", ".join(self.text(arg) for arg in call.args)
            return f"tc::{_LANE_CALLS[call.op]}({arguments})", _ATOM
        return self._math(call.op, call.args, call.args[0].dtype)  # type: ignore[attr-defined]

    def _math(self, op: str, args: tuple[Expr, ...], dtype: DType) -> tuple[str, int]:
        if op in ("popcount", "clz"):
            name = "popcount" if op == "popcount" else "count_leading_zeros"
            if dtype.bits >= 32:
                return f"tc::{name}({self.text(args[0])})", _ATOM
            # Counted in 32 bits, of which the upper ones are zeros that are not the value's own.
            text = f"tc::{name}(uint32_t(uint{dtype.bits}_t({self.text(args[0])})))"
            return (text, _ATOM) if op == "popcount" else (f"({text} - {32 - dtype.bits})", _ATOM)
        if op == "abs" and dtype.is_int:
            if dtype.kind == "uint":
                return self._print(args[0])
            wide = "int64_t" if dtype.bits == 64 else "int"
            text = f"tc::abs({wide}({self.text(args[0])}))"
            return self._narrow(text, _ATOM, dtype)
        if not dtype.is_float:
            raise UnsupportedError(f"{op} on {dtype}", hint="cast to a float first")
        texts = [self._as_float(arg) for arg in args]
        text = self._function(op, texts, dtype)
        if op in ("isnan", "isinf", "isfinite"):
            return text, _ATOM
        return self._through_float(dtype, text)

    def _function(self, op: str, texts: list[str], dtype: DType) -> str:
        single = dtype.bits < 64
        fast = self.fast.get(op) if single else None
        one = "1.0f" if single else "1.0"
        if fast is not None:
            return f"tc::{fast}({', '.join(texts)})"
        if op == "sigmoid":
            exponential = self._function("exp", [f"-({texts[0]})"], dtype)
            return f"({one} / ({one} + {exponential}))"
        if op == "rcp":
            return f"({one} / ({texts[0]}))"
        if op == "exp10":
            base = "10.0f" if single else "10.0"
            return f"tc::pow({base}, {texts[0]})"
        return f"tc::{op}({', '.join(texts)})"


_PLAIN_DIVISIONS = {"lane.div": "/", "lane.mod": "%"}
_LANE_CALLS = {
    "lane.id": "lane_in_block",
    "block.thread": "lane_in_block",
    "lane.any": "vote_any",
    "lane.uniform": "uniform",
    "lane.shuffle_xor": "shuffle_xor",
    "warp.shuffle": "shuffle",
    "warp.shuffle_xor": "shuffle_xor",
    "warp.shuffle_up": "shuffle_up",
    "warp.shuffle_down": "shuffle_down",
    "warp.ballot": "votes_of_32",
    "lane.max_nan": "max_nan",
    "lane.min_nan": "min_nan",
    "lane.wrapping_add": "wrapping_add",
    "lane.wrapping_sub": "wrapping_sub",
    "lane.wrapping_mul": "wrapping_mul",
    "lane.wrapping_neg": "wrapping_neg",
}


def function_rule(function: str) -> Callable[[ExpressionPrinter, Call], str]:
    """The emit rule of a device header's function: called with the operation's own arguments."""

    def rule(printer: ExpressionPrinter, call: Call) -> str:
        return f"{function}({', '.join(printer.text(arg) for arg in call.args)})"

    return rule


def _bits(number: float, kind: Any, unsigned: Any) -> int:
    return int(np.array(number, kind).view(unsigned))
