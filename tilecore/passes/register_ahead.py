"""Copies of a pipelined loop that wait in registers: loads run ahead, stores follow.

For targets whose lanes move global memory to shared memory themselves. A copy becomes a load into
a fragment (`ahead`), an iteration early or more, and a store of that fragment; what a lane loads
is under way while the matrix units work. With two slots of shared memory, and with one:

    ahead <- A[0]; slot 0 <- ahead; ahead <- A[1]   |   the same, one slot
    for k:                                          |   for k:
      if k + 1 < n: slot (k + 1) % 2 <- ahead       |     ... statements of iteration k ...
        if k + 2 < n: ahead <- A[k + 2]             |       after the last that reads the slot:
      ... statements of iteration k, slot k % 2 ... |     if k + 1 < n: slot <- ahead
                                                    |       if k + 2 < n: ahead <- A[k + 2]

The barriers between readers and writers follow from `insert_barriers`: one an iteration with two
slots, two with one. Where shared memory keeps neighbours along the axis before the last together
(operands that are read across their rows), a lane loads several rows and stores columns of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Expr, Load, Var, binary, const, dtype_of_expr
from tilecore.ir.layout import REGISTER, THREAD, FragmentLayout, FragmentMode, Layout
from tilecore.ir.stmts import (
    Allocate,
    Block,
    Copy,
    For,
    If,
    Intrinsic,
    Let,
    LoopKind,
    Parallel,
    Stmt,
    Store,
)
from tilecore.passes.elementwise import VECTOR_BYTES
from tilecore.passes.producers import Producer, mentions
from tilecore.passes.roles.ring import substituted
from tilecore.passes.scopes import static, whole
from tilecore.passes.spread import default_spread

if TYPE_CHECKING:
    from tilecore.passes.pipeline_loops import Pipeliner

CROSSWISE_BYTES = 8
"""What a lane stores at once of a column: so many rows it loads together."""


def can_wait(copy: Copy) -> bool:
    """True when lanes can hold what `copy` moves to shared memory."""
    return (
        copy.fills_shared
        and copy.src.dtype.bits >= 8
        and copy.dst.static_shape is not None
        and copy.src.static_shape == copy.dst.static_shape
        and len(copy.src.shape) > 0
    )


@dataclass(frozen=True, slots=True)
class Ahead:
    """A copy, the fragment that its loads fill, and the layout that its stores want, if other."""

    producer: Producer
    loaded: Buffer
    turned: FragmentLayout | None


class RegisterAhead:
    """Rewrites one loop whose plan says `through_registers`."""

    def __init__(self, pipeliner: Pipeliner, loop: For, producers: list[Producer]) -> None:
        self.owner = pipeliner
        self.loop = loop
        self.lets = {s.var: s.value for s in loop.body if isinstance(s, Let)}
        self.waiting = [self._prepare(p) for p in producers]
        self.slotted = {p.copy.dst.buffer.name: pipeliner.multi_buffer(p) for p in producers}

    def expand(self, held: Block) -> Block:
        """The prologue and the new loop; `held` reads operands once, under the first loads."""
        loop, dtype = self.loop, self.loop.var.dtype
        simple = loop.start == const(0, dtype) and loop.step == const(1, dtype)
        name = self.owner.names.fresh(f"{loop.var.name}_step")
        counter = loop.var if simple else Var(name, dtype)
        prologue: list[Stmt] = [Allocate(each.loaded) for each in self.waiting]
        first, second = const(0, dtype), const(1, dtype)
        loads = [s for each in self.waiting for s in self._load(each, first)]
        prologue += self._if_exists(first, tuple(loads))
        prologue += [stmt for stmt in held if isinstance(stmt, Allocate)]
        once = tuple(stmt for stmt in held if not isinstance(stmt, Allocate))
        prologue += self._if_exists(first, once) if once else ()
        for each in self.waiting:
            ready = (*self._store(each, first), *self._if_exists(second, self._load(each, second)))
            prologue += self._if_exists(first, ready)
        if any(each.producer.slots == 1 for each in self.waiting):
            # The first iteration then begins like all others: with what was stored in sight.
            prologue.append(Intrinsic("sync_block", (), (), loop.loc))
        head = () if simple else (Let(loop.var, self._at(counter), loop.loc),)
        body = (*head, *self._steady(counter))
        new = For(counter, first, loop.extent, second, body, LoopKind.SERIAL, None, loop.hints,
                  loop.loc)  # fmt: skip
        return (*prologue, new)

    def _steady(self, counter: Var) -> list[Stmt]:
        """One iteration: what stays, in order, and each copy at the first place for its slots."""
        producers = [each.producer for each in self.waiting]
        body = self.loop.body
        own = {p.index for p in producers}
        staying = [k for k in range(len(body)) if k not in own]
        after: dict[int, list[Ahead]] = {}
        for each in self.waiting:
            place = -1
            if each.producer.slots == 1:
                target = each.producer.copy.dst.buffer
                place = max((k for k in staying if mentions(body[k], target)), default=-1)
            after.setdefault(place, []).append(each)
        result: list[Stmt] = list(self._follow(after.get(-1, []), counter))
        for k in staying:
            result.append(self.owner.rebuffer(body[k], producers, counter, self.slotted))
            result += self._follow(after.get(k, []), counter)
        return result

    def _follow(self, group: list[Ahead], step: Expr) -> Block:
        """Store what was loaded for ``step + 1``, then load for ``step + 2``, where these exist."""
        if not group:
            return ()
        dtype = dtype_of_expr(step)
        one, two = (binary("add", step, const(d, dtype)) for d in (1, 2))
        stores = tuple(s for each in group for s in self._store(each, one))
        loads = tuple(s for each in group for s in self._load(each, two))
        return self._if_exists(one, (*stores, *self._if_exists(two, loads)))

    def _if_exists(self, step: Expr, block: Block) -> Block:
        exists = binary("lt", step, self.loop.extent)
        return block if self.owner.ranges.proves(exists) else (If(exists, block),)

    def _at(self, step: Expr) -> Expr:
        return binary("add", self.loop.start, binary("mul", step, self.loop.step))

    def _moved(self, region: Region, step: Expr) -> Region:
        return substituted(region, self.lets, {self.loop.var: self._at(step)})

    def _load(self, each: Ahead, step: Expr) -> Block:
        copy = each.producer.copy
        return (Copy(self._moved(copy.src, step), whole(each.loaded), (), copy.loc),)

    def _store(self, each: Ahead, step: Expr) -> Block:
        """Registers to the slot of `step`; through a fragment of another order where that is so."""
        copy = each.producer.copy
        name = copy.dst.buffer.name
        target = self._moved(copy.dst, step)
        target = self.owner.slot(target, each.producer, step, self.slotted[name])
        if each.turned is None:
            return (Copy(whole(each.loaded), target, (), copy.loc),)
        names, shape = self.owner.names, static(each.loaded)
        turned = names.buffer(f"{name}_turned", shape, each.loaded.dtype, Scope.FRAGMENT)
        self.owner.layouts[turned.name] = each.turned
        at = tuple(Var(names.fresh(f"{name}_{k}")) for k in range(len(shape)))
        store = Store(target.buffer, target.indices(at), Load(turned, at), copy.loc)
        extents = tuple(const(e) for e in (*shape[:-2], shape[-1], shape[-2]))
        nest = Parallel((*at[:-2], at[-1], at[-2]), extents, (store,), (), copy.loc)
        return (Allocate(turned), Copy(whole(each.loaded), whole(turned), (), copy.loc), nest)

    def _prepare(self, producer: Producer) -> Ahead:
        copy, threads = producer.copy, self.owner.kernel.threads
        layouts = self.owner.layouts
        layout, shape = layouts[copy.dst.buffer.name], static(copy.dst)
        assert isinstance(layout, Layout), "shared buffers have their layouts by now"
        base = f"{copy.src.buffer.name}_ahead"
        loaded = self.owner.names.buffer(base, shape, copy.src.dtype, Scope.FRAGMENT)
        rows = crosswise_rows(copy, layout, threads)
        if rows == 1:
            layouts[loaded.name] = default_spread(shape, _vector(copy, threads), threads)
            return Ahead(producer, loaded, None)
        columns = crosswise_columns(copy, rows, threads)
        layouts[loaded.name] = crosswise(shape, rows, columns, threads, (columns, 1))
        return Ahead(producer, loaded, crosswise(shape, rows, columns, threads, (1, rows)))


def _vector(copy: Copy, threads: int) -> int:
    """Neighbours along the last axis of one lane: up to 16 bytes, leaving work for every lane."""
    shape = static(copy.dst)
    total = 1
    for extent in shape:
        total *= extent
    width = max(1, VECTOR_BYTES // copy.src.dtype.bytes)
    while width > 1 and (shape[-1] % width or total // width < threads):
        width //= 2
    return width


def crosswise_rows(copy: Copy, layout: Layout, threads: int) -> int:
    """Rows that a lane loads to store columns of them; 1 where shared memory keeps rows."""
    shape, axes = static(copy.dst), copy.dst.axes
    if len(shape) < 2 or copy.src.dtype != copy.dst.dtype or layout.contiguous_run(axes[-1]) > 1:
        return 1
    rows = CROSSWISE_BYTES // copy.src.dtype.bytes
    if rows < 2:
        return 1
    run = layout.contiguous_run(axes[-2])
    if run % rows or shape[-2] % rows or crosswise_columns(copy, rows, threads) == 0:
        return 1
    return rows


def crosswise_columns(copy: Copy, rows: int, threads: int) -> int:
    """Neighbours along a row that a lane loads with `rows` rows; 0 when nothing divides."""
    shape = static(copy.dst)
    total = 1
    for extent in shape[:-2]:
        total *= extent
    columns = min(8, VECTOR_BYTES // copy.src.dtype.bytes)
    while columns >= 2:
        pieces = total * (shape[-2] // rows) * (shape[-1] // columns)
        if shape[-1] % columns == 0 and pieces % threads == 0:
            return columns
        columns //= 2
    return 0


def crosswise(
    shape: tuple[int, ...], rows: int, columns: int, threads: int, strides: tuple[int, int]
) -> FragmentLayout:
    """Pieces of ``rows x columns`` dealt to lanes along rows first.

    `strides` number a piece's registers along its rows and along its columns.
    """
    row_stride, column_stride = strides
    axes: list[list[FragmentMode]] = [[] for _ in shape]
    axes[-1].append(FragmentMode(columns, REGISTER, column_stride))
    axes[-2].append(FragmentMode(rows, REGISTER, row_stride))
    pieces = [*shape[:-2], shape[-2] // rows, shape[-1] // columns]
    left, step, register = threads, 1, rows * columns
    for axis in range(len(shape) - 1, -1, -1):
        across = _common(pieces[axis], left)
        if across > 1:
            axes[axis].append(FragmentMode(across, THREAD, step))
            step, left = step * across, left // across
        rest = pieces[axis] // across
        if rest > 1:
            axes[axis].append(FragmentMode(rest, REGISTER, register))
            register *= rest
    full = tuple(tuple(modes) or (FragmentMode(1, REGISTER, 1),) for modes in axes)
    return FragmentLayout(full, (FragmentMode(left, THREAD, step),) if left > 1 else ())


def _common(pieces: int, threads: int) -> int:
    """The largest number of lanes that divides both."""
    return max(d for d in range(1, pieces + 1) if pieces % d == 0 and threads % d == 0)
