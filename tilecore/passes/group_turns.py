"""Two groups of lanes start their contractions in turn.

Where every step uses up its sums, a group's matrix work and its work on the sums exclude each
other. Two groups that wait for the same operands would do both at the same time; in turn, one works
on its sums while the matrix units have the other's contraction:

    wait for turn u; start contraction u; hand the turn over; wait for the contraction; use its sums

A turn is a transaction barrier a group, on which the other group's warps arrive.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import boolean, int32, uint64
from tilecore.ir.expr import TRUE, Call, Expr, Var, binary, const
from tilecore.ir.stmts import Allocate, For, Gemm, If, Intrinsic, Let, Stmt
from tilecore.passes.consumer_schedule import RunsBeside, asynchronous, wait_for
from tilecore.passes.masks import group_number
from tilecore.passes.scopes import Names

GROUPS = 2


@dataclass(frozen=True, slots=True)
class Turns:
    """The barriers of two groups' turns.

    Attributes:
        barriers: one a group.
        group: number of the lane's group.
        lanes: of a group.
        each_step: contractions of one step.
    """

    barriers: Buffer
    group: Var
    lanes: int
    each_step: int

    def setup(self, warp_lanes: int) -> list[Stmt]:
        """The barriers and their first values."""
        warps = const(self.lanes // warp_lanes)
        inits = [Intrinsic("barrier.init", (self._at(const(k)), warps)) for k in range(GROUPS)]
        return [Allocate(self.barriers), *inits]

    def define(self) -> Stmt:
        """The lane's group."""
        return Let(self.group, group_number(self.lanes))

    def started(self, gemm: Gemm, step: Expr, number: int) -> list[Stmt]:
        """A contraction, number `number` of a step, when it is the group's turn; it is awaited."""
        unit = binary("add", binary("mul", step, const(self.each_step)), const(number))
        parity = binary(
            "bitand", binary("add", binary("add", unit, self.group), const(1)), const(1)
        )
        other = self._at(binary("sub", const(1), self.group))
        hand_over = Intrinsic("barrier.arrive", (other,))
        return [
            Intrinsic("barrier.wait", (self._at(self.group), parity)),
            asynchronous(gemm),
            If(Call("warp.first_lane", (), boolean), (hand_over,)),
            wait_for(0, gemm),
        ]

    def _at(self, group: Expr) -> Region:
        return Region(self.barriers, (group,), (None,))


def turns_of(
    loop: For, lanes: int, threads: int, runs_beside: RunsBeside, names: Names
) -> Turns | None:
    """Turns for the contractions of a loop, if all of them clear their sums; else None."""
    gemms = [s for s in loop.body if isinstance(s, Gemm)]
    fit = all(
        g.clear_accum == TRUE and runs_beside(g) and g.a.buffer.scope is Scope.SHARED for g in gemms
    )
    if not gemms or not fit or lanes * GROUPS != threads:
        return None
    barriers = names.buffer("turn", (GROUPS,), uint64, Scope.SHARED)
    return Turns(barriers, Var(names.fresh("turn_group"), int32), lanes, len(gemms))
