"""Which global buffers a program writes."""

from __future__ import annotations

from tilecore.ir.buffers import Scope
from tilecore.ir.program import Program
from tilecore.ir.visit import destinations, sources_of_views, walk_stmts


def written_buffers(program: Program) -> frozenset[str]:
    """Names of the global buffers that some statement may write, also by a view of them."""
    written: set[str] = set()
    for kernel in program.kernels:
        sources = sources_of_views(kernel.body)
        for stmt in walk_stmts(kernel.body):
            found = (one for one in destinations(stmt) if one.scope is Scope.GLOBAL)
            written.update(sources.get(one.name, one).name for one in found)
    return frozenset(written)
