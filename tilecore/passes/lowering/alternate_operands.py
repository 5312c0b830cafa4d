"""A gemm on registers whose operand registers come in two sets: loads run under the matrix work.

    one set                               two sets
    for each slice t of k:                set 0 <- slice 0
      set 0 <- slice t                    for each slice t:
      multiply with set 0                   set (t + 1) % 2 <- slice t + 1
                                            multiply with set t % 2

For atoms that ask for it (`MmaAtom.operand_sets`): where lanes load operands for themselves, the
next slice's loads are then under way while the matrix units work on this one. A compiler would move
them back to their use, so both are kept in order; and a warp with matrix work goes before those
that load. Operands that are fragments in the atom's dtype have no sets.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Expr, binary, const
from tilecore.ir.stmts import Allocate, Block, For, Gemm, Intrinsic, LoopKind, Stmt
from tilecore.passes.contraction import TiledMma
from tilecore.passes.lowering.lane_scope import LaneScope
from tilecore.passes.lowering.operand_loads import Operand, fragment_operand, is_in_place, unrolled

IN_ORDER = Intrinsic("schedule.in_order")
URGENT, CALM = (Intrinsic("warp.priority", (const(level),)) for level in (1, 0))

MOST_SLICES = 16
"""More are left to one set: the text would grow without end."""


def is_alternating(tiled: TiledMma, a: Operand, b: Operand) -> bool:
    """True when the gemm's operands are to be loaded into two sets in turn."""
    from_memory = Scope.SHARED in (a.region.buffer.scope, b.region.buffer.scope)
    return tiled.atom.operand_sets == 2 and 2 <= tiled.tiles_k <= MOST_SLICES and from_memory


@dataclass(slots=True)
class Alternation:
    """Lowers one gemm; `fill` loads the registers of one operand for one slice."""

    gemm: Gemm
    tiled: TiledMma
    operands: tuple[Operand, Operand]
    scope: LaneScope
    fill: object

    def run(self) -> Block:
        """The whole gemm on its accumulator."""
        sets = tuple(tuple(self._registers(o) for o in self.operands) for _ in range(2))
        declared = {r.name: r for pair in sets for r in pair if r is not None}
        result: list[Stmt] = [Allocate(r) for r in declared.values()]
        result += self._load(0, sets[0])
        last = self.tiled.tiles_k - 1
        for slice_ in range(last + 1):
            if slice_ < last:
                result += self._load(slice_ + 1, sets[(slice_ + 1) % 2])
            result += (IN_ORDER, URGENT, *self._multiply(slice_, sets[slice_ % 2]), CALM, IN_ORDER)
        return tuple(result)

    def _registers(self, operand: Operand) -> Buffer | None:
        if is_in_place(operand, self.scope):
            return None
        buffer = operand.region.buffer
        count = operand.tiles * operand.atom.registers
        return self.scope.names.buffer(f"{buffer.name}_regs", (count,), operand.dtype, Scope.LOCAL)

    def _load(self, slice_: int, registers: tuple[Buffer | None, ...]) -> Block:
        k = self.scope.var("kk", slice_, slice_)
        body: list[Stmt] = []
        for operand, into in zip(self.operands, registers, strict=True):
            if into is not None:
                body += self.fill(operand, into, k, self.tiled, self.scope)  # type: ignore[operator]
        return (For(k, const(slice_), const(1), const(1), tuple(body), LoopKind.UNROLL),)

    def _multiply(self, slice_: int, registers: tuple[Buffer | None, ...]) -> Block:
        scope, tiled, atom = self.scope, self.tiled, self.tiled.atom
        tm = scope.var("tm", 0, tiled.tiles_m - 1)
        tn = scope.var("tn", 0, tiled.tiles_n - 1)
        tile = binary("add", binary("mul", tm, const(tiled.tiles_n)), tn)
        flat = scope.lane_buffer(self.gemm.c.buffer)
        a, b = (
            self._at(operand, into, slice_, index)
            for operand, into, index in zip(self.operands, registers, (tm, tn), strict=True)
        )
        args = (_piece(flat, tile, atom.c.registers), a, b)
        mma = Intrinsic(f"mma.{atom.name}", args, (), self.gemm.loc)
        return (unrolled(tm, tiled.tiles_m, (unrolled(tn, tiled.tiles_n, (mma,)),)),)

    def _at(self, operand: Operand, into: Buffer | None, slice_: int, tile: Expr) -> Region:
        if into is not None:
            return _piece(into, tile, operand.atom.registers)
        return fragment_operand(operand, const(slice_), self.tiled.tiles_k, tile, self.scope)


def _piece(buffer: Buffer, number: Expr, count: int) -> Region:
    return Region(buffer, (binary("mul", number, const(count)),), (const(count),))
