"""Ask the backend for the layout of every shared buffer (hook ``tilecore_choose_layout``)."""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.hooks.records import LayoutRequest
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import Load, walk
from tilecore.ir.layout import FragmentLayout, Layout
from tilecore.ir.program import Kernel, Program
from tilecore.ir.stmts import Stmt
from tilecore.ir.visit import buffers_in, exprs_of, regions_of, walk_stmts
from tilecore.passes.scopes import per_kernel


def choose_layouts(program: Program, context: Context) -> Program:
    """Fill `Kernel.layouts` for every shared buffer that the author gave none."""

    def visit(kernel: Kernel) -> Kernel:
        layouts: dict[str, Layout | FragmentLayout] = dict(kernel.layouts)
        for buffer in buffers_in(kernel.body):
            if buffer.scope is Scope.SHARED and buffer.name not in layouts:
                request = LayoutRequest(buffer, uses_of(buffer, kernel), kernel, context.is_tight)
                layouts[buffer.name] = context.hooks.call(
                    "tilecore_choose_layout", request=request, target=context.target
                )
        return dataclasses.replace(kernel, layouts=tuple(sorted(layouts.items())))

    return per_kernel(program, visit)


def uses_of(buffer: Buffer, kernel: Kernel) -> tuple[Stmt, ...]:
    """Statements of a kernel that touch `buffer`, in program order."""
    return tuple(stmt for stmt in walk_stmts(kernel.body) if _touches(stmt, buffer))


def _touches(stmt: Stmt, buffer: Buffer) -> bool:
    if any(region.buffer == buffer for region in regions_of(stmt)):
        return True
    if getattr(stmt, "buffer", None) == buffer:
        return True
    return any(
        isinstance(node, Load) and node.buffer == buffer
        for expr in exprs_of(stmt)
        for node in walk(expr)
    )
