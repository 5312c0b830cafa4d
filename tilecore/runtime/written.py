"""Which global buffers a program writes."""

from __future__ import annotations

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.program import Program
from tilecore.ir.stmts import Atomic, Copy, Fill, Gemm, Intrinsic, Reduce, Scan, Stmt, Store
from tilecore.ir.visit import walk_stmts


def written_buffers(program: Program) -> frozenset[str]:
    """Names of the global buffers that some statement of the program may write."""
    return frozenset(
        buffer.name
        for kernel in program.kernels
        for stmt in walk_stmts(kernel.body)
        for buffer in _destinations(stmt)
        if buffer.scope is Scope.GLOBAL
    )


def _destinations(stmt: Stmt) -> tuple[Buffer, ...]:
    match stmt:
        case Store(buffer=buffer):
            return (buffer,)
        case Atomic() | Copy() | Fill() | Reduce() | Scan():
            return (stmt.dst.buffer,)
        case Gemm():
            return (stmt.c.buffer,)
        case Intrinsic(args=args):
            # The first argument of a copying intrinsic is its source; the others may be written.
            return tuple(arg.buffer for arg in args[1:] if isinstance(arg, Region))
        case _:
            return ()
