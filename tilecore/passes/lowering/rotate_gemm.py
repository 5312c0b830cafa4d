"""Let a pipelined gemm loop load an iteration's first operands under the last one's matrix work.

    before                                   after (two register sets; T slices of k)
    for k: wait; barrier                     wait; barrier; set 0 <- slice 0 of iteration 0
           copies for k + d                  for k: for each slice t:
           for each slice t:                          set (t + 1) % 2 <- slice t + 1
             set 0 <- slice t; multiply                 (the last: wait; barrier; slice 0 of k + 1)
                                                      multiply with set t % 2
                                                      (the first: copies for k + d)

The matrix units then have work while a block meets at its barrier and loads its first operands.
A slot is rewritten in iteration k only after the barrier in iteration k - 1 that follows its last
load, as before. Done where both operands come from shared memory, T is even, and registers suffice.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import FALSE, Const, Expr, Var, binary, const, substitute
from tilecore.ir.stmts import Allocate, Block, For, Gemm, If, Intrinsic, LoopKind, Stmt
from tilecore.passes.contraction import TiledMma, select_atom, tile_mma
from tilecore.passes.insert_barriers import BARRIER
from tilecore.passes.lowering import copies_under_gemm
from tilecore.passes.lowering.lane_nest import unrolled
from tilecore.passes.lowering.lane_scope import LaneScope
from tilecore.passes.lowering.lower_contraction import fill_registers, operands_of
from tilecore.passes.lowering.operand_loads import Operand

_MOST_REGISTERS = 208
"""32-bit registers for accumulators and two operand sets; the rest is for addresses."""


@dataclass(frozen=True, slots=True)
class GemmLoop:
    """The parts of a loop over wait, barrier, copies and one gemm."""

    wait: Intrinsic
    copies: Block
    gemm: Gemm


def split(loop: For) -> GemmLoop | None:
    """The parts of `loop` if it has this form and at least one group stays in flight."""
    body = loop.body
    if loop.kind is not LoopKind.SERIAL or len(body) < 4 or loop.step != const(1):
        return None
    wait, barrier = body[0], body[1]
    if not isinstance(wait, Intrinsic) or wait.op != "async.wait" or barrier != BARRIER:
        return None
    if not isinstance(wait.args[0], Const) or int(wait.args[0].value) < 1:
        return None
    found = copies_under_gemm.split(body[2:])
    if found is None or found.length != len(body) - 2 or found.registers_only:
        return None
    return GemmLoop(wait, found.copies, found.gemm)


def plan(parts: GemmLoop, scope: LaneScope) -> TiledMma | None:
    """The gemm's tiling if the loop can be rotated."""
    gemm = parts.gemm
    atom = select_atom(gemm, scope.threads, scope.context)
    if atom is None or atom.a is None or atom.b is None or gemm.clear_accum != FALSE:
        return None
    if {gemm.a.buffer.scope, gemm.b.buffer.scope} != {Scope.SHARED}:
        return None
    tiled = tile_mma(gemm, atom, scope.threads)
    if tiled.tiles_k % 2:
        return None
    operands = tiled.tiles_m * atom.a.registers + tiled.tiles_n * atom.b.registers
    bits = tiled.tiles_m * tiled.tiles_n * atom.c.registers * atom.c_dtype.bits
    bits += 2 * operands * (atom.register_dtype or atom.a_dtype).bits
    return tiled if bits <= 32 * _MOST_REGISTERS else None


def lower_rotated(
    loop: For, bounds: tuple[Expr, Expr], parts: GemmLoop, copies: Block, scope: LaneScope
) -> Block | None:
    """Lower the loop, whose lowered bounds and copies are given; None when it cannot be rotated."""
    tiled = plan(parts, scope)
    if tiled is None or loop.var.dtype != int32:
        return None
    return _Rotation(loop, bounds, parts, copies, tiled, scope).run()


class _Rotation:
    def __init__(
        self,
        loop: For,
        bounds: tuple[Expr, Expr],
        parts: GemmLoop,
        copies: Block,
        tiled: TiledMma,
        scope: LaneScope,
    ) -> None:
        self.loop = loop
        self.start, self.count = bounds
        self.parts = parts
        self.copies = copies
        self.tiled = tiled
        self.scope = scope
        self.operands = operands_of(parts.gemm, tiled, scope)
        self.sets = tuple(tuple(self.registers(o) for o in self.operands) for _ in range(2))

    def registers(self, operand: Operand) -> Buffer:
        count = operand.tiles * operand.atom.registers
        base = f"{operand.region.buffer.name}_regs"
        return self.scope.names.buffer(base, (count,), operand.dtype, Scope.LOCAL)

    def run(self) -> Block:
        end = binary("add", self.start, self.count)
        following = binary("add", self.loop.var, const(1))
        body: list[Stmt] = []
        last = self.tiled.tiles_k - 1
        for slice_ in range(self.tiled.tiles_k):
            if slice_ < last:
                body += self.fill(slice_ + 1, self.loop.var)
            else:
                ready = (self.parts.wait, BARRIER, *self.fill(0, following))
                body.append(If(binary("lt", following, end), ready))
            body += self.multiply(slice_)
            if slice_ == 0:
                body += self.copies
        declared = tuple(Allocate(registers) for pair in self.sets for registers in pair)
        new = dataclasses.replace(
            self.loop, start=self.start, extent=self.count, body=tuple(body), pipeline=None
        )
        whole: Block = (self.parts.wait, BARRIER, *self.fill(0, self.start), new)
        some = binary("lt", const(0), self.count)
        if not self.scope.ranges.proves(some):
            whole = (If(some, whole),)
        return (*declared, *whole)

    def fill(self, slice_: int, iteration: Expr) -> Block:
        """Load one slice of k of an iteration into its register set."""
        k = self.scope.var("kk", slice_, slice_)
        result: list[Stmt] = []
        for operand, registers in zip(self.operands, self.sets[slice_ % 2], strict=True):
            region = operand.region
            starts = tuple(substitute(s, {self.loop.var: iteration}) for s in region.starts)
            there = Region(region.buffer, starts, region.extents)
            moved = dataclasses.replace(operand, region=there)
            result += fill_registers(moved, registers, k, self.tiled, self.scope)
        return (For(k, const(slice_), const(1), const(1), tuple(result), LoopKind.UNROLL),)

    def multiply(self, slice_: int) -> Block:
        """All atoms of one slice of k."""
        scope, tiled, atom = self.scope, self.tiled, self.tiled.atom
        a_regs, b_regs = self.sets[slice_ % 2]
        tm = scope.var("tm", 0, tiled.tiles_m - 1)
        tn = scope.var("tn", 0, tiled.tiles_n - 1)
        tile = binary("add", binary("mul", tm, const(tiled.tiles_n)), tn)
        assert atom.a is not None and atom.b is not None
        mma = Intrinsic(
            f"mma.{atom.name}",
            (
                _piece(scope.lane_buffer(self.parts.gemm.c.buffer), tile, atom.c.registers),
                _piece(a_regs, tm, atom.a.registers),
                _piece(b_regs, tn, atom.b.registers),
            ),
            (),
            self.parts.gemm.loc,
        )
        return (unrolled(tm, tiled.tiles_m, (unrolled(tn, tiled.tiles_n, (mma,)),)),)


def _piece(buffer: Buffer, index: Expr | Var, count: int) -> Region:
    return Region(buffer, (binary("mul", index, const(count)),), (const(count),))
