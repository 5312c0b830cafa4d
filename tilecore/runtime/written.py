"""Which global buffers a program writes."""

from __future__ import annotations

from tilecore.ir.buffers import Scope
from tilecore.ir.program import Program
from tilecore.ir.visit import destinations, walk_stmts


def written_buffers(program: Program) -> frozenset[str]:
    """Names of the global buffers that some statement of the program may write."""
    return frozenset(
        buffer.name
        for kernel in program.kernels
        for stmt in walk_stmts(kernel.body)
        for buffer in destinations(stmt)
        if buffer.scope is Scope.GLOBAL
    )
