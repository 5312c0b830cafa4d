"""Which global buffers a kernel's lanes and its copy engine read and write."""

from __future__ import annotations

from tilecore.ir.buffers import Region
from tilecore.ir.expr import Load, mentioned
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Atomic, Intrinsic, Store
from tilecore.ir.visit import exprs_of, walk_stmts

_MOVES = ("lane.move", "lane.move_bounded")


def written_by(kernel: Kernel) -> set[str]:
    """Names of the global buffers that a kernel's lanes write."""
    found: set[str] = set()
    for stmt in walk_stmts(kernel.body):
        match stmt:
            case Store(buffer=buffer):
                found.add(buffer.name)
            case Atomic(dst=dst):
                found.add(dst.buffer.name)
            case Intrinsic(op=op, args=args) if op != "async.copy":
                regions = [arg for arg in args if isinstance(arg, Region)]
                found |= {region.buffer.name for region in regions[op in _MOVES :]}
            case _:
                pass
    return found


def read_by(kernel: Kernel) -> set[str]:
    """Names of the buffers that a kernel's lanes read, or may read."""
    found: set[str] = set()
    for stmt in walk_stmts(kernel.body):
        for expr in exprs_of(stmt):
            found |= {node.buffer.name for node in mentioned(expr) if isinstance(node, Load)}
        if isinstance(stmt, Atomic):
            found.add(stmt.dst.buffer.name)
        if isinstance(stmt, Intrinsic):
            regions = [arg for arg in stmt.args if isinstance(arg, Region)]
            sources = regions[:1] if stmt.op in (*_MOVES, "async.copy") else regions
            found |= {region.buffer.name for region in sources}
    return found


def stored_in_bulk(kernel: Kernel) -> set[str]:
    """Names of the global buffers that a kernel writes by the copy engine."""
    return {
        str(dict(stmt.hints)["tensor"])
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, Intrinsic) and stmt.op.startswith("bulk.store")
    }
