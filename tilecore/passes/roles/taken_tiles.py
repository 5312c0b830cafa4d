"""Blocks that stay and take the next tile of a list from a counter of the launch.

    producer: tile = first; while tile < total:        consumers: tile = first; while tile < total:
                load tile                                           work on tile
                wait empty[r % 2]; take -> next[r % 2]              wait full[r % 2]
                arrive full[r % 2]                                  tile = next[r % 2]
                tile = next[r % 2]; r += 1                          arrive empty[r % 2]; r += 1

A block's first tile is its own number; `launch.take` gives numbers from the number of blocks on,
each once. Whoever is done early takes more: unequal tiles, and blocks that happen to be slow, even
out as far as the last tile of each block allows. A storer (`storer_schedule`) reads the numbers as
consumers do, by its one lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import int32, uint64
from tilecore.ir.expr import Call, Expr, Load, Var, binary, const
from tilecore.ir.layout import Layout
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Allocate, Block, For, Intrinsic, Let, Stmt, Store, While
from tilecore.passes.roles.persistent_tiles import (
    at_zero,
    count_steps,
    step_base,
    tile_count,
    tile_loop,
    tile_place,
)
from tilecore.passes.roles.ring import Ring, point
from tilecore.passes.roles.schedule_pieces import renamed
from tilecore.passes.roles.storer_schedule import Leaving, storing_loop
from tilecore.passes.scopes import Names

if TYPE_CHECKING:
    from tilecore.passes.roles.bulk_copies import BulkCopies

SLOTS = 2
"""Tiles by which the producer may be ahead of the slowest consumer, and one."""


class Role(Enum):
    """Who walks the tiles; the value labels its variables."""

    PRODUCER = "loaded"
    CONSUMER = "used"
    STORER = "stored"


@dataclass(frozen=True, slots=True)
class Walk:
    """A side's way through the list.

    Attributes:
        first: the block's first tile.
        total: tiles of the list.
        tile, round_: variables for the number of a tile, and for that of a round of the block.
        taken: slots for the number of the tile after a round's.
    """

    first: Var
    total: Expr
    tile: Var
    round_: Var
    taken: Ring


@dataclass(frozen=True, slots=True)
class TileWalk:
    """How the blocks of a kernel walk the tiles of its grid.

    Attributes:
        kernel: as it was before its blocks stayed.
        first: variable of the block's first tile.
        cluster: blocks of a cluster, which take neighbouring tiles.
        names: unused names.
        ring: slots for the numbers of tiles from the launch's counter; None walks in rounds.
    """

    kernel: Kernel
    first: Var
    cluster: int
    names: Names
    ring: Ring | None

    def tiles(self, round_: Var, work: Block, role: Role) -> Block:
        """One role's loop: `work`, written for the kernel's grid, for every tile of a block."""
        kernel, first, names = self.kernel, self.first, self.names
        if self.ring is None:
            return (tile_loop(kernel, first, round_, names, work, self.cluster),)
        tile = Var(names.fresh("tile"))
        placed = (*tile_place(kernel, first, tile, names, self.cluster), *work)
        walk = Walk(first, tile_count(kernel, self.cluster), tile, round_, self.ring)
        return walk_taken(walk, names, placed, role)


def taken_ring(own: BulkCopies, label: str) -> Ring:
    """Slots for the numbers of tiles, and their barriers; declared in `own`."""
    slots = own.names.buffer(f"{label}_next", (SLOTS,), int32, Scope.SHARED)
    full = own.names.buffer(f"{label}_full", (SLOTS,), uint64, Scope.SHARED)
    empty = own.names.buffer(f"{label}_empty", (SLOTS,), uint64, Scope.SHARED)
    for buffer in (slots, full, empty):
        own.layouts[buffer.name] = Layout.row_major((SLOTS,))
    own.common.append(Allocate(slots))
    return Ring(SLOTS, (slots,), full, empty, Var(f"{label}_round"))


def walk_taken(walk: Walk, names: Names, work: Block, role: Role) -> Block:
    """`work`, which is written for `walk.tile` in `walk.round_`, for every tile of a block."""
    now = names.buffer(f"tile_{role.value}", (), int32, Scope.LOCAL)
    rounds = names.buffer(f"rounds_{role.value}", (), int32, Scope.LOCAL)
    tile = binary("min", Load(now, ()), binary("sub", walk.total, const(1)))
    head = (
        Let(walk.tile, binary("max", const(0), tile)),
        Let(walk.round_, binary("max", const(0), Load(rounds, ()))),
    )
    after = _AFTER[role](walk, now)
    count = Store(rounds, (), binary("add", walk.round_, const(1)))
    loop = While(binary("lt", Load(now, ()), walk.total), (*head, *work, *after, count))
    return (Allocate(now, walk.first), Allocate(rounds, const(0)), loop)


def _slot(walk: Walk) -> tuple[Buffer, Expr]:
    return walk.taken.buffers[0], walk.taken.slot_of(walk.round_)


def _taken(walk: Walk, now: Buffer) -> list[Stmt]:
    slots, at = _slot(walk)
    return [
        walk.taken.wait_empty(walk.round_),
        Intrinsic("launch.take", (point(slots, at), walk.total)),
        Intrinsic("barrier.arrive", (walk.taken.full_at(walk.round_),)),
        Store(now, (), Load(slots, (at,))),
    ]


def _received(walk: Walk, now: Buffer) -> list[Stmt]:
    slots, at = _slot(walk)
    value = Call("lane.uniform", (Load(slots, (at,)),), int32)
    return [
        walk.taken.wait_full(walk.round_),
        Store(now, (), value),
        Intrinsic("sync_warp"),
        walk.taken.release(walk.round_, 0),
    ]


def _received_by_lane(walk: Walk, now: Buffer) -> list[Stmt]:
    slots, at = _slot(walk)
    return [
        walk.taken.wait_full(walk.round_),
        Store(now, (), Load(slots, (at,))),
        walk.taken.emptied(walk.round_),
    ]


_AFTER = {Role.PRODUCER: _taken, Role.CONSUMER: _received, Role.STORER: _received_by_lane}
"""What gives a role its next tile."""


def storing_tiles(
    walk: TileWalk, loop: For, sent: list[Leaving], lets: Block, equal: bool
) -> list[Stmt]:
    """What a storer does for all tiles of a block: the additions that are `sent`, step by step.

    `lets` are what stands before the loop of each tile, `equal` tells that all make as many steps.
    """
    if not sent:
        return []
    names = walk.names
    done = None if equal else names.buffer("steps_stored", (), int32, Scope.LOCAL)
    round_, base = Var(names.fresh("round_stored")), Var(names.fresh("step_base"))
    work = (
        *lets,
        Let(base, step_base(loop, round_, done)),
        storing_loop(loop, sent, names, base),
        *count_steps(loop, base, done),
    )
    return [*at_zero(done), *renamed(walk.tiles(round_, work, Role.STORER), names)]
