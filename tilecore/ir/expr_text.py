"""The text form of expressions and regions: precedence, reserved words, and the printing half.

What `parser.py` reads and what `printer.py` writes; this file is where the two agree.

    8, -3, 1.5, inf, true      int32, float32 and bool literals
    int64(8), float16(nan)     literals of any other dtype
    x                          a variable, declared where it is bound
    a + b // 2 == c and d      Python's operators and precedence
    min(a, b), pow(a, b)       the arithmetic operations that have no sign
    cast(x, int64)             also bitcast(x, int64)
    select(c, a, b)
    A[i, j], x[]               a load
    exp(x), lane.id(), f(x):d  a call; its dtype when that is not the first argument's
    A[i:+32, j, :]             a region: start and extent, a point, a whole axis
    &A[i, j]                   a region where an expression could stand too

Names that are no identifiers, or are reserved, stand in backticks.
"""

from __future__ import annotations

import re

from tilecore.errors import VerifyError
from tilecore.ir.buffers import Buffer, Region
from tilecore.ir.compound import MOST_NODES, nodes_of
from tilecore.ir.dtypes import ALL, DType, boolean, float32, int32
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
    dtype_of_expr,
)

# Binding strength of the infix signs, weakest first, as in Python; comparisons do not chain.
PRECEDENCE: dict[str, int] = {
    "or": 1, "and": 2,
    "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4,
    "|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9,
    "*": 10, "/": 10, "//": 10, "%": 10,
}  # fmt: skip
NOT_PRECEDENCE = 3
COMPARISON_PRECEDENCE = 4
UNARY_PRECEDENCE = 11
ATOM_PRECEDENCE = 12

SIGN_OF_OP = {
    "or": "or", "and": "and", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "bitor": "|", "bitxor": "^", "bitand": "&", "shl": "<<", "shr": ">>", "add": "+", "sub": "-",
    "mul": "*", "div": "/", "floordiv": "//", "floormod": "%",
}  # fmt: skip
OP_OF_SIGN = {sign: op for op, sign in SIGN_OF_OP.items()}
FUNCTION_OPS = ("min", "max", "pow")
UNARY_SIGNS = {"neg": "-", "bitnot": "~", "not": "not "}

# Words that mean something where an expression or a statement may begin.
RESERVED = frozenset({
    "true", "false", "inf", "nan", "none", "and", "or", "not", "if", "else", "while", "assert",
    "atomic", "for", "parallel", "let", "alias", "copy", "fill", "gemm", "reduce", "scan", "warps",
    "print", "break", "continue", "layout", "use", "shared", "fragment", "local", "global",
})  # fmt: skip
SPECIAL_FUNCTIONS = frozenset({"cast", "bitcast", "select", *FUNCTION_OPS, *(d.name for d in ALL)})
BOOL_CALLS = frozenset({"isnan", "isinf", "isfinite"})

_DEFAULTS: dict[type, DType] = {int: int32, float: float32, bool: boolean}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(\.\w+)*", re.ASCII)


def name_text(name: str) -> str:
    """A name as it stands in the text: bare, or in backticks.

    Raises:
        VerifyError: the name has a backtick or a line break in it, so it has no text form.
    """
    if _IDENTIFIER.fullmatch(name) and name not in RESERVED:
        return name
    if not name or "`" in name or len(name.splitlines()) > 1 or name.splitlines()[0] != name:
        raise VerifyError("a name without a text form", got=repr(name))
    return f"`{name}`"


def title_text(name: str) -> str:
    """The name of a program or a kernel: reserved words are free there."""
    return name if _IDENTIFIER.fullmatch(name) else name_text(name)


def call_dtype(op: str, args: tuple[Expr, ...]) -> DType:
    """The dtype that a call has in the text when none is written."""
    if op in BOOL_CALLS:
        return boolean
    return dtype_of_expr(args[0]) if args else int32


def literal_text(value: float | int | bool) -> str:
    """A Python number as a literal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def const_text(expr: Const) -> str:
    """A literal with its dtype where that is not the default one."""
    text = literal_text(expr.value)
    return text if _DEFAULTS.get(type(expr.value)) == expr.dtype else f"{expr.dtype}({text})"


def format_expr(expr: Expr, above: int = 0) -> str:
    """The text of an expression, in parentheses if it binds more weakly than `above`.

    What is larger than the verifier allows has no text: its size stands for it, for messages.

    Raises:
        VerifyError: an unknown node or operation.
    """
    if (nodes := nodes_of(expr)) > MOST_NODES:
        return f"({nodes} operations and operands)"
    text, strength = _format(expr)
    return f"({text})" if strength < above else text


def _format(expr: Expr) -> tuple[str, int]:
    match expr:
        case Const():
            return const_text(expr), ATOM_PRECEDENCE
        case Var(name=name):
            return name_text(name), ATOM_PRECEDENCE
        case Binary(op=op):
            return _format_binary(expr, op)
        case Unary(op=op, a=a) if op in UNARY_SIGNS:
            return _format_unary(op, a)
        case Cast(a=a, dtype=dtype):
            return f"cast({format_expr(a)}, {dtype})", ATOM_PRECEDENCE
        case Bitcast(a=a, dtype=dtype):
            return f"bitcast({format_expr(a)}, {dtype})", ATOM_PRECEDENCE
        case Select(condition=condition, a=a, b=b):
            return f"select({_list((condition, a, b))})", ATOM_PRECEDENCE
        case Load(buffer=buffer, indices=indices):
            return f"{name_text(buffer.name)}[{_list(indices)}]", ATOM_PRECEDENCE
        case Call(op=op, args=args, dtype=dtype):
            name = f"`{op}`" if op in SPECIAL_FUNCTIONS else name_text(op)
            suffix = "" if dtype == call_dtype(op, args) else f":{dtype}"
            return f"{name}({_list(args)}){suffix}", ATOM_PRECEDENCE
        case _:
            raise VerifyError("an expression without a text form", got=type(expr).__name__)


def _list(exprs: tuple[Expr, ...]) -> str:
    return ", ".join(format_expr(expr) for expr in exprs)


def _format_binary(expr: Binary, op: str) -> tuple[str, int]:
    if op in FUNCTION_OPS:
        return f"{op}({_list((expr.a, expr.b))})", ATOM_PRECEDENCE
    if op not in SIGN_OF_OP:
        raise VerifyError("a binary operation without a text form", got=op)
    sign = SIGN_OF_OP[op]
    strength = PRECEDENCE[sign]
    left = strength + 1 if strength == COMPARISON_PRECEDENCE else strength
    return f"{format_expr(expr.a, left)} {sign} {format_expr(expr.b, strength + 1)}", strength


def _format_unary(op: str, a: Expr) -> tuple[str, int]:
    if op == "not":
        return f"not {format_expr(a, ATOM_PRECEDENCE)}", NOT_PRECEDENCE
    # A sign before a number would be read as part of the literal.
    is_number = isinstance(a, Const) and not isinstance(a.value, bool)
    text = f"({format_expr(a)})" if is_number else format_expr(a, UNARY_PRECEDENCE)
    return f"{UNARY_SIGNS[op]}{text}", UNARY_PRECEDENCE


def format_region(region: Region) -> str:
    """The text of a region: ``A[i:+32, j, :]``."""
    axes = zip(region.starts, region.extents, region.buffer.shape, strict=True)
    return f"{name_text(region.buffer.name)}[{', '.join(_axis(*axis) for axis in axes)}]"


def _axis(start: Expr, extent: Expr | None, size: Expr) -> str:
    if extent is None:
        return format_expr(start)
    if start == Const(0, int32) and extent == size:
        return ":"
    return f"{format_expr(start)}:+{format_expr(extent)}"


def format_operand(value: Expr | Region) -> str:
    """An operand that may be either: regions get a ``&``."""
    return f"&{format_region(value)}" if isinstance(value, Region) else format_expr(value)


def format_var(var: Var, default: DType = int32) -> str:
    """A variable where it is bound: name, dtype if it is not `default`, promises."""
    text = name_text(var.name)
    if var.dtype != default:
        text += f": {var.dtype}"
    return text + promises_text(var)


def promises_text(var: Var) -> str:
    """The promises of a variable, each with a space before it; empty when there are none."""
    text = "" if var.multiple_of == 1 else f" multiple_of {var.multiple_of}"
    if var.lower is not None:
        text += f" lower {var.lower}"
    if var.upper is not None:
        text += f" upper {var.upper}"
    return text


def format_buffer(buffer: Buffer) -> str:
    """A buffer where it is declared, without its scope: ``A: float16[128, n] safe 1.0``."""
    text = f"{name_text(buffer.name)}: {buffer.dtype}[{_list(buffer.shape)}]"
    if buffer.strides is not None:
        text += f" strides [{_list(buffer.strides)}]"
    if repr(buffer.safe_value) != "0":
        text += f" safe {literal_text(buffer.safe_value)}"
    return text
