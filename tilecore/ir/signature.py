"""What a compiled program is called with: one flat order that all backends share."""

from __future__ import annotations

from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Expr, Load, Var, mentioned
from tilecore.ir.program import Kernel, Program
from tilecore.ir.visit import buffers_in, exprs_of, walk_stmts

Argument = Buffer | Var
"""A pointer to a global buffer's first element, or a scalar of the variable's dtype."""


def program_arguments(program: Program) -> tuple[Argument, ...]:
    """Flat arguments of a launcher: parameters in call order, workspaces, dynamic sizes."""
    return (*program.params, *program.workspaces, *program.symbols)


def kernel_arguments(program: Program, kernel: Kernel) -> tuple[Argument, ...]:
    """Those of `program_arguments` that `kernel` uses, in the same order.

    A dynamic size that occurs only in a used buffer's shape or strides counts as used: bounds
    checks and offsets need it.
    """
    used_buffers = {buffer.name: buffer for buffer in buffers_in(kernel.body)}
    used_vars: set[str] = set()

    def note(expr: Expr) -> None:
        for node in mentioned(expr):
            if isinstance(node, Var):
                used_vars.add(node.name)
            elif isinstance(node, Load):
                used_buffers.setdefault(node.buffer.name, node.buffer)

    for stmt in walk_stmts(kernel.body):
        for expr in exprs_of(stmt):
            note(expr)
    for extent in kernel.grid:
        note(extent)
    for buffer in used_buffers.values():
        for expr in (*buffer.shape, *(buffer.strides or ())):
            note(expr)
    return tuple(
        argument
        for argument in program_arguments(program)
        if argument.name in (used_buffers if isinstance(argument, Buffer) else used_vars)
    )
