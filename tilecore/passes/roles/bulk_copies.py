"""Which copies of a kernel its producer warps can take over, and the rings they go through."""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.hooks.records import AsyncCopyRequest, BulkCopyPlan, PipelinePlan
from tilecore.ir.attached import attached_in
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.compound import is_small
from tilecore.ir.dtypes import uint64
from tilecore.ir.expr import Expr, Load, Var, const, free_vars, walk
from tilecore.ir.layout import FragmentLayout, Layout, Mode
from tilecore.ir.program import Kernel
from tilecore.ir.simplify import known_multiple
from tilecore.ir.stmts import Allocate, Break, Continue, Copy, For, Gemm, Let, Stmt
from tilecore.ir.visit import bound_vars, buffers_in, walk_stmts
from tilecore.passes.producers import any_writes, brings_all
from tilecore.passes.roles.ring import Group, Ring, inlined
from tilecore.passes.roles.window_copies import WindowCopy, source_of
from tilecore.passes.scopes import Names, bytes_of, kernel_ranges


class BulkCopies:
    """One kernel, what is known to all of its warps, and the layouts of its buffers.

    Attributes:
        kernel: the kernel.
        names: unused names.
        context: target and hooks.
        layouts: of all buffers; slots are added as rings are made.
        common: statements that stand before all warp roles.
        known: variables that every warp can compute.
        slotted: author's buffer name -> the buffer with slots.
        stages: names of the buffers through which fragments leave.
        refusals: shared buffer -> why the copy engine does not fill it with windows.
    """

    def __init__(self, kernel: Kernel, names: Names, context: Context) -> None:
        self.kernel = kernel
        self.names = names
        self.context = context
        self.layouts: dict[str, Layout | FragmentLayout] = dict(kernel.layouts)
        self.common: list[Stmt] = []
        self.known: set[Var] = set(kernel.grid_vars)
        self.slotted: dict[str, Buffer] = {}
        self.stages: set[str] = set()
        self.refusals: dict[str, str] = {}

    def is_pure(self, value: Expr) -> bool:
        """True when every warp can compute a value at the kernel's start."""
        bound = {var for stmt in walk_stmts(self.kernel.body) for var in bound_vars(stmt)}
        if any(var in bound and var not in self.known for var in free_vars(value)):
            return False
        return all(
            node.buffer.scope is Scope.GLOBAL and not any_writes(self.kernel.body, node.buffer)
            for node in walk(value)
            if isinstance(node, Load)
        )

    def groups(self, loop: For, plan: PipelinePlan) -> list[Group]:
        """The loop's copies by first reader; none when something does not fit."""
        if any(isinstance(s, Break | Continue) for s in walk_stmts(loop.body)):
            return []
        if not (self.is_pure(loop.start) and self.is_pure(loop.extent)):
            return []
        lets = {s.var: s.value for s in loop.body if isinstance(s, Let)}
        copies = {k: s for k, s in enumerate(loop.body) if isinstance(s, Copy) and s.fills_shared}
        if not copies or not all(self.fits(copy, loop, lets) for copy in copies.values()):
            return []
        spans: dict[int, tuple[int, int]] = {}
        for k, copy in copies.items():
            readers = [
                other
                for other, s in enumerate(loop.body)
                if other != k and copy.dst.buffer in buffers_in((s,))
            ]
            if not readers or min(readers) < k:
                return []
            spans[k] = (min(readers), max(readers))
        found: list[Group] = []
        for own in _together(loop, copies, spans):
            first = min(spans[k][0] for k in own)
            group = tuple(copies[k] for k in own)
            ring = self.ring(group, plan.num_stages, loop)
            found.append(Group(group, ring, first, max(spans[k][1] for k in own)))
        return found

    def fits(self, copy: Copy, loop: For, lets: dict[Var, Expr]) -> bool:
        """True when the producer can take over a copy of a loop."""
        target = copy.dst.buffer
        if sum(isinstance(s, Copy) and s.dst.buffer == target for s in loop.body) != 1:
            return False
        outside = tuple(s for s in self.kernel.body if s != loop and not isinstance(s, Allocate))
        if target in buffers_in(outside):
            return False
        index = next(k for k, stmt in enumerate(loop.body) if stmt is copy)
        if not brings_all(loop.body, index, kernel_ranges(self.kernel)):
            return False
        self.known.add(loop.var)
        starts = [inlined(start, lets) for start in (*copy.src.starts, *copy.dst.starts)]
        known = all(is_small(start) and self.is_pure(start) for start in starts)
        self.known.discard(loop.var)
        return known and self.is_bulk(copy)

    def fits_once(self, copy: Copy, staying: list[Stmt]) -> bool:
        """True when the producer can take over a copy outside of loops."""
        if not copy.fills_shared:
            return False
        target = copy.dst.buffer
        others = tuple(s for s in self.kernel.body if s is not copy)
        before = staying[: next(k for k, s in enumerate(staying) if s is copy)]
        if any_writes(others, target) or target in buffers_in(tuple(before)):
            return False
        starts = (*copy.src.starts, *copy.dst.starts)
        return all(self.is_pure(start) for start in starts) and self.is_bulk(copy)

    def is_bulk(self, copy: Copy) -> bool:
        """True when the copy engine takes the copy, and its source does not change."""
        if any_writes(self.kernel.body, source_of(copy)):
            return False
        return self.bulk_plan(copy) is not None

    def bulk_plan(self, copy: Copy, parts: int = 1) -> BulkCopyPlan | None:
        """The backend's answer to a copy, with the layouts of now; None for a tensor at an
        address that only the kernel finds, which no map made before the launch describes."""
        if {copy.src.buffer.name, copy.dst.buffer.name} & attached_in(self.kernel.body):
            return None
        trial = dataclasses.replace(self.kernel, layouts=tuple(sorted(self.layouts.items())))
        windows = copy.windows if isinstance(copy, WindowCopy) else None
        plan = self.context.hooks.call(
            "tilecore_plan_bulk_copy",
            request=AsyncCopyRequest(copy, trial, parts, windows),
            target=self.context.target,
        )
        if plan is not None and plan.refused:
            self.refusals[copy.dst.buffer.name] = plan.refused
            return None
        return plan if plan is None or self._begins_aligned(copy, plan) else None

    def _begins_aligned(self, copy: Copy, plan: BulkCopyPlan) -> bool:
        """False for a load that may begin at places of the last axis that the engine cannot take;
        stores ask at run time."""
        if not plan.begins_at or copy.src.buffer.scope is not Scope.GLOBAL:
            return True
        start = copy.src.starts[-1]
        if known_multiple(start) % plan.begins_at == 0:
            return True
        return kernel_ranges(self.kernel).multiple(start) % plan.begins_at == 0

    def ring(self, copies: tuple[Copy, ...], slots: int, loop: For | None) -> Ring:
        """Slots for every destination of a group, and their barriers; one slot without a loop."""
        if loop is None:
            buffers = tuple(copy.dst.buffer for copy in copies)
        else:
            buffers = tuple(self.multi_buffer(copy.dst.buffer, slots) for copy in copies)
        label = copies[0].dst.buffer.name
        full = self.names.buffer(f"{label}_full", (slots,), uint64, Scope.SHARED)
        empty = self.names.buffer(f"{label}_empty", (slots,), uint64, Scope.SHARED)
        for barrier in (full, empty):
            self.layouts[barrier.name] = Layout.row_major((slots,))
        if loop is None:
            del self.layouts[empty.name]
            return Ring(slots, buffers, full, empty, Var(f"{label}_once"))
        simple = loop.start == const(0, loop.var.dtype) and loop.step == const(1, loop.var.dtype)
        counter = (
            loop.var if simple else Var(self.names.fresh(f"{loop.var.name}_step"), loop.var.dtype)
        )
        return Ring(slots, buffers, full, empty, counter)

    def multi_buffer(self, old: Buffer, slots: int) -> Buffer:
        """The buffer with a leading axis of slots, each at the start of a swizzle period."""
        new = dataclasses.replace(old, shape=(const(slots), *old.shape))
        layout = self.layouts[old.name]
        assert isinstance(layout, Layout)
        period = 128 // old.dtype.bytes
        if layout.swizzle is not None:
            period = 1 << (layout.swizzle.base + layout.swizzle.shift + layout.swizzle.bits)
        span = -(-layout.span // period) * period
        self.layouts[old.name] = Layout(((Mode(slots, span),), *layout.axes), layout.swizzle)
        self.slotted[old.name] = new
        return new


SMALL_SHARE = 8
"""A copy joins the group behind it when it has at most this part of its bytes."""


def _together(
    loop: For, copies: dict[int, Copy], spans: dict[int, tuple[int, int]]
) -> list[list[int]]:
    """Copies by first reader; little ones join those that are read next, before a contraction, or
    the first ones that are there for as long: their slots need no barriers of their own."""
    found: list[list[int]] = []
    for first in sorted({span[0] for span in spans.values()}):
        own = [k for k in copies if spans[k][0] == first]
        if found:
            earlier = found[-1]
            between = loop.body[min(spans[k][0] for k in earlier) : first]
            small = SMALL_SHARE * sum(bytes_of(copies[k].dst) for k in earlier)
            if small <= sum(bytes_of(copies[k].dst) for k in own) and not any(
                isinstance(s, Gemm) for s in between
            ):
                found[-1] = sorted([*earlier, *own])
                continue
        longer = _longer(own, found, copies, spans)
        if longer is not None:
            longer[:] = sorted([*longer, *own])
            continue
        found.append(own)
    return found


def _longer(
    own: list[int],
    found: list[list[int]],
    copies: dict[int, Copy],
    spans: dict[int, tuple[int, int]],
) -> list[int] | None:
    """The first group that little copies may join: read before them and no shorter."""
    last = max(spans[k][1] for k in own)
    small = SMALL_SHARE * sum(bytes_of(copies[k].dst) for k in own)
    for group in found:
        total = sum(bytes_of(copies[k].dst) for k in group)
        if small <= total and last <= max(spans[k][1] for k in group):
            return group
    return None
