"""Text to expressions, regions and declarations; the form is described in ``expr_text.py``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from tilecore.errors import TilecoreError
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import DType, boolean, dtype_of, float32, int32
from tilecore.ir.expr import (
    COMPARISON,
    LOGICAL,
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
    const,
    dtype_of_expr,
)
from tilecore.ir.expr_text import (
    COMPARISON_PRECEDENCE,
    FUNCTION_OPS,
    NOT_PRECEDENCE,
    OP_OF_SIGN,
    PRECEDENCE,
    RESERVED,
    SPECIAL_FUNCTIONS,
    UNARY_PRECEDENCE,
    call_dtype,
)
from tilecore.ir.lexer import TokenStream

_Item = TypeVar("_Item")
_SPECIAL_NUMBERS = {"inf": math.inf, "nan": math.nan}
_LITERAL_WORDS = ("true", "false", *_SPECIAL_NUMBERS)


class ExprParser(TokenStream):
    """A token stream that reads expressions.

    Attributes:
        names: what is in scope at the current position.
    """

    def __init__(self, text: str, filename: str, names: dict[str, Var | Buffer]) -> None:
        super().__init__(text, filename)
        self.names = names

    # --- names ---------------------------------------------------------------------------------

    def name(self) -> str:
        """Take a name, bare or in backticks.

        Raises:
            ParseError: no name, or a bare reserved word.
        """
        token = self.expect_kind("name", "quoted")
        if token.kind == "name" and token.text in RESERVED:
            raise self.error("a reserved word as a name", f"`{token.text}` in backticks", token)
        return token.text

    def declare(self, item: Var | Buffer) -> None:
        """Bring a variable or a buffer into scope."""
        self.names[item.name] = item

    def buffer(self) -> Buffer:
        """Take the name of a buffer in scope."""
        token = self.token
        item = self.names.get(self.name())
        if not isinstance(item, Buffer):
            raise self.error("not a buffer in scope", "a declared buffer", token)
        return item

    def dtype(self) -> DType:
        """Take the name of a dtype."""
        token = self.token
        try:
            return dtype_of(self.word())
        except TilecoreError as error:
            raise self.error(error.reason, "a dtype", token) from None

    def sequence(self, item: Callable[[], _Item], opening: str, closing: str) -> tuple[_Item, ...]:
        """Take a comma-separated list in brackets; it may be empty."""
        self.expect(opening)
        items: list[_Item] = []
        while not self.at(closing):
            items.append(item())
            if not self.accept(","):
                break
        self.expect(closing)
        return tuple(items)

    # --- declarations --------------------------------------------------------------------------

    def promises(self, name: str, dtype: DType) -> Var:
        """Take the promises of a variable whose name and dtype are known already."""
        multiple, lower, upper = 1, None, None
        if self.accept("multiple_of"):
            multiple = self.integer()
        if self.accept("lower"):
            lower = self.integer()
        if self.accept("upper"):
            upper = self.integer()
        return Var(name, dtype, multiple, lower, upper)

    def bound_var(self, default: DType = int32) -> Var:
        """Take a variable where it is bound. It is not declared yet."""
        name = self.name()
        dtype = self.dtype() if self.accept(":") else default
        return self.promises(name, dtype)

    def buffer_type(self, name: str, dtype: DType, scope: Scope) -> Buffer:
        """Take the rest of a buffer's declaration, from the shape on, and declare it."""
        loc = self.loc
        shape = self.sequence(self.expr, "[", "]")
        strides = self.sequence(self.expr, "[", "]") if self.accept("strides") else None
        safe = self.number() if self.accept("safe") else 0
        buffer = Buffer(name, shape, dtype, scope, strides, safe, loc)
        self.declare(buffer)
        return buffer

    def number(self) -> int | float:
        """Take a number literal: integer, float, inf or nan, with an optional minus sign."""
        negative = self.accept("-")
        token = self.next()
        if token.kind == "number":
            value = int(token.text) if token.text.isdigit() else float(token.text)
        elif token.kind == "name" and token.text in _SPECIAL_NUMBERS:
            value = _SPECIAL_NUMBERS[token.text]
        else:
            raise self.error("unexpected text", "a number", token)
        return -value if negative else value

    # --- expressions ---------------------------------------------------------------------------

    def expr(self, weakest: int = 0) -> Expr:
        """Take an expression whose infix signs bind at least as strongly as `weakest`.

        Raises:
            ParseError: the text is no expression, or names something undeclared.
        """
        if self.at("not"):
            if weakest > NOT_PRECEDENCE:
                raise self.error("'not' needs parentheses here", "an operand")
            self.next()
            left: Expr = Unary("not", self.expr(NOT_PRECEDENCE), boolean)
        else:
            left = self.unary()
        while (strength := self._infix_strength()) >= weakest and strength:
            sign = self.next().text
            left = _binary(OP_OF_SIGN[sign], left, self.expr(strength + 1))
            if strength == COMPARISON_PRECEDENCE == self._infix_strength():
                raise self.error("comparisons do not chain", "parentheses")
        return left

    def _infix_strength(self) -> int:
        """How strongly the next token binds as an infix sign; 0 when it is none."""
        return PRECEDENCE.get(self.token.text, 0) if self.token.kind in ("sign", "name") else 0

    def unary(self) -> Expr:
        """Take an operand with its prefix signs."""
        if self.at("-"):
            following = self.tokens[self.position + 1]
            is_special = following.kind == "name" and following.text in _SPECIAL_NUMBERS
            if following.kind == "number" or is_special:
                return self.literal()
            self.next()
            operand = self.expr(UNARY_PRECEDENCE)
            return Unary("neg", operand, dtype_of_expr(operand))
        if self.accept("~"):
            operand = self.expr(UNARY_PRECEDENCE)
            return Unary("bitnot", operand, dtype_of_expr(operand))
        return self.primary()

    def literal(self, dtype: DType | None = None) -> Const:
        """Take a literal; `dtype` overrides the one that its form implies."""
        if self.at("true") or self.at("false"):
            return const(self.next().text == "true", dtype or boolean)
        token = self.token
        value = self.number()
        if dtype is not None and not dtype.is_float and isinstance(value, float):
            raise self.error("a literal that is no integer", f"a literal of {dtype}", token)
        return const(value, dtype or (float32 if isinstance(value, float) else int32))

    def primary(self) -> Expr:
        """Take a literal, a name, a load, a call or an expression in parentheses."""
        token = self.token
        if self.accept("("):
            inner = self.expr()
            self.expect(")")
            return inner
        is_literal_word = token.kind == "name" and token.text in _LITERAL_WORDS
        if token.kind == "number" or is_literal_word:
            return self.literal()
        if token.kind not in ("name", "quoted"):
            raise self.error("unexpected text", "an expression")
        following = self.tokens[self.position + 1]
        if following.kind == "sign" and following.text == "(":
            return self.call()
        if following.kind == "sign" and following.text == "[":
            return Load(self.buffer(), self.sequence(self.expr, "[", "]"))
        item = self.names.get(self.name())
        if not isinstance(item, Var):
            raise self.error("not a variable in scope", "a declared variable", token)
        return item

    def call(self) -> Expr:
        """Take ``name(...)``."""
        if self.token.kind == "name" and self.token.text in SPECIAL_FUNCTIONS:
            return self.special(self.next().text)
        op = self.name()
        args = self.sequence(self.expr, "(", ")")
        return Call(op, args, self.dtype() if self.accept(":") else call_dtype(op, args))

    def special(self, name: str) -> Expr:
        """Take the arguments of a function that has a node of its own."""
        self.expect("(")
        if name in ("cast", "bitcast"):
            operand = self.expr()
            self.expect(",")
            dtype = self.dtype()
            result: Expr = Cast(operand, dtype) if name == "cast" else Bitcast(operand, dtype)
        elif name == "select":
            condition, a, b = self._arguments(3)
            result = Select(condition, a, b, dtype_of_expr(a))
        elif name in FUNCTION_OPS:
            result = _binary(name, *self._arguments(2))
        else:
            result = self.literal(dtype_of(name))
        self.expect(")")
        return result

    def _arguments(self, count: int) -> list[Expr]:
        args = [self.expr()]
        while len(args) < count:
            self.expect(",")
            args.append(self.expr())
        return args

    # --- regions -------------------------------------------------------------------------------

    def region(self) -> Region:
        """Take a region: ``A[i:+32, j, :]``."""
        token = self.token
        buffer = self.buffer()
        axis = iter(range(buffer.rank))
        pieces = self.sequence(lambda: self._axis(buffer, next(axis, -1)), "[", "]")
        if len(pieces) != buffer.rank:
            raise self.error("a region of the wrong rank", f"{buffer.rank} axes", token)
        return Region(buffer, tuple(p[0] for p in pieces), tuple(p[1] for p in pieces))

    def _axis(self, buffer: Buffer, axis: int) -> tuple[Expr, Expr | None]:
        if axis < 0:
            raise self.error("a region of the wrong rank", f"{buffer.rank} axes")
        if self.accept(":"):
            return const(0), buffer.shape[axis]
        start = self.expr()
        return start, self.expr() if self.accept(":+") else None

    def operand(self) -> Expr | Region:
        """Take an expression, or a region with a ``&`` before it."""
        return self.region() if self.accept("&") else self.expr()


def _binary(op: str, a: Expr, b: Expr) -> Binary:
    """The node as written: nothing is folded, so that the text is what it says."""
    return Binary(op, a, b, boolean if op in COMPARISON or op in LOGICAL else dtype_of_expr(a))
