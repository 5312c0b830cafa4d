"""Set warps apart that do nothing but start copies: producer and consumer warps.

Applies to a kernel whose pipelined loops are all at its top level, are planned with producer warps
(hook ``tilecore_plan_pipeline``), and whose copies to shared memory a copy engine can take over
(hook ``tilecore_plan_bulk_copy``). With S slots a copied buffer, `full` and `empty` barriers a
slot, and copies that are first read together in one group:

    for k: copy A -> A_shared; copy B -> B_shared; gemm A_shared, B_shared -> C
      ->
    barrier.init full[s], 1; barrier.init empty[s], consumer warps; sync_block
    warps producer, one lane:                       warps consumers:
      for k:                                          for k:
        barrier.wait empty[k % S], turn + 1             barrier.wait full[k % S], turn
        barrier.arrive_expect full[k % S], bytes        gemm (asynchronous), wait for all but it
        bulk.load A, B -> slot k % S                    barrier.arrive empty[(k - 1) % S]

A turn is ``k / S % 2``. Kernels that do not fit are left as they are; `pipeline_loops` then
overlaps their copies with the warps that they have. Windows of an image (``tile.windows``) are
copies that only the copy engine can make: where it does not, lanes gather them. Runs after
fragments have their layouts: these count the author's threads, which the hint ``tile_threads``
keeps; the consumer warps come first.
"""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.hooks.records import PipelinePlan, PipelineRequest
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import boolean
from tilecore.ir.expr import Call, Expr, Var, binary, const, substitute, walk
from tilecore.ir.layout import Layout
from tilecore.ir.program import Kernel, Program
from tilecore.ir.stmts import (
    Allocate,
    Copy,
    For,
    Gemm,
    If,
    Intrinsic,
    Let,
    LoopKind,
    Stmt,
    WarpScope,
)
from tilecore.ir.visit import buffers_in, exprs_of, walk_stmts
from tilecore.passes.contraction import select_atom
from tilecore.passes.defer_sums import ACROSS, IN_LANE
from tilecore.passes.gather_windows import is_windows
from tilecore.passes.insert_barriers import BARRIER
from tilecore.passes.masks import GROUP, group_number, steps_of_groups
from tilecore.passes.plan_shared_memory import size_of
from tilecore.passes.roles.alternating_sums import alternating, alternating_tile
from tilecore.passes.roles.consumer_schedule import consumer_loop, is_chain
from tilecore.passes.roles.deferred_store import is_held
from tilecore.passes.roles.delayed_schedule import later_group
from tilecore.passes.roles.persistent_delayed import persistent_delayed
from tilecore.passes.roles.persistent_resident import persistent_resident
from tilecore.passes.roles.persistent_tiles import (
    at_zero,
    chained_tile,
    cluster_axis,
    loading_tile,
    makes_equal_steps,
    may_persist,
    persistent_kernel,
    plain_tile,
    step_counts,
)
from tilecore.passes.roles.producer_schedule import load_alone, producer_loop
from tilecore.passes.roles.ring import FIRST_LANE, Ring
from tilecore.passes.roles.schedule_pieces import renamed
from tilecore.passes.roles.shared_loads import SharedLoads
from tilecore.passes.roles.storer_schedule import leaving, storing_loop
from tilecore.passes.roles.taken_tiles import Role, TileWalk, storing_tiles, taken_ring
from tilecore.passes.roles.window_copies import as_copies, gathered_because, has_window_copies
from tilecore.passes.scopes import (
    Names,
    is_pipelined,
    kernel_ranges,
    per_kernel,
    with_hint,
)
from tilecore.passes.turns.teams import teams_of
from tilecore.passes.turns.turns_kernel import turns_kernel

ELECTED = Call("warp.elect", (), boolean)


def specialize_warps(program: Program, context: Context) -> Program:
    """See the module's text."""
    names = Names(program)

    def visit(kernel: Kernel) -> Kernel:
        if not any(is_windows(stmt) for stmt in walk_stmts(kernel.body)):
            return Specializer(kernel, names, context).run() or kernel
        trial = Specializer(as_copies(kernel, names), names, context)
        found = trial.run()
        if found is not None and not has_window_copies(found):
            return found
        kernel = gathered_because(kernel, names, trial.refusals)
        return Specializer(kernel, names, context).run() or kernel

    return per_kernel(program, visit)


class Specializer(SharedLoads):
    """Rewrites one kernel, or finds that it does not fit."""

    def run(self) -> Kernel | None:
        """The kernel with roles; None where it has none to gain or does not fit."""
        if teams_of(self.kernel) > 1:
            return turns_kernel(self)
        loops = [s for s in self.kernel.body if is_pipelined(s)]
        if not loops or sum(map(is_pipelined, walk_stmts(self.kernel.body))) != len(loops):
            return None
        if not self.may_apply():
            return None
        plans = [self.plan(loop) for loop in loops]  # type: ignore[arg-type]
        if any(plan.producer_warps < 1 for plan in plans):
            return None
        staying = self.split_common()
        if len(loops) == 1 and plans[0].persistent:
            loop = loops[0]
            assert isinstance(loop, For)
            kernel = self.persistent(loop, plans[0], staying, chained=True)
            kernel = kernel or persistent_delayed(self, loop, plans[0], staying)
            if kernel is None and not any(isinstance(s, Copy) and s.fills_shared for s in staying):
                kernel = self.persistent(loop, plans[0], staying, chained=False)
            kernel = kernel or persistent_resident(self, loop, plans[0], staying)
            if kernel is not None:
                return kernel
        producer: list[Stmt] = []
        consumer: list[Stmt] = []
        storer: list[Stmt] = []
        inits: list[Stmt] = []
        waiting: list[tuple[Buffer, Stmt]] = []
        warps = self.kernel.threads // self.context.target.lanes_per_warp
        for stmt in staying:
            if isinstance(stmt, Copy) and self.fits_once(stmt, staying):
                ring = self.ring((stmt,), 1, None)
                producer += self.produce_once(stmt, ring)
                inits += ring.declarations(warps)[::2]  # nobody waits for an empty slot
                waiting.append((stmt.dst.buffer, ring.wait_full(const(0))))
                continue
            for buffer, wait in [w for w in waiting if w[0] in buffers_in((stmt,))]:
                consumer.append(wait)
                waiting.remove((buffer, wait))
            if not is_pipelined(stmt):
                consumer.append(self.stored(stmt))
                continue
            groups = self.groups(stmt, plans[loops.index(stmt)])
            if not groups:
                return None
            plan = plans[loops.index(stmt)]
            if len(loops) == 1:
                groups = self.paired(stmt, groups, plan)
            later = later_group(stmt, groups, self.runs_beside, plan)
            producer += producer_loop(stmt, groups, later, self.names)
            before, steps = self.own_steps(stmt)
            consumer += before
            loop = self.with_bulk_adds(stmt)
            sent = leaving(self, stmt, plan, 2 * len(groups)) if later is None else []
            if sent:
                storer.append(storing_loop(stmt, sent, self.names))
                inits += [s for one in sent for s in one.ring.declarations(warps)]
            consumer += consumer_loop(loop, groups, self.runs_beside, self.names, plan, steps, sent)
            if loop is not stmt:  # their staging may be used otherwise from here on
                consumer += [Intrinsic("bulk.finish"), BARRIER]
            for group in groups:
                inits += group.ring.declarations(warps)
        if any(is_held(s) for s in walk_stmts(tuple(consumer))):
            consumer.append(Intrinsic("bulk.finish"))
        return self.assemble(inits, producer, consumer, plans[0].producer_warps, storer)

    def persistent(
        self, loop: For, plan: PipelinePlan, staying: list[Stmt], chained: bool
    ) -> Kernel | None:
        """The kernel with blocks that stay, when its one loop is a chain (or, not `chained`, reads
        all that it copies where it stands); else nothing changes."""
        lets = tuple(s for s in self.common if isinstance(s, Let))
        if not may_persist(self.kernel, loop):
            return None
        equal = makes_equal_steps(self.kernel, loop, lets)
        before = dict(self.layouts), dict(self.slotted), list(self.common)
        groups = self.groups(loop, plan)
        if not groups or is_chain(loop, groups, self.runs_beside) != chained:
            self.layouts, self.slotted, self.common = before
            return None
        axis = cluster_axis(self.kernel) if equal else None
        groups = [self.shared(group, loop, plan, lets, axis) for group in groups]
        sharers = max(group.ring.sharers for group in groups)
        warps = self.kernel.threads // self.context.target.lanes_per_warp
        sent = leaving(self, loop, plan)
        rings = [*(group.ring for group in groups), *(one.ring for one in sent)]
        inits = [stmt for ring in rings for stmt in ring.declarations(warps)]
        self.common = [s for s in self.common if not isinstance(s, Let)]
        kernel, first = persistent_kernel(self.kernel, self.names, sharers)
        walk = self.tile_walk(first, sharers, plan, equal)
        if walk.ring is not None:
            inits += walk.ring.declarations(warps + bool(sent))
        taken, filled = (Var(self.names.fresh(name)) for name in ("round", "round_ahead"))
        loaded, used = (None, None) if equal else step_counts(self.names)
        loads = (*lets, *loading_tile(loop, groups, filled, self.names, loaded))
        ahead = walk.tiles(filled, loads, Role.PRODUCER)
        producer = [*at_zero(loaded), *renamed(ahead, self.names)]
        rest = [stmt if stmt is loop else self.stored(stmt) for stmt in staying]
        late = self.deferred(loop, staying, rest) if chained else None
        work: list[Stmt] = [*lets]
        for stmt in rest:
            if stmt is loop and chained:
                work += chained_tile(loop, groups[0], taken, self.names, late, used)
            elif stmt is loop:
                outside = [s for s in staying if s is not loop]
                turns = alternating(loop, groups, outside, self.runs_beside, self.names)
                if turns is not None and plan.alternates and equal and not sent:
                    self.layouts |= {
                        new.name: self.layouts[old] for old, new in turns.second.items()
                    }
                    work += alternating_tile(turns, taken, self.names)
                else:
                    work += plain_tile(
                        loop, groups, self.runs_beside, taken, self.names, used, sent
                    )
            elif late is not None and stmt is late.store:
                work += late.keep()
            elif late is not None and late.declares(stmt):
                continue
            else:
                work.append(stmt)
        whole = walk.tiles(taken, tuple(work), Role.CONSUMER)
        consumer: list[Stmt] = [*at_zero(used), *whole]
        if late is not None:
            number = Var(self.names.fresh("part"))
            parts = For(
                number, const(0), const(late.rounds), const(1), tuple(late.part(number)),
                LoopKind.UNROLL,
            )  # fmt: skip
            (every,) = whole
            assert isinstance(every, For)
            some = binary("gt", every.extent, const(0))
            consumer = [*late.declarations(), every, If(some, (parts,))]
        if any(is_held(s) for s in walk_stmts(tuple(work))):
            consumer.append(Intrinsic("bulk.finish"))
        if not self.fits_memory(2 * len(rings)):
            self.layouts, self.slotted, self.common = before
            return None
        storer = storing_tiles(walk, loop, sent, lets, equal)
        self.kernel = kernel
        return self.assemble(inits, producer, consumer, plan.producer_warps, storer)

    def tile_walk(self, first: Var, sharers: int, plan: PipelinePlan, equal: bool) -> TileWalk:
        """The way through the tiles: in rounds, or, where they make unequally many steps, from a
        counter if the launch has one."""
        ring = taken_ring(self, "tile") if plan.takes_tiles and not equal else None
        return TileWalk(self.kernel, first, sharers, self.names, ring)

    def may_apply(self) -> bool:
        """Only kernels whose author left threads and barriers to the compiler."""
        return not any(
            isinstance(s, WarpScope)
            or (isinstance(s, Intrinsic) and s.op not in ("tile.reduce", IN_LANE, ACROSS))
            or any(
                isinstance(node, Call) and node.op in ("block.thread", "lane.id")
                for expr in exprs_of(s)
                for node in walk(expr)
            )
            for s in walk_stmts(self.kernel.body)
        )

    def plan(self, loop: For) -> PipelinePlan:
        """How many slots the loop gets in the shared memory that is left, by the hook."""
        used = sum(
            size_of(buffer, layout)
            for buffer in buffers_in(self.kernel.body)
            if isinstance(layout := self.layouts.get(buffer.name), Layout)
        )
        free = max(0, self.context.target.smem_bytes - used)
        return self.context.hooks.call(
            "tilecore_plan_pipeline",
            request=PipelineRequest(loop, self.kernel, free, self.context.options),
            target=self.context.target,
        )

    def split_common(self) -> list[Stmt]:
        """Move pure scalars and shared buffers in front; the rest, in order."""
        rest: list[Stmt] = []
        for stmt in self.kernel.body:
            if isinstance(stmt, Let) and self.is_pure(stmt.value):
                self.common.append(stmt)
                self.known.add(stmt.var)
            elif isinstance(stmt, Allocate) and stmt.buffer.scope is Scope.SHARED:
                self.common.append(stmt)
            else:
                rest.append(stmt)
        return rest

    def produce_once(self, copy: Copy, ring: Ring) -> list[Stmt]:
        """A copy outside of loops, by the producer."""
        return load_alone(copy, ring, copy.dst, const(0))[1:]  # a slot that is filled once is free

    def own_steps(self, loop: For) -> tuple[list[Stmt], Expr | None]:
        """How many of a loop's steps the lane's group takes, with what defines it; None is all."""
        gemms = [s for s in loop.body if isinstance(s, Gemm)]
        if not gemms:
            return [], None
        scores = gemms[0].c.buffer
        layout = self.layouts.get(scores.name)
        ranges = kernel_ranges(self.kernel)
        found = steps_of_groups(self.kernel, loop, scores, layout, ranges)
        atom = select_atom(gemms[0], self.kernel.threads, self.context)
        if found is None or atom is None or found[1] % atom.lanes:
            return [], None
        count, lanes = found
        group, own = Var(self.names.fresh("lane_group")), Var(self.names.fresh("own_steps"))
        value = substitute(count, {GROUP: group})
        return [Let(group, group_number(lanes)), Let(own, value)], own

    # --- the two sides -------------------------------------------------------------------------

    def assemble(
        self,
        inits: list[Stmt],
        producer: list[Stmt],
        consumer: list[Stmt],
        extra: int,
        storer: list[Stmt] | None = None,
    ) -> Kernel:
        """The kernel of all roles; `extra` warps more are the producers and, of these, the second
        one the storer if there is one."""
        kernel = self.kernel
        width = self.context.target.lanes_per_warp
        tile_threads = kernel.threads * teams_of(kernel)
        warps = tile_threads // width
        common = [
            dataclasses.replace(s, buffer=self.slotted[s.buffer.name])
            if isinstance(s, Allocate) and s.buffer.name in self.slotted
            else s
            for s in self.common
        ]
        barriers = [s for s in inits if isinstance(s, Allocate)]
        setup = tuple(s for s in inits if not isinstance(s, Allocate))
        first = WarpScope(0, 1, (If(FIRST_LANE, (*setup, Intrinsic("barrier.publish"))),), "setup")
        one_lane = WarpScope(warps, warps + 1, (If(ELECTED, tuple(producer)),), "producer")
        fewer, more = Intrinsic("registers.fewer"), Intrinsic("registers.more")
        few: tuple[Stmt, ...] = (fewer, one_lane)
        if storer:
            storing = (If(ELECTED, tuple(storer)),)
            few = (*few, WarpScope(warps + 1, warps + 2, storing, "storer"))
        producers = WarpScope(warps, warps + extra, few, "producers")
        consumers = WarpScope(0, warps, (more, *consumer), "consumers")
        body: tuple[Stmt, ...] = (*common, *barriers, first, BARRIER, producers, consumers)
        if kernel.cluster != (1, 1, 1):  # neither begins nor ends before the other blocks
            meet = Intrinsic("cluster.sync")
            body = (*common, *barriers, first, meet, producers, consumers, meet)
        hints = with_hint(kernel.hints, "tile_threads", kernel.threads)
        return dataclasses.replace(
            kernel,
            threads=tile_threads + extra * width,
            body=body,
            layouts=tuple(sorted(self.layouts.items())),
            hints=hints,
        )
