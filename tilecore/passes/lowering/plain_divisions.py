"""Tell the printer which arithmetic of integers needs more, or less, than the plain operator.

Floor division of possibly negative numbers costs several instructions; most index arithmetic is
provably not negative. ``a // b`` becomes ``lane.div(a, b)`` there, ``a % b`` ``lane.mod(a, b)``.

Integers wrap, but compilers of C++ take signed sums and products for exact: a square is not
negative to them, ``a + 1 > a`` always holds. ``a + b`` becomes ``lane.wrapping_add(a, b)`` where
it computes with elements (`Elements`) and may leave its dtype; so do differences, products and
negations. Positions stay plain, whose sums have no meaning beyond their dtype.
The last lane-level pass: arithmetic is not looked into afterwards.
"""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.ir.expr import (
    Binary,
    Call,
    Const,
    Expr,
    Load,
    Unary,
    Var,
    dtype_of_expr,
    rebuild,
    walk,
)
from tilecore.ir.program import Kernel, Program
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import Block, Let, Stmt, Store
from tilecore.ir.visit import map_stmts, map_whole_exprs
from tilecore.passes.lowering.elements import Elements
from tilecore.passes.scopes import kernel_ranges, per_kernel

_DIVISIONS = {"floordiv": "lane.div", "floormod": "lane.mod", "div": "lane.div"}
_WRAPPING = {"add": "lane.wrapping_add", "sub": "lane.wrapping_sub", "mul": "lane.wrapping_mul"}
_NEGATION = "lane.wrapping_neg"
_LARGE = 1 << 16
"""A constant that no position is moved by: products and sums with it are made to wrap."""


def plain_divisions(program: Program, context: Context) -> Program:
    """See the module's text."""

    def visit_kernel(kernel: Kernel) -> Kernel:
        spelling = _Spelling(kernel_ranges(kernel, program.symbols), kernel.body)
        return dataclasses.replace(kernel, body=map_stmts(kernel.body, spelling.statement))

    return per_kernel(program, visit_kernel)


class _Spelling:
    """Rewrites the expressions of one kernel."""

    def __init__(self, ranges: Ranges, body: Block) -> None:
        self.ranges = ranges
        self.elements = Elements(body)
        self.wrapped: set[str] = set()
        """Names whose values are, or come from, sums and products that may wrap."""

    def statement(self, stmt: Stmt) -> Stmt:
        """A statement's own expressions."""
        if isinstance(stmt, Store):
            places = tuple([self.converted(place, True) for place in stmt.indices])
            value = self.converted(stmt.value, False)
            return dataclasses.replace(stmt, indices=places, value=value)
        result = map_whole_exprs(stmt, lambda expr: self.converted(expr, False))
        if isinstance(result, Let) and any(map(self._is_wrapped, walk(result.value))):
            self.wrapped.add(result.var.name)
            self.elements.add(result.var.name)
        return result

    def converted(self, expr: Expr, is_offset: bool) -> Expr:
        """`expr` respelt; it is asked about as it was, whose parts are understood."""
        if not expr.children:
            return expr
        within = is_offset or isinstance(expr, Load)
        children = tuple([self.converted(child, within) for child in expr.children])
        name = self._call(expr, is_offset)
        if name is not None:
            return Call(name, children, dtype_of_expr(expr))
        return rebuild(expr, children) if children != expr.children else expr

    def _call(self, expr: Expr, is_offset: bool) -> str | None:
        match expr:
            case Binary(op="floordiv" | "floormod" | "div" as op) if self._is_plain(expr):
                return _DIVISIONS[op]
            case Binary(op="add" | "sub" | "mul" as op) if not is_offset and self._may_wrap(expr):
                return _WRAPPING[op]
            case Unary(op="neg") if not is_offset and self._may_wrap(expr):
                return _NEGATION
            case _:
                return None

    def _is_plain(self, node: Binary) -> bool:
        """Whether C++'s operator gives what is meant, and every target can compute it."""
        if not node.dtype.is_int or self.ranges.interval(node.b)[0] <= 0:
            return False
        is_kept = node.op == "div" or node.dtype.kind == "uint"
        return is_kept or self.ranges.interval(node.a)[0] >= 0

    def _may_wrap(self, node: Binary | Unary) -> bool:
        """Whether C++ would compute elements in a signed type that they may not fit."""
        dtype = dtype_of_expr(node)
        # Narrower ones are computed in 32 bits, which only products of uint16 leave.
        is_promoted = dtype.bits == 16 and isinstance(node, Binary) and node.op == "mul"
        is_signed = dtype.is_signed and dtype.bits >= 32
        if not dtype.is_int or not (is_signed or is_promoted) or self.ranges.wraps_never(node):
            return False
        return self._computes(node)

    def _computes(self, node: Binary | Unary) -> bool:
        """Whether it is arithmetic of elements, not of positions; see the module's text."""
        if isinstance(node, Unary):
            return self.elements.holds(node.a)
        parts = node.a, node.b
        for one, other in (parts, parts[::-1]):
            if isinstance(one, Const):
                return abs(one.value) >= _LARGE or self.elements.holds(other)
        if node.op == "mul":
            return not any(map(self.ranges.is_index, parts))
        return all(map(self.elements.holds, parts))

    def _is_wrapped(self, expr: Expr) -> bool:
        match expr:
            case Call(op=op):
                return op == _NEGATION or op in _WRAPPING.values()
            case Var(name=name):
                return name in self.wrapped
            case _:
                return False
