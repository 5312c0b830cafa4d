"""Atomics, prints and calls of a device header's functions as C++ statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilecore.codegen.simt.expressions import ExpressionPrinter
from tilecore.errors import UnsupportedError
from tilecore.ir.buffers import Scope
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Expr, Unary
from tilecore.ir.stmts import Atomic, Intrinsic

if TYPE_CHECKING:
    from tilecore.codegen.simt.emitter import KernelPrinter

ATOMIC_FUNCTIONS = {
    "add": "atomic_add", "sub": "atomic_add", "max": "atomic_max", "min": "atomic_min",
    "and": "atomic_and", "or": "atomic_or", "xor": "atomic_xor", "exchange": "atomic_exchange",
}  # fmt: skip
_ANY = frozenset(
    {"int32", "uint32", "int64", "uint64", "float32", "float64", "float16", "bfloat16"}
)
_BITS = frozenset({"int32", "uint32", "int64", "uint64"})
_DTYPES = {
    "add": _ANY, "sub": _ANY, "max": _ANY, "min": _ANY, "and": _BITS, "or": _BITS, "xor": _BITS,
    "exchange": _BITS, "load": _ANY, "store": _ANY,
}  # fmt: skip


def atomic_text(stmt: Atomic, printer: ExpressionPrinter) -> str:
    """The statement of an atomic on one element.

    Raises:
        UnsupportedError: no atomic of this kind on the destination's dtype.
    """
    assert isinstance(stmt.value, Expr), "tile atomics were lowered to elements"
    buffer = stmt.dst.buffer
    if buffer.dtype.name not in _DTYPES.get(stmt.op, ()):
        raise UnsupportedError(
            f"atomic {stmt.op} on {buffer.dtype} (buffer {buffer.name})",
            expected=", ".join(sorted(_DTYPES.get(stmt.op, ()))) or "a known operation",
            loc=stmt.loc,
        )
    space = "global" if buffer.scope is Scope.GLOBAL else "shared"
    place = printer.address(buffer, stmt.dst.starts[0])
    if stmt.op == "load":
        name = "load_acquire_global" if space == "global" else "load_shared"
        call = f"tc::{name}({place})"
    elif stmt.op == "store":
        name = "store_release_global" if space == "global" else "store_shared"
        return f"tc::{name}({place}, {printer.text(stmt.value)});"
    else:
        value: Expr = stmt.value
        if stmt.op == "sub":
            value = Unary("neg", value, buffer.dtype)
        call = f"tc::{ATOMIC_FUNCTIONS[stmt.op]}_{space}({place}, {printer.text(value)})"
    if stmt.previous is None:
        return f"{call};"
    return f"const {printer.type_of(stmt.previous.dtype)} {stmt.previous.name} = {call};"


def statement_rule(function: str) -> Callable[[KernelPrinter, Intrinsic], str]:
    """The emit rule of a device header's function that is a statement: called with the
    operation's own arguments, places in memory by their address."""

    def rule(printer: KernelPrinter, stmt: Intrinsic) -> str:
        arguments = (
            printer.expressions.text(arg) if isinstance(arg, Expr) else printer.region(arg)
            for arg in stmt.args
        )
        return f"{function}({', '.join(arguments)});"

    return rule


def print_text(message: str, value: Expr | None, printer: ExpressionPrinter) -> str:
    """A TC_PRINT of a message and a value."""
    text = message.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", " ")
    if value is None:
        return f'TC_PRINT("{text}\\n");'
    dtype: DType = value.dtype  # type: ignore[attr-defined]
    form, wrap = _format(dtype)
    return f'TC_PRINT("{text}{form}\\n", {wrap}({printer.text(value)}));'


def _format(dtype: DType) -> tuple[str, str]:
    if dtype.is_float:
        return "%g", "tc::convert<double>" if dtype.bits >= 32 else "tc::convert<float>"
    if dtype.bits == 64:
        return ("%llu", "(unsigned long long)") if dtype.kind == "uint" else ("%lld", "(long long)")
    return ("%u", "unsigned") if dtype.kind == "uint" else ("%d", "int")
