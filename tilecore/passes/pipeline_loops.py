"""Overlap the iterations of `T.Pipelined` loops: copies run ahead of the statements that use them.

A plan (hook ``tilecore_plan_pipeline``) gives each statement a stage and a place. Copies from
global to shared memory in an earlier stage are issued that many iterations ahead, into their own
slot of a multi-buffered destination; all else keeps its order. With distance d and S slots:

    for t in range(d): if t < n: async.copy(A[t] -> A_shared[t % S]); async.commit     (prologue)
    for k in range(n):                                                                 (steady)
        async.wait(groups that may still be in flight)
        if k + d < n: async.copy(A[k + d] -> A_shared[(k + d) % S])
        async.commit                                    (even when empty: counts stay constant)
        ... statements of iteration k, reading slot k % S ...

There is no epilogue: the last copies are predicated. Loops whose copies cannot run asynchronously,
or with break or continue at their top level, run serially with the same result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tilecore.hooks.context import Context
from tilecore.hooks.records import PipelinePlan, PipelineRequest
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.compound import is_small
from tilecore.ir.expr import Expr, Var, all_of, binary, const, dtype_of_expr
from tilecore.ir.layout import FragmentLayout, Layout, Mode
from tilecore.ir.program import Kernel, Program
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import (
    Allocate,
    Block,
    Break,
    Continue,
    Copy,
    For,
    If,
    Let,
    LoopKind,
    Stmt,
)
from tilecore.ir.visit import buffers_in, map_stmts, walk_stmts
from tilecore.passes.async_copies import COMMIT, Way, async_way, issue, operations_of, wait
from tilecore.passes.hold_operands import hold_operands
from tilecore.passes.plan_shared_memory import aligned, size_of
from tilecore.passes.producers import (
    Producer,
    any_writes,
    brings_all,
    groups_of,
    is_issued_first,
    is_used_outside,
    last_stage,
    sequence,
    writes,
)
from tilecore.passes.register_ahead import RegisterAhead, can_wait
from tilecore.passes.roles.ring import inlined, rebuffered, substituted
from tilecore.passes.scopes import (
    Names,
    is_pipelined,
    kernel_ranges,
    loads_in,
    per_kernel,
    rewrite_block,
)
from tilecore.passes.stagger import Staggered, form_of


def pipeline_loops(program: Program, context: Context) -> Program:
    """See the module's text."""
    names = Names(program)

    def visit(kernel: Kernel) -> Kernel:
        return Pipeliner(kernel, kernel_ranges(kernel, program.symbols), names, context).run()

    return per_kernel(program, visit)


class Pipeliner:
    """Rewrites one kernel."""

    def __init__(self, kernel: Kernel, ranges: Ranges, names: Names, context: Context) -> None:
        self.kernel = kernel
        self.ranges = ranges
        self.names = names
        self.context = context
        self.layouts: dict[str, Layout | FragmentLayout] = dict(kernel.layouts)
        self.replaced: dict[str, Buffer] = {}

    def run(self) -> Kernel:
        """The kernel with every pipelined loop rewritten."""
        body = rewrite_block(self.kernel.body, self.visit)
        body = map_stmts(body, self.reallocate)
        layouts = tuple(sorted(self.layouts.items()))
        return dataclasses.replace(self.kernel, body=body, layouts=layouts)

    def reallocate(self, stmt: Stmt) -> Stmt | None:
        """Declarations of buffers that got slots."""
        if isinstance(stmt, Allocate) and stmt.buffer.name in self.replaced:
            return dataclasses.replace(stmt, buffer=self.replaced[stmt.buffer.name])
        return None

    def visit(self, stmt: Stmt) -> Block | None:
        """The statements that take the place of a pipelined loop."""
        if not is_pipelined(stmt):
            return None
        loop = dataclasses.replace(stmt, body=rewrite_block(stmt.body, self.visit))
        producers, plan = self.producers(loop)
        if not producers:
            return (dataclasses.replace(loop, kind=LoopKind.SERIAL, pipeline=None),)
        if plan.through_registers:
            held: Block = ()
            if plan.hold_operands:
                held, loop = hold_operands(
                    loop, self.kernel, self.layouts, self.names, self.context
                )
            form = form_of(self, loop, producers) if plan.staggered else None
            if form is not None:
                return Staggered(self, loop, form).expand(held)
            return RegisterAhead(self, loop, producers).expand(held)
        return self.expand(loop, producers, plan)

    # --- what runs ahead -----------------------------------------------------------------------

    def producers(self, loop: For) -> tuple[list[Producer], PipelinePlan]:
        """The copies that run ahead, in the order of their issue, and the plan."""
        request = PipelineRequest(loop, self.kernel, self.free_bytes(), self.context.options)
        plan = self.context.hooks.call(
            "tilecore_plan_pipeline", request=request, target=self.context.target
        )
        last = last_stage(loop, plan)
        if any(isinstance(s, Break | Continue) for s in walk_stmts(loop.body)):
            return [], plan
        found = []
        for index, stmt in enumerate(loop.body):
            if not isinstance(stmt, Copy) or plan.stage[index] >= last:
                continue
            way = self.way(stmt, plan)
            if way is not None and self.may_run_ahead(stmt, index, loop):
                distance = last - plan.stage[index]
                found.append(Producer(index, stmt, way, distance, 1))
        if plan.through_registers:
            return [dataclasses.replace(p, distance=1, slots=plan.num_stages) for p in found], plan
        order = sequence(loop.body, found, plan)
        with_slots = [
            dataclasses.replace(p, slots=p.distance + is_issued_first(p, order, loop.body))
            for p in found
        ]
        return sorted(with_slots, key=lambda p: order.index(p.index)), plan

    def way(self, copy: Copy, plan: PipelinePlan) -> Way | None:
        """How a copy runs ahead (of width 0 where lanes hold what it moves); None: it cannot."""
        if plan.through_registers:
            return Way(0) if can_wait(copy) else None
        return async_way(copy, self.kernel, self.ranges, self.context)

    def free_bytes(self) -> int:
        """Shared memory that one copy of each buffer leaves."""
        used = sum(
            size_of(buffer, layout)
            for buffer in buffers_in(self.kernel.body)
            if isinstance(layout := self.layouts.get(buffer.name), Layout)
        )
        return max(0, self.context.target.smem_bytes - used)

    def may_run_ahead(self, copy: Copy, index: int, loop: For) -> bool:
        """True when only this loop sees the destination, from the copy on, and nothing in it feeds
        the source."""
        target = copy.dst.buffer
        writers = [k for k, s in enumerate(loop.body) if writes(s, target)]
        if target.name in self.replaced or writers != [index]:
            return False
        if is_used_outside(self.kernel.body, loop.var, target):
            return False
        if not brings_all(loop.body, index, self.ranges):
            return False
        source = [*copy.src.starts, *copy.dst.starts]
        lets = {s.var: s.value for s in loop.body if isinstance(s, Let)}
        for expr in source:
            if not is_small(start := inlined(expr, lets)):  # it is computed anew for each round
                return False
            for load in loads_in(start):
                if load.buffer.scope is not Scope.GLOBAL or any_writes(loop.body, load.buffer):
                    return False
        return not any_writes(loop.body, copy.src.buffer)

    # --- the new loop --------------------------------------------------------------------------

    def expand(self, loop: For, producers: list[Producer], plan: PipelinePlan) -> Block:
        """The prologue, the steady loop and the last wait."""
        simple = loop.start == const(0, loop.var.dtype) and loop.step == const(1, loop.var.dtype)
        dtype = loop.var.dtype
        counter = loop.var if simple else Var(self.names.fresh(f"{loop.var.name}_step"), dtype)
        lets = {s.var: s.value for s in loop.body if isinstance(s, Let)}
        slotted = {p.copy.dst.buffer.name: self.multi_buffer(p) for p in producers}

        def at(step: Expr) -> Expr:
            return binary("add", loop.start, binary("mul", step, loop.step))

        def copy_at(producer: Producer, step: Expr) -> Stmt:
            mapping = {loop.var: at(step)}
            src = substituted(producer.copy.src, lets, mapping)
            dst = substituted(producer.copy.dst, lets, mapping)
            dst = self.slot(dst, producer, step, slotted[dst.buffer.name])
            return issue(dataclasses.replace(producer.copy, src=src, dst=dst), producer.way)

        def issue_at(group: list[Producer], step: Expr) -> Block:
            copies = tuple(copy_at(p, binary("add", step, const(p.distance, dtype))) for p in group)
            ahead = binary("add", step, const(group[0].distance, dtype))
            exists = binary("lt", ahead, loop.extent)
            return copies if self.ranges.proves(exists) else (If(exists, copies),)

        order = sequence(loop.body, producers, plan)
        groups = groups_of(producers, order, loop.body)
        steady = self.steady(loop, order, groups, counter, slotted, issue_at)
        prologue: list[Stmt] = []
        for step in range(-max(p.distance for p in producers), 0):
            for group in groups:
                if step + group[0].distance >= 0:
                    prologue += issue_at(group, const(step, dtype))
                prologue.append(COMMIT)
        head = () if simple else (Let(loop.var, at(counter), loop.loc),)
        zero, one = const(0, dtype), const(1, dtype)
        new = For(
            counter,
            zero,
            loop.extent,
            one,
            (*head, *steady),
            LoopKind.SERIAL,
            None,
            loop.hints,
            loop.loc,
        )
        return (*prologue, new, wait(0))  # nothing is left; the checks then know it, too

    def steady(
        self,
        loop: For,
        order: list[int],
        groups: list[list[Producer]],
        counter: Var,
        slotted: dict[str, Buffer],
        issue_at: Callable[[list[Producer], Expr], Block],
    ) -> list[Stmt]:
        """One iteration: waits, issues and the statements that stay, in order."""
        producers = {p.index: p for group in groups for p in group}
        leaders = {group[0].index: number for number, group in enumerate(groups)}
        result: list[Stmt] = []
        waited: set[int] = set()
        committed = 0

        def wait_for(number: int) -> None:
            if number not in waited:
                waited.add(number)
                later = groups[number][0].distance * len(groups) - number - 1 + committed
                result.extend(self.wait_for(groups, later, committed, counter, loop))

        for k in order:
            stmt = loop.body[k]
            if k in leaders:
                group = groups[leaders[k]]
                if is_issued_first(group[0], order, loop.body):
                    wait_for(leaders[k])  # one barrier then serves the wait and the reused slot
                result += issue_at(group, counter)
                result.append(COMMIT)
                committed += 1
            if k in producers:
                continue
            touched = {buffer.name for buffer in buffers_in((stmt,))}
            for number, group in enumerate(groups):
                if any(p.copy.dst.buffer.name in touched for p in group):
                    wait_for(number)
            result.append(self.rebuffer(stmt, list(producers.values()), counter, slotted))
        return result

    def wait_for(
        self, groups: list[list[Producer]], later: int, committed: int, counter: Var, loop: For
    ) -> Block:
        """A wait that leaves the newest `later` groups in flight.

        Where copies are counted, groups of iterations that do not exist have none: then nothing
        is left in flight.
        """
        if later == 0 or not any(p.way.in_lane_order for group in groups for p in group):
            return (wait(later),)
        operations, exists = 0, []
        for back in range(1, later + 1):
            round_, number = divmod(committed - back, len(groups))
            group = groups[number]
            operations += sum(
                operations_of(p.copy, p.way, self.kernel.threads)
                for p in group if p.way.in_lane_order
            )  # fmt: skip
            ahead = const(round_ + group[0].distance, counter.dtype)
            exists.append(binary("lt", binary("add", counter, ahead), loop.extent))
        return (If(all_of(exists), (wait(later, operations),), (wait(0, 0),)),)

    def multi_buffer(self, producer: Producer) -> Buffer:
        """The destination with a leading axis of slots (itself when one is enough)."""
        old = producer.copy.dst.buffer
        if producer.slots == 1:
            return old
        slots = const(producer.slots)
        new = dataclasses.replace(old, shape=(slots, *old.shape))
        layout = self.layouts[old.name]
        assert isinstance(layout, Layout)
        span = aligned(layout.span * old.dtype.bytes) // old.dtype.bytes
        axes = ((Mode(producer.slots, span),), *layout.axes)
        self.layouts[old.name] = Layout(axes, layout.swizzle)
        self.replaced[old.name] = new
        return new

    def slot(self, region: Region, producer: Producer, step: Expr, buffer: Buffer) -> Region:
        """A region of a producer's destination in the slot of iteration `step`."""
        if producer.slots == 1:
            return region
        return Region(
            buffer, (_slot(step, producer.slots), *region.starts), (None, *region.extents)
        )

    def rebuffer(
        self, stmt: Stmt, producers: list[Producer], counter: Expr, slotted: dict[str, Buffer]
    ) -> Stmt:
        """A statement of iteration `counter`, reading the slots of that iteration."""
        slots = ((p.copy.dst.buffer.name, p.slots) for p in producers)
        used = {name: (slotted[name], _slot(counter, n)) for name, n in slots if n > 1}
        return rebuffered(stmt, used)


def _slot(step: Expr, slots: int) -> Expr:
    dtype = dtype_of_expr(step)
    return binary("floormod", step, const(slots, dtype))
