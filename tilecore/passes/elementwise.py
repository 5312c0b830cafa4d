"""Elementwise nests as one shape: `Parallel`, `Copy`, `Fill` and tile atomics.

A nest is run by spreading its iterations over threads with a fragment layout (the loop layout).
This module makes the nest, lists its accesses, picks the loop layout, and finds out by
enumeration whether a fragment's element is held by the thread that wants it, and in which
register.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping

from tilecore.ir.buffers import Region, Scope
from tilecore.ir.compound import Expr, count_leaves, nodes_of
from tilecore.ir.expr import (
    Const,
    Load,
    Var,
    as_dtype,
    dtype_of_expr,
    free_vars,
    reads_memory,
)
from tilecore.ir.layout import REGISTER, THREAD, FragmentLayout, FragmentMode
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import Atomic, Block, Copy, Fill, Let, Parallel, Stmt, Store
from tilecore.ir.visit import exprs_of, substitute_block, walk_stmts
from tilecore.passes.accesses import Access, accesses_of
from tilecore.passes.mixed_digits import digits_of, divided
from tilecore.passes.register_maps import register_map
from tilecore.passes.spread import Spread, compact_registers, default_spread

VECTOR_BYTES = 16
"""Widest access of one lane."""

_LONG = 16  # nodes of a value up to which it stands wherever its name is mentioned
_MOST_COPIED = 128  # nodes that the copies of a longer one may have, all together


def loop_vars(shape: tuple[Expr, ...]) -> tuple[Var, ...]:
    """The variables of a nest that was made from a statement without variables; each is as wide as
    its extent."""
    return tuple(Var(f"__{axis}", dtype_of_expr(extent)) for axis, extent in enumerate(shape))


def as_parallel(stmt: Stmt) -> Parallel | None:
    """The elementwise nest that `stmt` stands for, or None when it is not elementwise."""
    match stmt:
        case Parallel():
            return _inline_lets(stmt)
        case Copy(src=src, dst=dst, loc=loc):
            at = loop_vars(src.shape)
            value = as_dtype(Load(src.buffer, src.indices(at)), dst.dtype)
            body = (Store(dst.buffer, dst.indices(at), value, loc),)
            return Parallel(at, src.shape, body, stmt.hints, loc)
        case Fill(dst=dst, value=value, loc=loc):
            at = loop_vars(dst.shape)
            return Parallel(
                at, dst.shape, (Store(dst.buffer, dst.indices(at), value, loc),), (), loc
            )
        case Atomic(op=op, dst=dst, value=Region() as value, loc=loc):
            at = loop_vars(dst.shape)
            point = Region(dst.buffer, dst.indices(at), (None,) * dst.buffer.rank)
            loaded = as_dtype(Load(value.buffer, value.indices(at)), dst.dtype)
            one = Atomic(op, point, loaded, stmt.memory_order, None, loc)
            return Parallel(at, dst.shape, (one,), (), loc)
        case _:
            return None


def with_own_vars(stmt: Copy | Fill, fresh: Callable[[str], str]) -> Parallel:
    """The nest that `stmt` stands for, over variables with names of their own."""
    nest = as_parallel(stmt)
    assert nest is not None
    own: dict[Var, Expr] = {var: Var(fresh("at"), var.dtype) for var in nest.vars}
    return dataclasses.replace(
        nest, vars=tuple(own.values()), body=substitute_block(nest.body, own)
    )


def _inline_lets(nest: Parallel) -> Parallel:
    """Substitute integer Lets without loads: indices become functions of the loop variables.

    What is long and used often keeps its name: each of such names would multiply the next.
    """

    def visit(block: Block) -> Block:
        result: list[Stmt] = []
        mapping: dict[Var, Expr] = {}
        uses: Counter[Expr] | None = None
        for stmt in block:
            (stmt,) = substitute_block((stmt,), mapping)
            if isinstance(stmt, Let) and stmt.var.dtype.is_int and not reads_memory(stmt.value):
                if (nodes := nodes_of(stmt.value)) > _LONG and uses is None:
                    uses = _leaves(block)
                if uses is None or nodes <= _LONG or nodes * uses[stmt.var] <= _MOST_COPIED:
                    mapping[stmt.var] = stmt.value
                    continue
            result.append(stmt)
        return tuple(result)

    return Parallel(nest.vars, nest.extents, visit(nest.body), nest.hints, nest.loc)


def _leaves(block: Block) -> Counter[Expr]:
    """How often the expressions of a block mention names."""
    total: Counter[Expr] = Counter()
    for stmt in walk_stmts(block):
        for top in exprs_of(stmt):
            total.update(count_leaves(top))
    return total


def static_extents(nest: Parallel, ranges: Ranges) -> tuple[int, ...] | None:
    """Extents, or upper bounds of dynamic ones; None when one is unbounded."""
    found = []
    for extent in nest.extents:
        high = ranges.size(extent)
        if high is None:
            return None
        found.append(high)
    return tuple(found)


def vector_width(nest: Parallel, ranges: Ranges, threads: int) -> int:
    """Neighbouring iterations along the last axis that one thread should take together.

    The widest that keeps an access contiguous within 16 bytes, divides the extent, and leaves
    work for every thread.
    """
    extents = static_extents(nest, ranges)
    if not extents:
        return 1
    last = nest.vars[-1]
    hinted = dict(nest.hints).get("coalesced_width")
    widest = int(hinted) if hinted else 1
    if not hinted:
        for access in accesses_of(nest):
            if access.buffer.scope in (Scope.GLOBAL, Scope.SHARED) and _is_contiguous(access, last):
                widest = max(widest, VECTOR_BYTES * 8 // max(8, access.buffer.dtype.bits))
        if widest == 1 and all(a.buffer.scope is Scope.FRAGMENT for a in accesses_of(nest)):
            widest = 4
    total = 1
    for extent in extents:
        total *= extent
    while widest > 1 and (extents[-1] % widest or total // widest < threads):
        widest //= 2
    return max(1, widest)


def _is_contiguous(access: Access, last: Var) -> bool:
    """True when `last` advances the buffer's last index by one and no other index."""
    if not access.indices:
        return False
    form = dict(Ranges().regrouped(access.indices[-1]).terms)
    others = (last in free_vars(index) for index in access.indices[:-1])
    return form.get(last) == 1 and not any(others)


def loop_layout(
    nest: Parallel,
    layouts: Mapping[str, object],
    threads: int,
    ranges: Ranges,
    spread: Spread = default_spread,
) -> FragmentLayout | None:
    """The loop layout of a nest, given the fragment layouts known so far; where there are none,
    that of `spread`.

    Deterministic, so that every pass that asks gets the same answer. None when an extent is
    unbounded. Iterations that want an atomic operation's old value are run by one lane each: only
    the lane that made it knows it.
    """
    extents = static_extents(nest, ranges)
    if extents is None:
        return None
    alone = any(isinstance(s, Atomic) and s.previous is not None for s in walk_stmts(nest.body))
    candidates: list[tuple[int, FragmentLayout]] = []
    known = [
        (access, layout)
        for access in accesses_of(nest)
        if access.buffer.scope is Scope.FRAGMENT
        and isinstance(layout := layouts.get(access.buffer.name), FragmentLayout)
    ]
    seen: set[FragmentLayout] = set()
    for access, layout in known:
        derived = _layout_from(access, layout, nest.vars, extents)
        if derived is None or derived in seen or (alone and derived.replicas > 1):
            continue
        seen.add(derived)

        def fits(loop: FragmentLayout) -> int:
            return sum(
                register_map(nest, extents, a, loop, f, threads) is not None for a, f in known
            )

        fitting = fits(derived)
        if fitting == len(known):
            return derived
        halved = _halved(derived)
        if halved != derived and fits(halved) == len(known):
            return halved
        covered = sum(isinstance(index, Var) for index in access.indices)
        candidates.append((fitting * 8 + covered, derived))
    if candidates:
        return max(candidates, key=lambda item: item[0])[1]
    usual = spread(extents, vector_width(nest, ranges, threads), threads)
    return dataclasses.replace(usual, replication=()) if alone else usual


def _halved(layout: FragmentLayout) -> FragmentLayout:
    """The same layout, its register loops cut so that neighbours may take different places.

    Permutations of a few elements are affine in the digits of shorter loops.
    """

    def cut(mode: FragmentMode) -> tuple[FragmentMode, ...]:
        if mode.space != REGISTER or mode.extent % 2 or mode.extent == 2:
            return (mode,)
        inner = FragmentMode(2, REGISTER, mode.stride)
        return inner, FragmentMode(mode.extent // 2, REGISTER, 2 * mode.stride)

    axes = tuple(tuple(part for mode in axis for part in cut(mode)) for axis in layout.axes)
    return FragmentLayout(axes, layout.replication)


def _layout_from(
    access: Access, layout: FragmentLayout, loop_vars: tuple[Var, ...], extents: tuple[int, ...]
) -> FragmentLayout | None:
    """The loop layout in which each iteration runs where `access` finds its element."""
    modes_of: dict[Var, tuple[FragmentMode, ...]] = {}
    for axis, index in enumerate(access.indices):
        if isinstance(index, Var) and index in loop_vars and index not in modes_of:
            modes_of[index] = layout.axes[axis]
        elif (digits := digits_of(index, loop_vars, extents)) is not None:
            parts = divided(layout.axes[axis], tuple(extents[k] for k in digits))
            if parts is None or any(loop_vars[k] in modes_of for k in digits):
                return None
            modes_of |= {loop_vars[k]: part for k, part in zip(digits, parts, strict=True)}
        elif not isinstance(index, Const) or any(
            mode.space == THREAD and mode.extent > 1 for mode in layout.axes[axis]
        ):  # one place of an axis that is spread over threads: some of them have no part in it
            return None
    axes: list[tuple[FragmentMode, ...]] = []
    spare = sorted((m for m in layout.replication), key=lambda m: m.stride)
    register = layout.registers
    pending: list[int] = []
    for k, var in enumerate(loop_vars):
        if var in modes_of:
            axes.append(modes_of[var] or (FragmentMode(1, REGISTER, 1),))
            room = 1
            for mode in axes[-1]:
                room *= mode.extent
            if room < extents[k]:
                return None
        else:
            axes.append(())
            pending.append(k)
    for k in reversed(pending):
        modes: list[FragmentMode] = []
        needed = extents[k]
        while needed > 1 and spare:
            mode = spare.pop(0)
            modes.append(mode)
            needed = -(-needed // mode.extent)
        if needed > 1:
            modes.append(FragmentMode(needed, REGISTER, register))
            register *= needed
        axes[k] = tuple(modes) or (FragmentMode(1, REGISTER, 1),)
    return compact_registers(tuple(axes), tuple(spare))
