"""How many wavefronts a SIMD should hold: planned before compiling, so that registers follow it.

The compiler does not know a launch's dynamic LDS. Told nothing, it saves registers for occupancies
that LDS forbids, and keeps too little under way. So a kernel with matrix instructions is compiled
for what LDS and its fragments allow; the author's ``min_blocks_per_sm`` comes first.
"""

from __future__ import annotations

from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import Const
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Allocate, Intrinsic
from tilecore.ir.visit import walk_stmts

from .resources import LDS_BYTES, SIMDS, VECTOR_REGISTERS

LANES = 64
OWN_REGISTERS = 40
"""Addresses, the loop and what the compiler keeps under way, besides the kernel's own arrays."""
ENOUGH_WAVES = 4
"""More hide nothing further where matrix instructions bound the kernel."""


def planned_blocks(kernel: Kernel) -> int:
    """Workgroups that one compute unit should hold; 0 is no wish.

    Args:
        kernel: at the lane level, with its shared memory planned.
    """
    hints = dict(kernel.hints)
    asked = int(hints.get("min_blocks_per_sm", 0) or 0)
    if asked or not uses_mfma(kernel):
        return asked
    waves = -(-kernel.threads // LANES)
    by_registers = VECTOR_REGISTERS // max(1, array_registers(kernel) + OWN_REGISTERS)
    by_waves = min(ENOUGH_WAVES, max(1, by_registers)) * SIMDS // waves
    smem_bytes = int(hints.get("smem_bytes", 0) or 0)
    by_lds = LDS_BYTES // smem_bytes if smem_bytes else by_waves
    return max(1, min(by_waves, by_lds))


def uses_mfma(kernel: Kernel) -> bool:
    """True when the kernel has matrix instructions."""
    return any(
        isinstance(stmt, Intrinsic) and stmt.op.startswith("mma.")
        for stmt in walk_stmts(kernel.body)
    )


def array_registers(kernel: Kernel) -> int:
    """32-bit registers of one lane that the kernel's arrays take if all live at once."""
    sizes: dict[str, int] = {}
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, Allocate) and stmt.buffer.scope is Scope.LOCAL:
            sizes[stmt.buffer.name] = -(-_elements(stmt.buffer) * stmt.buffer.dtype.bits // 32)
    return sum(sizes.values())


def _elements(buffer: Buffer) -> int:
    total = 1
    for extent in buffer.shape:
        total *= int(extent.value) if isinstance(extent, Const) else 1
    return total
