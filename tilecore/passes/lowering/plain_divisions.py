"""Tell the printer which divisions are plain: ``/`` and ``%`` of numbers that are not negative.

Floor division of possibly negative numbers costs several instructions; most index arithmetic is
provably not negative. ``a // b`` becomes ``lane.div(a, b)`` there, ``a % b`` ``lane.mod(a, b)``.
The last lane-level pass: index arithmetic is not looked into afterwards.
"""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.ir.expr import Binary, Call, Expr, rebuild
from tilecore.ir.program import Kernel, Program
from tilecore.ir.visit import map_stmts, map_whole_exprs
from tilecore.passes.scopes import kernel_ranges, per_kernel

_NAMES = {"floordiv": "lane.div", "floormod": "lane.mod"}


def plain_divisions(program: Program, context: Context) -> Program:
    """See the module's text."""

    def visit_kernel(kernel: Kernel) -> Kernel:
        ranges = kernel_ranges(kernel, program.symbols)

        def is_plain(node: Expr) -> bool:
            if not isinstance(node, Binary) or node.op not in _NAMES or not node.dtype.is_int:
                return False
            if node.dtype.kind == "uint":
                return True
            return ranges.interval(node.a)[0] >= 0 and ranges.interval(node.b)[0] > 0

        def convert(expr: Expr) -> Expr:
            if not expr.children:
                return expr
            children = tuple([convert(child) for child in expr.children])
            if is_plain(expr):  # asked of the expression as it was, whose parts are understood
                assert isinstance(expr, Binary)
                return Call(_NAMES[expr.op], children, expr.dtype)
            return rebuild(expr, children) if children != expr.children else expr

        body = map_stmts(kernel.body, lambda stmt: map_whole_exprs(stmt, convert))
        return dataclasses.replace(kernel, body=body)

    return per_kernel(program, visit_kernel)
