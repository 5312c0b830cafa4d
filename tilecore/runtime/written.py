"""Which global buffers a program writes."""

from __future__ import annotations

from tilecore.ir.buffers import Scope
from tilecore.ir.program import Program
from tilecore.ir.stmts import Alias
from tilecore.ir.visit import destinations, walk_stmts


def written_buffers(program: Program) -> frozenset[str]:
    """Names of the global buffers that some statement may write, also by a view of them."""
    written: set[str] = set()
    for kernel in program.kernels:
        source_of: dict[str, str] = {}
        for stmt in walk_stmts(kernel.body):
            if isinstance(stmt, Alias):
                source = stmt.source.name
                source_of[stmt.buffer.name] = source_of.get(source, source)
            found = (one.name for one in destinations(stmt) if one.scope is Scope.GLOBAL)
            written.update(source_of.get(name, name) for name in found)
    return frozenset(written)
