"""Dynamic sizes on the host: reading them off shapes, and evaluating expressions over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilecore.errors import LaunchError, UnsupportedError
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Binary, Call, Cast, Const, Expr, Select, Unary, Var, free_vars

Sizes = tuple[int, ...]
"""Values of a program's dynamic sizes, in the order of `Program.symbols`."""

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%",
    "bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "and", "or": "or",
}  # fmt: skip
_PREFIX = {"neg": "-", "bitnot": "~", "not": "not "}


@dataclass(frozen=True, slots=True)
class SizeFunction:
    """Expressions over dynamic sizes, compiled: call with the sizes, get the values."""

    source: str
    function: Callable[..., tuple[int, ...]]

    def __call__(self, sizes: Sizes) -> tuple[int, ...]:
        """The values of the expressions.

        Raises:
            LaunchError: division by zero among the sizes.
        """
        try:
            return self.function(*sizes)
        except ZeroDivisionError as error:
            raise LaunchError(
                "a size expression divides by zero", got=f"{self.source} at sizes {sizes}"
            ) from error


def compile_sizes(expressions: Sequence[Expr], symbols: Sequence[Var]) -> SizeFunction:
    """Compile integer expressions over `symbols` into one Python function.

    Raises:
        UnsupportedError: an expression reads memory, or a variable that is no dynamic size.
    """
    names = {symbol.name: f"s{index}" for index, symbol in enumerate(symbols)}
    values = ", ".join(_python(expression, names) for expression in expressions)
    source = f"lambda {', '.join(names.values())}: ({values}{',' if len(expressions) == 1 else ''})"
    return SizeFunction(source, eval(source, {"min": min, "max": max, "int": int, "abs": abs}))


def _python(expr: Expr, names: dict[str, str]) -> str:
    match expr:
        case Const(value=value):
            return f"({int(value)})"
        case Var(name=name) if name in names:
            return names[name]
        case Binary(op="min" | "max" as op, a=a, b=b):
            return f"{op}({_python(a, names)}, {_python(b, names)})"
        case Binary(op=op, a=a, b=b) if op in _INFIX:
            return f"({_python(a, names)} {_INFIX[op]} {_python(b, names)})"
        case Unary(op=op, a=a) if op in _PREFIX:
            return f"({_PREFIX[op]}{_python(a, names)})"
        case Cast(a=a, dtype=DType(kind="int" | "uint")):
            return f"int({_python(a, names)})"
        case Select(condition=condition, a=a, b=b):
            test = _python(condition, names)
            return f"({_python(a, names)} if {test} else {_python(b, names)})"
        case Call(op="abs", args=(a,)):
            return f"abs({_python(a, names)})"
        case Var(name=name):
            raise UnsupportedError(
                f"{name} is not a dynamic size, so it cannot decide a shape or a grid",
                expected=f"one of {', '.join(names) or '(no dynamic sizes)'}",
            )
        case _:
            raise UnsupportedError(
                f"a size is computed by {type(expr).__name__}, which the host cannot evaluate",
                got=", ".join(sorted(var.name for var in free_vars(expr))) or expr,
            )
