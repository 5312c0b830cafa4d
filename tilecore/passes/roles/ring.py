"""A ring of slots between two roles: its barriers and what is said to them.

Most rings are filled by a copy engine for the producer and emptied by the consumer warps; those of
what leaves a kernel (`storer_schedule`) are filled by the consumer warps and emptied by one lane.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Region
from tilecore.ir.dtypes import DType, boolean
from tilecore.ir.expr import Call, Expr, Load, Var, binary, const, free_vars, substitute
from tilecore.ir.stmts import Allocate, Block, Copy, Gemm, If, Intrinsic, Stmt, Store
from tilecore.ir.visit import buffers_in, map_exprs, map_regions, map_stmts
from tilecore.passes.memory_effects import FREES

FIRST_LANE = Call("warp.first_lane", (), boolean)


AFTER_LANES_READ: Block = (Intrinsic("memory.publish"), Intrinsic("sync_warp"))
"""Stands before the release of a slot that lanes read: the copy engine overtakes ordinary reads
that it is not ordered with, and each lane reads in its own time while one releases for all."""

AFTER_LANES_WROTE: Block = AFTER_LANES_READ
"""Stands before the hand-over of a slot that lanes filled, for the same reason."""


@dataclass(frozen=True, slots=True)
class Ring:
    """Slots of one or several buffers that are filled and emptied together.

    Attributes:
        slots: how many.
        buffers: with a leading axis of slots.
        full: one barrier a slot: the copies have landed.
        empty: one barrier a slot: all consumer warps are done with it.
        counter: the consumers' number of the iteration, from 0.
        sharers: blocks of a cluster whose slots are filled together.
        leaves: consumer warps fill the slots and one lane empties them; `full` and `empty` count
            the arrivals of these.
    """

    slots: int
    buffers: tuple[Buffer, ...]
    full: Buffer
    empty: Buffer
    counter: Var
    sharers: int = 1
    leaves: bool = False

    def declarations(self, consumer_warps: int) -> list[Stmt]:
        """The barriers and their first values."""
        result: list[Stmt] = [Allocate(self.full), Allocate(self.empty)]
        for slot in range(self.slots):
            one, each = 1, consumer_warps * self.sharers
            filled, emptied = (each, one) if self.leaves else (one, each)
            for barrier, arrivals in ((self.full, filled), (self.empty, emptied)):
                args = (point(barrier, const(slot)), const(arrivals))
                result.append(Intrinsic("barrier.init", args))
        return result

    def slot_of(self, step: Expr) -> Expr:
        """The slot of iteration `step`."""
        return binary("floormod", step, const(self.slots, _dtype(step)))

    def turn(self, step: Expr, ahead: int) -> Expr:
        """Parity of how often the ring was gone round at `step`, `ahead` turns later."""
        dtype = _dtype(step)
        round_ = binary("floordiv", step, const(self.slots, dtype))
        if ahead:
            round_ = binary("add", round_, const(ahead, dtype))
        return binary("bitand", round_, const(1, dtype))

    def full_at(self, step: Expr) -> Region:
        """The barrier on which the copies of iteration `step` complete."""
        return point(self.full, self.slot_of(step))

    def wait_full(self, step: Expr) -> Stmt:
        """Until the data of iteration `step` is there."""
        return Intrinsic("barrier.wait", (self.full_at(step), self.turn(step, 0)))

    def test_full(self, step: Expr, there: Buffer) -> Stmt:
        """Ask, without waiting, whether the data of iteration `step` is there: not 0 if it is."""
        at = (self.full_at(step), self.turn(step, 0))
        return Intrinsic("barrier.test", (point(there, const(0)), *at))

    def wait_full_unless(self, step: Expr, known: Expr) -> Stmt:
        """Until the data of iteration `step` is there; `known` says that it is, or not needed."""
        return Intrinsic("barrier.wait", (self.full_at(step), self.turn(step, 0), known))

    def wait_empty(self, step: Expr) -> Stmt:
        """Until the slot of iteration `step` is free; true at once the first time round.

        Where one lane empties what all consumer warps have filled, these have met: what they did
        in the slot is behind them.
        """
        place = point(self.empty, self.slot_of(step))
        hints = ((FREES, self.buffers[0].name),) if self.leaves else ()
        return Intrinsic("barrier.wait", (place, self.turn(step, 1)), hints)

    def expect(self, step: Expr, total_bytes: int) -> Stmt:
        """The producer's arrival, with the bytes that will land."""
        return Intrinsic("barrier.arrive_expect", (self.full_at(step), const(total_bytes)))

    def release(self, step: Expr, offset: int) -> Stmt:
        """One warp is done with the slot of iteration ``step + offset``."""
        shifted = step
        if offset:
            shifted = binary("add", step, const(offset % self.slots, _dtype(step)))
        place = point(self.empty, self.slot_of(shifted))
        if self.sharers > 1:
            return Intrinsic("barrier.arrive_each", (place, const(self.sharers)))
        arrive = Intrinsic("barrier.arrive", (place,))
        return If(FIRST_LANE, (arrive,))

    def hand_on(self, step: Expr) -> Block:
        """What one warp has written to the slot of iteration `step` may be read by an engine."""
        arrive = Intrinsic("barrier.arrive", (self.full_at(step),))
        return (*AFTER_LANES_WROTE, If(FIRST_LANE, (arrive,)))

    def emptied(self, step: Expr) -> Stmt:
        """The one lane that empties slots is done with that of iteration `step`."""
        return Intrinsic("barrier.arrive", (point(self.empty, self.slot_of(step)),))

    def slot(self, region: Region, buffer: Buffer, step: Expr) -> Region:
        """A region of the author's buffer in the slot of iteration `step`."""
        starts = (self.slot_of(step), *region.starts)
        return Region(buffer, starts, (None, *region.extents))


@dataclass(frozen=True, slots=True)
class Group:
    """Copies whose data is first read by one statement, and that share barriers.

    Attributes:
        copies: as the author wrote them.
        ring: their slots and barriers.
        first, last: indices, in the loop's body, of the first and the last statement that reads.
        shared: indices of the copies that the blocks of a cluster load in parts for one another.
    """

    copies: tuple[Copy, ...]
    ring: Ring
    first: int
    last: int
    shared: tuple[int, ...] = ()


def point(buffer: Buffer, at: Expr) -> Region:
    """One element of a buffer with one axis: a barrier, or what a slot holds."""
    return Region(buffer, (at,), (None,))


def read_by_lanes(stmt: Stmt, buffers: set[Buffer]) -> bool:
    """True when lanes themselves read one of `buffers`, not a contraction that runs beside them."""
    return not isinstance(stmt, Gemm | Allocate) and not buffers.isdisjoint(buffers_in((stmt,)))


def _dtype(expr: Expr) -> DType:
    return expr.dtype  # type: ignore[attr-defined]


Slots = dict[str, tuple[Buffer, Expr]]
"""Buffer name -> (the buffer with a leading axis of slots, the slot to use)."""


def rebuffered(stmt: Stmt, slots: Slots) -> Stmt:
    """A statement that uses the author's buffers, on the given slots."""

    def visit_expr(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer.name in slots:
            buffer, at = slots[node.buffer.name]
            if node.buffer.rank < buffer.rank:
                return Load(buffer, (at, *node.indices))
        return None

    def visit_region(region: Region) -> Region:
        if region.buffer.name not in slots:
            return region
        buffer, at = slots[region.buffer.name]
        if region.buffer.rank == buffer.rank:
            return region
        return Region(buffer, (at, *region.starts), (None, *region.extents))

    def visit(inner: Stmt) -> Stmt:
        inner = map_regions(map_exprs(inner, visit_expr), visit_region)
        if isinstance(inner, Store) and inner.buffer.name in slots:
            buffer, at = slots[inner.buffer.name]
            return dataclasses.replace(inner, buffer=buffer, indices=(at, *inner.indices))
        return inner

    (new,) = map_stmts((stmt,), visit)
    return new


def inlined(expr: Expr, lets: dict[Var, Expr]) -> Expr:
    """`expr` without the variables of `lets`."""
    while any(var in lets for var in free_vars(expr)):
        expr = substitute(expr, lets)
    return expr


def substituted(region: Region, lets: dict[Var, Expr], mapping: dict[Var, Expr]) -> Region:
    """A region at other values of variables; `lets` are inlined first."""
    starts = tuple(substitute(inlined(start, lets), mapping) for start in region.starts)
    return Region(region.buffer, starts, region.extents)
