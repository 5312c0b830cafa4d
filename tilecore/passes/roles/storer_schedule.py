"""Tiles that consumers leave in shared memory, and a warp of their own that adds them to memory.

    for k: work; T[...] = c; atomic add T -> S[k]
      ->
    consumers:                                        storer, one lane of a producer warp:
      for k:                                            for k:
        work                                              barrier.wait full[k % slots], turn
        barrier.wait empty[k % slots], turn + 1           bulk.add T -> S[k]
        T[...] = c                                        bulk.wait_read
        publish; sync_warp; arrive full[k % slots]        barrier.arrive empty[k % slots]

A ring the other way round: warps that compute only write what leaves, and go on. One slot does: the
engine has read it long before the next iteration has something to put there, and what lanes kept in
shared memory from one iteration to the next stays where it is. Runs where the author wrote the
addition of a whole buffer in shared memory as a statement of the loop, and a copy engine takes it
(hook ``tilecore_plan_bulk_copy``); other additions are made by lanes, element by element.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilecore.hooks.records import PipelinePlan
from tilecore.ir.buffers import Region, Scope
from tilecore.ir.dtypes import uint64
from tilecore.ir.expr import Expr, Var, binary, const, dtype_of_expr, free_vars
from tilecore.ir.layout import Layout
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import Allocate, Atomic, Block, Copy, For, Intrinsic, Let, Stmt
from tilecore.ir.visit import buffers_in, walk_stmts
from tilecore.passes.producers import writes
from tilecore.passes.roles.ring import Ring, inlined, substituted
from tilecore.passes.scopes import Names, kernel_ranges, whole

if TYPE_CHECKING:
    from tilecore.passes.roles.bulk_stores import BulkStores

FEWEST_WARPS = 2
"""Producer warps of a kernel with a storer: one loads, one stores."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """An addition that the storer makes.

    Attributes:
        stmt: as the author wrote it.
        ring: its slot and barriers.
        first, last: indices, in the loop's body, of the first and the last statement that fills.
    """

    stmt: Atomic
    ring: Ring
    first: int
    last: int


def leaving(
    own: BulkStores, loop: For, plan: PipelinePlan, other_barriers: int | None = None
) -> list[Leaving]:
    """The additions of a loop that a storer can make, with new barriers in `own`; none where
    `other_barriers` are given and there is no room for theirs beside them."""
    if plan.producer_warps < FEWEST_WARPS:
        return []
    before = dict(own.layouts)
    found: list[Leaving] = []
    for index, stmt in enumerate(loop.body):
        if not isinstance(stmt, Atomic) or not _may_leave(own, loop, index, stmt):
            continue
        assert isinstance(stmt.value, Region)
        buffer = stmt.value.buffer
        users = [k for k, s in enumerate(loop.body) if k != index and buffer in buffers_in((s,))]
        if not users or max(users) > index or not writes(loop.body[min(users)], buffer):
            continue
        full, empty = (
            own.names.buffer(f"{buffer.name}_{side}", (1,), uint64, Scope.SHARED)
            for side in ("full", "empty")
        )
        for barrier in (full, empty):
            own.layouts[barrier.name] = Layout.row_major((1,))
        ring = Ring(1, (buffer,), full, empty, loop.var, leaves=True)
        found.append(Leaving(stmt, ring, min(users), max(users)))
    if other_barriers is None or own.fits_memory(other_barriers + 2 * len(found)):
        return found
    own.layouts = before
    return []


def _may_leave(own: BulkStores, loop: For, index: int, stmt: Atomic) -> bool:
    """True when the copy engine can make an addition, at places that every warp can compute."""
    value, dst = stmt.value, stmt.dst
    if stmt.op != "add" or stmt.memory_order != "relaxed" or stmt.previous is not None:
        return False
    if not isinstance(value, Region) or value.buffer.scope is not Scope.SHARED:
        return False
    if value != whole(value.buffer) or dst.buffer.scope is not Scope.GLOBAL:
        return False
    others = [s for s in walk_stmts(own.kernel.body) if not _holds(s, stmt)]
    if dst.buffer in buffers_in(tuple(others)):
        return False
    outside = [s for s in own.kernel.body if s is not loop and not isinstance(s, Allocate)]
    if value.buffer in buffers_in(tuple(outside)):
        return False
    lets = {s.var: s.value for s in loop.body if isinstance(s, Let)}
    own.known.add(loop.var)
    known = all(own.is_pure(inlined(start, lets)) for start in dst.starts)
    own.known.discard(loop.var)
    sizes = {var for extent in dst.buffer.shape for var in free_vars(extent)}
    if not known or not _is_inside(dst, kernel_ranges(own.kernel, sizes)):
        return False
    return own.bulk_plan(Copy(value, dst, (), stmt.loc)) is not None


def _holds(stmt: Stmt, inner: Stmt) -> bool:
    return any(one is inner for one in walk_stmts((stmt,)))


def _is_inside(region: Region, ranges: Ranges) -> bool:
    """True when a region provably reaches beyond no side of its buffer."""
    for start, extent, size in zip(region.starts, region.extents, region.buffer.shape, strict=True):
        dtype = dtype_of_expr(start)
        ends = binary("lt", start, size)
        if extent is not None:
            ends = binary("le", binary("add", start, extent), size)
        if not (ranges.proves(binary("le", const(0, dtype), start)) and ranges.proves(ends)):
            return False
    return True


def storing_loop(loop: For, found: list[Leaving], names: Names, base: Expr | None = None) -> Stmt:
    """The storer's loop; `base` is the number of its first step, None is 0."""
    dtype = loop.var.dtype
    step = Var(names.fresh(f"{loop.var.name}_stored"), dtype)
    at = binary("add", loop.start, binary("mul", step, loop.step))
    number = step if base is None else binary("add", base, step)
    lets = {s.var: s.value for s in loop.body if isinstance(s, Let)}
    body: list[Stmt] = []
    for one in found:
        body += _addition(one, substituted(one.stmt.dst, lets, {loop.var: at}), number)
    return For(step, const(0, dtype), loop.extent, const(1, dtype), tuple(body), loc=loop.loc)


def _addition(one: Leaving, dst: Region, step: Expr) -> Block:
    src = one.stmt.value
    assert isinstance(src, Region)
    elements = math.prod(src.static_shape or ())
    add = Intrinsic("bulk.add", (src, dst), (("elements", elements),), one.stmt.loc)
    ring = one.ring
    return (ring.wait_full(step), add, Intrinsic("bulk.wait_read"), ring.emptied(step))
