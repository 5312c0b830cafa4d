"""Tensors at addresses that the program reads: ``memory.attach(buffer, address)``.

Such a buffer stands among the workspaces of its program, but has no memory of its own: where a
kernel reaches the intrinsic, it begins at `address` (int64, in bytes). Nobody allocates it, and
tensor maps, which are made before a launch, cannot describe it.
"""

from __future__ import annotations

from tilecore.ir.buffers import Region
from tilecore.ir.expr import Var
from tilecore.ir.program import Program
from tilecore.ir.stmts import Block, Intrinsic
from tilecore.ir.visit import walk_stmts

ATTACH = "memory.attach"


def attached_in(body: Block) -> frozenset[str]:
    """Names of the buffers that a kernel's body attaches."""
    return frozenset(
        stmt.args[0].buffer.name
        for stmt in walk_stmts(body)
        if isinstance(stmt, Intrinsic) and stmt.op == ATTACH and isinstance(stmt.args[0], Region)
    )


def attached(program: Program) -> frozenset[str]:
    """Names of the workspaces of a program that have no memory of their own."""
    return frozenset().union(*(attached_in(kernel.body) for kernel in program.kernels))


def pointers(program: Program) -> frozenset[str]:
    """Names of the parameters that are addresses: of tensors, or numbers that are addresses."""
    params = {param for param in program.params if isinstance(param, Var)}
    return frozenset(
        stmt.args[1].name
        for kernel in program.kernels
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, Intrinsic) and stmt.op == ATTACH
        if isinstance(stmt.args[1], Var) and stmt.args[1] in params
    )


__all__ = ["ATTACH", "attached", "attached_in", "pointers"]
