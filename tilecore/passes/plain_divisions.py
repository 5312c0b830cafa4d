"""Tell the printer which divisions are plain: ``/`` and ``%`` of numbers that are not negative.

Floor division of possibly negative numbers costs several instructions; most index arithmetic is
provably not negative. ``a // b`` becomes ``lane.div(a, b)`` there, ``a % b`` ``lane.mod(a, b)``.
The last lane-level pass: index arithmetic is not looked into afterwards.
"""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.ir.expr import Binary, Call, Expr
from tilecore.ir.program import Kernel, Program
from tilecore.ir.visit import map_exprs, map_stmts
from tilecore.passes.lane_scope import LANE
from tilecore.passes.scopes import kernel_ranges, per_kernel

_NAMES = {"floordiv": "lane.div", "floormod": "lane.mod"}


def plain_divisions(program: Program, context: Context) -> Program:
    """See the module's text."""

    def visit_kernel(kernel: Kernel) -> Kernel:
        ranges = kernel_ranges(kernel, program.symbols).with_range(LANE, 0, kernel.threads - 1)

        def visit(node: Expr) -> Expr | None:
            if not isinstance(node, Binary) or node.op not in _NAMES or not node.dtype.is_int:
                return None
            if node.dtype.kind == "int":
                low, divisor = ranges.interval(node.a)[0], ranges.interval(node.b)[0]
                if low is None or low < 0 or divisor is None or divisor <= 0:
                    return None
            return Call(_NAMES[node.op], (node.a, node.b), node.dtype)

        body = map_stmts(kernel.body, lambda stmt: map_exprs(stmt, visit))
        return dataclasses.replace(kernel, body=body)

    return per_kernel(program, visit_kernel)
