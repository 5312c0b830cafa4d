"""Which copies for later iterations may be issued under a gemm instead of before it.

    [async.copy ..., async.commit, (nests over registers), gemm]   in one block, no barrier between

The copies then share no memory with the gemm (`insert_barriers` would have separated them), so
their order is free: lane code issues them after the gemm's first slice of k, when the matrix units
have work. Kernels whose fragments leave few registers keep the copies before the gemm, where its
accumulators are not yet alive. `split` finds the pattern at the front of a block.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.buffers import Scope
from tilecore.ir.layout import FragmentLayout
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Block, Gemm, If, Intrinsic, Stmt
from tilecore.ir.visit import buffers_in
from tilecore.passes.accesses import accesses_of
from tilecore.passes.elementwise import as_parallel


@dataclass(frozen=True, slots=True)
class CopiesUnderGemm:
    """The parts of the pattern, and how many statements it takes."""

    copies: Block
    registers_only: Block
    gemm: Gemm
    length: int


CROWDED_REGISTERS = 176
"""32-bit registers of fragments in one lane from which on registers decide the order."""


def is_crowded(kernel: Kernel) -> bool:
    """True when the kernel's fragments leave few registers for anything else."""
    bits = 0
    for buffer in buffers_in(kernel.body):
        layout = kernel.layout_of(buffer)
        if isinstance(layout, FragmentLayout):
            bits += layout.registers * buffer.dtype.bits
    return bits >= 32 * CROWDED_REGISTERS


def split(block: Block) -> CopiesUnderGemm | None:
    """The pattern at the front of `block`, or None."""
    copies: list[Stmt] = []
    nests: list[Stmt] = []
    committed = False
    for position, stmt in enumerate(block):
        if not committed and _is_copy(stmt):
            copies.append(stmt)
        elif copies and not committed and stmt == Intrinsic("async.commit"):
            copies.append(stmt)
            committed = True
        elif committed and isinstance(stmt, Gemm):
            return CopiesUnderGemm(tuple(copies), tuple(nests), stmt, position + 1)
        elif committed and _touches_registers_only(stmt):
            nests.append(stmt)
        else:
            return None
    return None


def _is_copy(stmt: Stmt) -> bool:
    match stmt:
        case Intrinsic(op="async.copy"):
            return True
        case If(then=then, otherwise=()):
            return all(_is_copy(inner) for inner in then)
        case _:
            return False


def _touches_registers_only(stmt: Stmt) -> bool:
    nest = as_parallel(stmt)
    return nest is not None and all(
        access.buffer.scope is Scope.FRAGMENT for access in accesses_of(nest)
    )
