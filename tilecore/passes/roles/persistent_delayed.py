"""Blocks that stay, for kernels whose last contraction runs one iteration late.

    for round in range(most tiles of a block):
      tile = place of this round in the list; if there is one:
        producers: load what is loaded once into its slot of this round, then the loop's copies
        consumers: the delayed loop, release what was loaded once, the rest of the tile

While consumers finish one tile and store it, producers load the next one. Tiles may make unequally
many steps: both sides keep count of the steps so far. Where steps depend on the first grid axis
(a causal mask), its longest tiles come first, in sections of the other axes whose operands stay in
the second-level cache, and each block takes the next tile of the list when it has loaded one
(`launch.take`): the producer asks and hands the number to the consumers. Without such a counter
blocks walk the list forth and back, so that none gets the longest tile of every round.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilecore.hooks.records import PipelinePlan
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Const, Expr, Select, Var, binary, const, free_vars
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Allocate, Block, Copy, For, If, Intrinsic, Let, Stmt
from tilecore.ir.visit import buffers_in, walk_stmts
from tilecore.passes.memory_effects import NEXT_BLOCK
from tilecore.passes.roles.consumer_schedule import reads_first
from tilecore.passes.roles.deferred_store import is_held
from tilecore.passes.roles.delayed_schedule import delayed_tile, later_group
from tilecore.passes.roles.persistent_tiles import (
    at_zero,
    count_steps,
    may_pair,
    place_of,
    rank_of,
    step_base,
)
from tilecore.passes.roles.producer_schedule import load_alone, producer_loop
from tilecore.passes.roles.ring import AFTER_LANES_READ, Group, rebuffered
from tilecore.passes.roles.schedule_pieces import renamed, slots_of
from tilecore.passes.roles.taken_tiles import Role, Walk, taken_ring, walk_taken
from tilecore.passes.scopes import ceil_div, with_hint

if TYPE_CHECKING:
    from tilecore.passes.roles.specialize_warps import Specializer

SECTION_BYTES = 32 << 20
"""Operands of the tiles in one section: fits the second-level cache (docs/performance-log.md)."""
LARGEST_SECTION = 32
FEWEST_SHARED_STEPS = 16
"""Steps of a tile from which blocks of a cluster load for one another: before, they wait for each
other's epilogues more than they save (docs/performance-log.md)."""
UNORDERED_HINT = "unordered_tiles"
"""Hint of a loop: warps need not wait for one another's stores before the block's next tile. Tiles
are blocks of the author's grid, to which nothing orders global memory; without the hint lanes still
meet where the stores of one tile might touch what another one's touch."""
ROOMY_THREADS = 256
"""Up to here lanes have registers to spare. Above, what is loaded once has one slot, and loops of
two stages stay as they are: both spilled with three groups of 128 lanes."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a tile is made of.

    Attributes:
        loop: the pipelined loop, on the slots of what is loaded once.
        groups: its copies; `later` is read an iteration late.
        once: copies outside of the loop, each with its ring; a step is a round.
        rest: what consumers do, the loop included, in order.
        is_unequal: tiles along the first axis make unequally many steps.
        cluster: neighbours along the first axis that load the groups' copies for one another.
    """

    loop: For
    groups: list[Group]
    later: Group
    once: list[Group]
    rest: list[Stmt]
    is_unequal: bool
    cluster: int


def persistent_delayed(
    own: Specializer, loop: For, plan: PipelinePlan, staying: list[Stmt]
) -> Kernel | None:
    """The kernel with blocks that stay; None, and `own` as it was, when it does not fit."""
    kernel = own.kernel
    if kernel.cluster != (1, 1, 1) or loop.var.dtype != int32:
        return None
    if kernel.threads > ROOMY_THREADS and plan.num_stages < 3:
        return None
    before = dict(own.layouts), dict(own.slotted), list(own.common)
    for slots in (2, 1) if kernel.threads <= ROOMY_THREADS else (1,):
        parts = _parts(own, loop, plan, staying, slots)
        if parts is not None and own.fits_memory(2 * len((*parts.groups, *parts.once))):
            return _assemble(own, parts, plan)
        own.layouts, own.slotted, own.common = dict(before[0]), dict(before[1]), list(before[2])
        if parts is None:
            return None
    return None


def _parts(
    own: Specializer, loop: For, plan: PipelinePlan, staying: list[Stmt], slots: int
) -> Parts | None:
    once = [s for s in staying if isinstance(s, Copy) and own.fits_once(s, staying)]
    groups = own.groups(loop, plan)
    later = later_group(loop, groups, own.runs_beside, plan) if groups else None
    if later is None or not once:
        return None
    rings = [Group((copy,), own.ring((copy,), slots, loop), 0, 0) for copy in once]
    rest = [own.stored(s) for s in staying if not any(s is copy for copy in once)]
    lets = tuple(let for let in own.common if isinstance(let, Let))
    changing = {own.kernel.grid_vars[0]}
    for let in lets:
        if free_vars(let.value) & changing:
            changing.add(let.var)
    unequal = bool(free_vars(loop.extent) & changing)
    cluster = 1
    if not unequal and may_pair(own.kernel.grid[0]) and not _is_short(loop):
        pairs = [own.shared(group, loop, plan, lets, 0) for group in groups]
        if all(len(group.shared) == len(group.copies) for group in pairs):
            later = pairs[next(k for k, group in enumerate(groups) if group is later)]
            groups, cluster = pairs, plan.cluster
    return Parts(loop, groups, later, rings, rest, unequal, cluster)


def _is_short(loop: For) -> bool:
    return isinstance(loop.extent, Const) and int(loop.extent.value) < FEWEST_SHARED_STEPS


def _assemble(own: Specializer, parts: Parts, plan: PipelinePlan) -> Kernel:
    kernel, names = own.kernel, own.names
    lets = tuple(s for s in own.common if isinstance(s, Let))
    own.common = [s for s in own.common if not isinstance(s, Let)]
    warps = kernel.threads // own.context.target.lanes_per_warp
    inits = [s for g in (*parts.groups, *parts.once) for s in g.ring.declarations(warps)]
    first = Var(names.fresh("first_tile"))
    taken = taken_ring(own, "tile") if parts.is_unequal and plan.takes_tiles else None
    if taken is not None:
        inits += taken.declarations(warps)
    total = _total(own, parts)

    def side(body: Callable[[Var, Var], list[Stmt]], role: Role) -> Block:
        """One role's loop over its tiles, with its count of steps."""
        label = role.value
        done = names.buffer(f"steps_{label}", (), int32, Scope.LOCAL)
        round_, base = Var(names.fresh(f"round_{label}")), Var(names.fresh(f"base_{label}"))
        so_far = Let(base, step_base(parts.loop, round_, done))
        begin = (Intrinsic(NEXT_BLOCK),) if dict(parts.loop.hints).get(UNORDERED_HINT) else ()
        inner = (*lets, so_far, *begin, *body(round_, base), *count_steps(parts.loop, base, done))
        if taken is None:
            loop: Block = (_tile_loop(own, parts, first, round_, inner),)
        else:
            tile = Var(names.fresh("tile"))
            work = (*_places(own, parts, tile, first), *inner)
            walk = Walk(first, total, tile, round_, taken)
            loop = walk_taken(walk, names, work, role)
        return (*at_zero(done), *renamed(loop, names))

    producer = side(lambda round_, base: _loads(own, parts, round_, base), Role.PRODUCER)
    consumer = list(side(lambda round_, base: _work(own, parts, plan, round_, base), Role.CONSUMER))
    if any(is_held(s) for s in walk_stmts(tuple(parts.rest))):
        consumer.append(Intrinsic("bulk.finish"))
    own.kernel = dataclasses.replace(
        kernel,
        grid_vars=(first,),
        grid=(binary("mul", const(parts.cluster), total),),
        block_order=None,
        cluster=(parts.cluster, 1, 1),
        hints=with_hint(kernel.hints, "persistent", True),
    )
    return own.assemble(inits, list(producer), consumer, plan.producer_warps)


def _loads(own: Specializer, parts: Parts, round_: Var, base: Var) -> list[Stmt]:
    """What the producer does for one tile."""
    result: list[Stmt] = []
    for group in parts.once:
        (copy,), ring = group.copies, group.ring
        result += load_alone(copy, ring, ring.slot(copy.dst, ring.buffers[0], round_), round_)
    return [*result, *producer_loop(parts.loop, parts.groups, parts.later, own.names, base)]


def _work(own: Specializer, parts: Parts, plan: PipelinePlan, round_: Var, base: Var) -> list[Stmt]:
    """What consumers do for one tile."""
    slots = slots_of(parts.once, round_)
    users = {
        group.copies[0].dst.buffer.name: [
            k
            for k, stmt in enumerate(parts.rest)
            if group.copies[0].dst.buffer in buffers_in((stmt,)) and not isinstance(stmt, Allocate)
        ]
        for group in parts.once
    }
    early = [g for g in parts.once if reads_first(parts.loop, g.copies[0].dst.buffer)]
    early = [g for g in early if len(users[g.copies[0].dst.buffer.name]) == 1]
    released = tuple(group.ring.release(round_, 0) for group in early)
    result: list[Stmt] = []
    for k, stmt in enumerate(parts.rest):
        for group in parts.once:
            if users[group.copies[0].dst.buffer.name][:1] == [k]:
                result.append(group.ring.wait_full(round_))
        if stmt is parts.loop:
            body = tuple(
                rebuffered(s, slots) if any(b.name in slots for b in buffers_in((s,))) else s
                for s in parts.loop.body
            )
            loop = dataclasses.replace(parts.loop, body=body)
            before, steps = own.own_steps(loop)
            result += before
            result += delayed_tile(
                loop, parts.groups, own.runs_beside, own.names, plan, base, steps, released
            )
        else:
            result.append(rebuffered(stmt, slots))
        for group in parts.once:
            if group not in early and users[group.copies[0].dst.buffer.name][-1:] == [k]:
                result += [*AFTER_LANES_READ, group.ring.release(round_, 0)]
    return result


# --- the list of tiles ---------------------------------------------------------------------------


def _rest(kernel: Kernel) -> Expr:
    """Places along all axes but the first; may be known at launch only."""
    places: Expr = const(1)
    for extent in kernel.grid[1:]:
        places = binary("mul", places, extent)
    return places


def _length(own: Specializer, parts: Parts) -> Expr:
    """Places along the first axis, or clusters of them; may be known at launch only."""
    extent = own.kernel.grid[0]
    return extent if parts.cluster == 1 else ceil_div(extent, parts.cluster)


def _total(own: Specializer, parts: Parts) -> Expr:
    """Tiles, or clusters of them."""
    return binary("mul", _length(own, parts), _rest(own.kernel))


def _tile_loop(own: Specializer, parts: Parts, first: Var, round_: Var, body: Block) -> For:
    total = _total(own, parts)
    start, blocks = place_of(first, parts.cluster)
    rounds = binary("add", binary("sub", total, const(1)), blocks)
    rounds = binary("floordiv", rounds, blocks)
    tile = Var(own.names.fresh("tile"))
    at: Expr = binary("add", start, binary("mul", round_, blocks))
    if parts.is_unequal:
        after = binary("mul", binary("add", round_, const(1)), blocks)
        back = binary("sub", binary("sub", after, const(1)), start)
        odd = binary("eq", binary("floormod", round_, const(2)), const(1))
        at = binary("max", const(0), Select(odd, back, at, int32))
    guarded = If(binary("lt", tile, total), (*_places(own, parts, tile, first), *body))
    loc = own.kernel.loc
    return For(round_, const(0), rounds, const(1), (Let(tile, at), guarded), loc=loc)


def _places(own: Specializer, parts: Parts, tile: Var, first: Var) -> Block:
    """The grid's variables from a tile's number: first axis fastest, or slowest in a section."""
    kernel, names = own.kernel, own.names
    length, rest = _length(own, parts), _rest(kernel)
    along, other = Var(names.fresh("along")), Var(names.fresh("across"))
    if parts.is_unequal:
        size = _section(parts, rest)
        inside = binary("floormod", tile, binary("mul", const(size), length))
        section = binary("floordiv", tile, binary("mul", const(size), length))
        begin = binary("mul", section, const(size))
        width: Expr = const(size)
        if not isinstance(rest, Const):  # the last section may be a smaller one
            left_over = binary("sub", rest, begin)
            width = binary("max", const(1), binary("min", width, left_over))
        place = binary("floordiv", inside, width)
        across = binary("add", begin, binary("floormod", inside, width))
    else:
        place = binary("floormod", tile, length)
        across = binary("floordiv", tile, length)
    last = binary("max", const(0), binary("sub", rest, const(1)))
    end = binary("max", const(0), binary("sub", length, const(1)))
    row: Expr = binary("min", along, end)
    if parts.cluster > 1:
        row = binary("mul", row, const(parts.cluster))
        row = binary("add", row, rank_of(first, parts.cluster))
    result: list[Stmt] = [
        Let(along, place),
        Let(other, binary("min", across, last)),
        Let(kernel.grid_vars[0], row),
    ]
    left: Expr = other
    for var, extent in zip(kernel.grid_vars[1:], kernel.grid[1:], strict=True):
        at = binary("floormod", left, extent)
        if not isinstance(extent, Const):  # in words that range analysis follows
            at = binary("max", const(0), binary("min", at, binary("sub", extent, const(1))))
        result.append(Let(var, at))
        left = binary("floordiv", left, extent)
    return tuple(result)


def _section(parts: Parts, rest: Expr) -> int:
    """Places along the other axes in one section: a divisor of all of them, if they are known."""
    sizes = [_operand_bytes(copy.src.buffer) for group in parts.groups for copy in group.copies]
    wanted = LARGEST_SECTION
    if None not in sizes:
        wanted = min(wanted, SECTION_BYTES // max(1, sum(size or 0 for size in sizes)))
    if not isinstance(rest, Const):
        return max(1, wanted)
    return max(d for d in range(1, max(1, wanted) + 1) if int(rest.value) % d == 0)


def _operand_bytes(buffer: Buffer) -> int | None:
    """Bytes of one matrix of a tensor; None when its size is not known."""
    matrix = buffer.shape[-2:]
    if not all(isinstance(extent, Const) for extent in matrix):
        return None
    count = math.prod(int(e.value) for e in matrix if isinstance(e, Const))
    return count * buffer.dtype.bits // 8
