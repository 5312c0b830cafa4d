"""Tensors at addresses that the program reads: ``memory.attach(buffer, address)``.

Such a buffer stands among the workspaces of its program, but has no memory of its own: where a
kernel reaches the intrinsic, it begins at `address` (int64, in bytes). Nobody allocates it, and
tensor maps, which are made before a launch, cannot describe it.
"""

from __future__ import annotations

from tilecore.ir.buffers import Buffer, Region
from tilecore.ir.expr import Expr, Var
from tilecore.ir.program import Program
from tilecore.ir.stmts import Block, Intrinsic, Stmt
from tilecore.ir.visit import walk_stmts

ATTACH = "memory.attach"


def attachment(stmt: Stmt) -> tuple[Buffer, Expr] | None:
    """The buffer that a statement attaches and the address where it begins, or None."""
    if not isinstance(stmt, Intrinsic) or stmt.op != ATTACH:
        return None
    region, address = stmt.args
    assert isinstance(region, Region) and isinstance(address, Expr)
    return region.buffer, address


def attached_in(body: Block) -> frozenset[str]:
    """Names of the buffers that a kernel's body attaches."""
    return frozenset(buffer.name for buffer, _ in _attachments(body))


def attached(program: Program) -> frozenset[str]:
    """Names of the workspaces of a program that have no memory of their own."""
    return frozenset().union(*(attached_in(kernel.body) for kernel in program.kernels))


def pointers(program: Program) -> frozenset[str]:
    """Names of the parameters that are addresses: of tensors, or numbers that are addresses."""
    params = {param for param in program.params if isinstance(param, Var)}
    return frozenset(
        address.name
        for kernel in program.kernels
        for _, address in _attachments(kernel.body)
        if isinstance(address, Var) and address in params
    )


def _attachments(body: Block) -> list[tuple[Buffer, Expr]]:
    found = (attachment(stmt) for stmt in walk_stmts(body))
    return [one for one in found if one is not None]


__all__ = ["ATTACH", "attached", "attached_in", "attachment", "pointers"]
