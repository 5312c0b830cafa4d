"""Which stores of a kernel the copy engine takes over, and what they leave through."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import TypeGuard

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import DType, boolean
from tilecore.ir.expr import Expr, Unary, binary, const, dtype_of_expr
from tilecore.ir.layout import FragmentLayout, Layout
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import Allocate, Atomic, Block, Copy, For, If, Intrinsic, Stmt
from tilecore.ir.visit import buffers_in, walk_stmts
from tilecore.passes.memory_effects import box_of
from tilecore.passes.plan_shared_memory import ALIGNMENT, aligned, size_of
from tilecore.passes.roles.bulk_copies import BulkCopies
from tilecore.passes.roles.deferred_store import DeferredStore, deferred_store
from tilecore.passes.scopes import kernel_ranges, whole, with_hint


class BulkStores(BulkCopies):
    """One kernel, with its stores on their way through staging buffers."""

    def stored(self, stmt: Stmt, instead: Block = (), ranges: Ranges | None = None) -> Stmt:
        """A copy of a fragment to global memory, or its addition to what is there, through the copy
        engine, where it takes it; also under a condition that all lanes of the block share.

        `instead` are statements that do not run where this one does, `ranges` what is known here.
        """
        ranges = kernel_ranges(self.kernel) if ranges is None else ranges
        if isinstance(stmt, If) and self.is_pure(stmt.condition):
            holds, not_then = ranges.assume(stmt.condition), (*instead, *stmt.otherwise)
            fails = ranges.assume(Unary("not", stmt.condition, boolean))
            then = tuple(self.stored(s, not_then, holds) for s in stmt.then)
            otherwise = tuple(self.stored(s, (*instead, *stmt.then), fails) for s in stmt.otherwise)
            return dataclasses.replace(stmt, then=then, otherwise=otherwise)
        hints: tuple[tuple[str, bool], ...] = ()
        original = stmt
        if isinstance(stmt, Atomic) and isinstance(stmt.value, Region) and stmt.op == "add":
            if stmt.memory_order != "relaxed":
                return stmt
            stmt, hints = Copy(stmt.value, stmt.dst, (), stmt.loc), (("adds", True),)
        if not isinstance(stmt, Copy) or stmt.src.buffer.scope is not Scope.FRAGMENT:
            return original
        if stmt.dst.buffer.scope is not Scope.GLOBAL:
            return original
        never = {id(s) for s in walk_stmts(instead)}
        others = [
            s
            for s in walk_stmts(self.kernel.body)
            if id(s) not in never and not any(inner is original for inner in walk_stmts((s,)))
        ]
        if not all(_are_apart(stmt.dst, s) for s in others if stmt.dst.buffer in buffers_in((s,))):
            return original
        answer = self.bulk_plan(stmt)
        if answer is None or answer.staging is None:
            return original
        staging = self.staging(f"{stmt.src.buffer.name}_stage", stmt.dst.dtype, answer.staging)
        args = (stmt.src, stmt.dst, whole(staging))
        store = Intrinsic("bulk.store_fragment", args, hints, stmt.loc)
        fits = _can_begin(stmt.dst, answer.begins_at, ranges) if answer.begins_at else None
        return store if fits is None else If(fits, (store,), (original,), stmt.loc)

    def with_bulk_adds(self, loop: For) -> For:
        """The loop with its additions of fragments to global memory through the copy engine; the
        loop itself where there are none."""
        body = tuple(self.stored(s) if isinstance(s, Atomic) else s for s in loop.body)
        if all(new is old for new, old in zip(body, loop.body, strict=True)):
            return loop
        return dataclasses.replace(loop, body=body)

    def staging(self, name: str, dtype: DType, layout: Layout) -> Buffer:
        """A buffer through which fragments leave; stores one after the other use the same."""
        for stmt in self.common:
            if not isinstance(stmt, Allocate) or stmt.buffer.name not in self.stages:
                continue
            if (stmt.buffer.dtype, self.layouts[stmt.buffer.name]) == (dtype, layout):
                return stmt.buffer
        return self._new_staging(name, dtype, layout)

    def _new_staging(self, name: str, dtype: DType, layout: Layout) -> Buffer:
        made = self.names.buffer(name, layout.shape, dtype, Scope.SHARED)
        self.layouts[made.name] = layout
        self.stages.add(made.name)
        self.common.append(Allocate(made))
        return made

    def stored_apart(self, work: list[Stmt], barriers: int) -> list[Stmt]:
        """`work` with staging of its own for each of a tile's stores, if there is room beside so
        many buffers of barriers: none then waits until the copy engine has read another one."""
        stores = [s for s in work if _is_store(s)]
        buffers = {r.buffer for s in stores for r in s.args[2:] if isinstance(r, Region)}
        if len(stores) < 2 or len(buffers) != 1:
            return work
        if sum(map(_is_store, walk_stmts(tuple(work)))) != len(stores):
            return work  # one that is not always made, or that steps make
        (first,) = buffers
        layout = self.layouts[first.name]
        assert isinstance(layout, Layout)
        common, layouts, result = list(self.common), dict(self.layouts), list(work)
        for number, store in enumerate(stores):
            src, dst, staging = store.args
            assert isinstance(src, Region)
            if number:
                staging = whole(self._new_staging(f"{src.buffer.name}_stage", first.dtype, layout))
            hints = with_hint(store.hints, "later", len(stores) - 1)
            new = dataclasses.replace(store, args=(src, dst, staging), hints=hints)
            result[work.index(store)] = new
        if self.fits_memory(barriers):
            return result
        self.common, self.layouts = common, layouts
        return work

    def deferred(self, loop: For, staying: list[Stmt], rest: list[Stmt]) -> DeferredStore | None:
        """The tile's store, if the next tile's first steps can run above it."""
        copy = staying[-1]
        if not isinstance(copy, Copy) or rest[-1] is copy:
            return None
        answer = self.bulk_plan(copy)
        layout = self.layouts.get(copy.src.buffer.name)
        if answer is None or not isinstance(layout, FragmentLayout):
            return None
        return deferred_store(loop, rest, layout, answer.rounds, self.names)

    def fits_memory(self, barriers: int, bytes_each: int = ALIGNMENT) -> bool:
        """True when all shared buffers, and so many buffers of barriers, fit side by side."""
        shared = [s.buffer for s in self.common if isinstance(s, Allocate)]
        total = sum(
            aligned(size_of(buffer, layout))
            for buffer in shared
            if isinstance(layout := self.layouts[buffer.name], Layout)
        )
        return total + barriers * bytes_each <= self.context.target.smem_bytes


def _is_store(stmt: Stmt) -> TypeGuard[Intrinsic]:
    return isinstance(stmt, Intrinsic) and stmt.op == "bulk.store_fragment"


def _are_apart(region: Region, other: Stmt) -> bool:
    """True for a copy of a fragment to another part of the same buffer."""
    if not isinstance(other, Copy) or other.src.buffer == region.buffer:
        return False
    ranges = Ranges()
    return box_of(region, ranges).is_disjoint(box_of(other.dst, ranges), ranges)


def _can_begin(region: Region, multiple: int, ranges: Ranges) -> Expr | None:
    """That a region begins before no side of its tensor, and at a multiple of so many elements of
    the last axis; None where that is known."""
    zeros = [const(0, dtype_of_expr(start)) for start in region.starts]
    inside = map(binary, itertools.repeat("ge"), region.starts, zeros)
    unknown = [condition for condition in inside if not ranges.proves(condition)]
    last, zero = region.starts[-1], zeros[-1]
    if ranges.multiple(last) % multiple:
        over = binary("floormod", last, const(multiple, zero.dtype))
        unknown.append(binary("eq", over, zero))
    return functools.reduce(functools.partial(binary, "and"), unknown) if unknown else None
