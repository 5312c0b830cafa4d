"""Neighbouring vectors rounded to bfloat16 by one instruction (VCVTNE2PS2BF16).

It costs as much for two vectors as its sibling for one, but takes subnormal numbers for zero. So
it serves only stores to buffers that are read that way (see `readers`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tilecore.ir.stmts import Block, Store
from tilecore.ir.visit import walk_stmts

from .builder import Value
from .expressions import evaluate_unrounded
from .lane_analysis import is_raw_copy
from .memory import resolve
from .state import BlockState

LANES = 16


@dataclass(slots=True)
class Pairs:
    """Stores of one nest that wait for the next vector.

    Attributes:
        names: buffers that the nest writes in one place only, and that are read flushed.
        waiting: by statement, the value (fp32) and its address.
    """

    names: frozenset[str]
    waiting: dict[int, tuple[Value, Value]] = field(default_factory=dict)

    @staticmethod
    def of(s: BlockState, body: Block) -> Pairs | None:
        """The pairs of a nest; None where the CPU or the buffers have none."""
        if not s.flushed or not s.w.module.flushes_bf16 or s.cpu.vector_bits != LANES * 32:
            return None
        stores = Counter(x.buffer.name for x in walk_stmts(body) if isinstance(x, Store))
        names = frozenset(name for name, count in stores.items() if count == 1) & s.flushed
        return Pairs(names) if names else None

    def take(self, s: BlockState, stmt: Store) -> bool:
        """Round and store a statement's value later, with its neighbour's; False: not possible."""
        axis = s.axis
        if stmt.buffer.name not in self.names or axis is None or is_raw_copy(stmt):
            return False
        if axis.lanes != LANES or axis.active is not None:
            return False
        access = resolve(s, stmt.buffer, stmt.indices)
        if access.step != 1 or access.mask is not None:
            return False
        value = s.w.splat(evaluate_unrounded(s, stmt.value, stmt.buffer.dtype), LANES)
        before = self.waiting.pop(id(stmt), None)
        if before is None:
            self.waiting[id(stmt)] = (value, access.pointer)
            return True
        name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
        both = s.w.call(name, f"<{2 * LANES} x bfloat>", [value, before[0]])
        s.w.store(both, before[1])
        return True

    def flush(self, s: BlockState) -> None:
        """Store what has no neighbour, at the end of the turns that are written in a row."""
        for value, pointer in self.waiting.values():
            s.w.store(s.w.cast("fptrunc", value, f"<{LANES} x bfloat>"), pointer)
        self.waiting.clear()
