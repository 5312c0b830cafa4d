"""Sums that an iteration uses up take turns in two sets of registers.

    for k: P = A(k) B(k); C += f(P)
      ->
    for j: P0 = A(4j) B(4j)
           P1 = A(4j + 1) B(4j + 1); wait for P0; C += f(P0)
           P0 = A(4j + 2) B(4j + 2); wait for P1; C += f(P1)
           P1 = A(4j + 3) B(4j + 3); wait for P0; C += f(P0)
           wait for P1; C += f(P1)
    what is left

Most of the time every warp group then has its next contraction under way while it works on the sums
of the one before. None is under way where the loop turns: assemblers that follow registers through
straight code only would run them one by one. Scaled 8-bit products are such loops. Work moves past
contractions that touch none of its operands, so results are those of the plain order. The schedule
applies where the number of iterations is known, and where the backend says that registers allow it
(`PipelinePlan.alternates`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import TRUE, Const, Expr, Load, Var, binary, const, walk
from tilecore.ir.stmts import Allocate, Block, For, Gemm, Intrinsic, Let, LoopKind, Parallel, Stmt
from tilecore.ir.visit import (
    buffers_in,
    exprs_of,
    map_exprs,
    map_stmts,
    substitute_block,
    walk_stmts,
)
from tilecore.passes.accesses import Access, accesses_of, covers
from tilecore.passes.roles.ring import AFTER_LANES_READ, Group, rebuffered
from tilecore.passes.roles.schedule_pieces import (
    RunsBeside,
    asynchronous,
    renamed,
    slots_of,
    wait_for,
)
from tilecore.passes.scopes import Names

AT_ONCE = 4
"""Iterations in a row before the loop turns: even, so that a set is not filled twice."""

Renaming = dict[str, Buffer]
"""Fragments by name -> the ones of the second set."""


@dataclass(frozen=True, slots=True)
class Alternating:
    """The parts of one iteration.

    Attributes:
        loop: the author's loop.
        groups: its copies.
        before: what stands before the contraction.
        gemm: the contraction, which clears its sums.
        after: what uses the sums up.
        second: the second set of `gemm`'s sums and of what `before` computes for `after`.
    """

    loop: For
    groups: list[Group]
    before: Block
    gemm: Gemm
    after: Block
    second: Renaming

    @property
    def steps(self) -> int:
        """Iterations."""
        assert isinstance(self.loop.extent, Const)
        return int(self.loop.extent.value)


def alternating(
    loop: For, groups: list[Group], outside: list[Stmt], runs_beside: RunsBeside, names: Names
) -> Alternating | None:
    """The parts of a loop that this schedule takes; None for all other loops.

    Args:
        loop: a loop that starts at 0 in steps of 1.
        groups: its copies.
        outside: the kernel's other statements.
        runs_beside: whether a gemm's atom runs beside its warps.
        names: unused names.
    """
    taken = {id(copy) for group in groups for copy in group.copies}
    staying = [s for s in loop.body if id(s) not in taken]
    gemms = [s for s in walk_stmts(tuple(staying)) if isinstance(s, Gemm)]
    if len(gemms) != 1 or not isinstance(loop.extent, Const) or int(loop.extent.value) < 2:
        return None
    (gemm,) = gemms
    if not any(s is gemm for s in staying) or gemm.clear_accum != TRUE or not runs_beside(gemm):
        return None
    at = next(k for k, s in enumerate(staying) if s is gemm)
    before, after = tuple(staying[:at]), tuple(staying[at + 1 :])
    sums = gemm.c.buffer
    if gemm.a.buffer.scope is not Scope.SHARED or sums.scope is not Scope.FRAGMENT:
        return None
    if not all(isinstance(s, Let | Parallel) for s in (*before, *after)):
        return None
    slots = {buffer.name for group in groups for buffer in group.ring.buffers}
    if sums in buffers_in(before) or slots & {b.name for b in buffers_in(after)}:
        return None
    written = {access.buffer.name: access.buffer for _, access in _writes((*before, *after))}
    if any(buffer.scope is not Scope.FRAGMENT for buffer in written.values()):
        return None
    computed = {access.buffer.name: access.buffer for _, access in _writes(before)}
    own = [sums, *computed.values()]
    if not all(_is_private(buffer, before, outside) for buffer in own):
        return None
    later = {access.buffer.name for _, access in _writes(after)}
    if later & {buffer.name for buffer in (*buffers_in((*before, gemm)), *own)} - {sums.name}:
        return None
    lets = {s.var for s in before if isinstance(s, Let)}
    if any(isinstance(node, Var) and node in lets for e in _exprs(after) for node in walk(e)):
        return None
    second = {b.name: dataclasses.replace(b, name=names.fresh(b.name)) for b in own}
    return Alternating(loop, groups, before, gemm, after, second)


def alternating_tile(parts: Alternating, round_: Var, names: Names) -> tuple[Stmt, ...]:
    """The consumers' loop of one tile, counting steps over all rounds."""
    base = Var(names.fresh("step_base"))
    times, left = divmod(parts.steps, AT_ONCE)
    number = Var(names.fresh("turn"))
    body = _several(parts, base, binary("mul", number, const(AT_ONCE)), AT_ONCE, names)
    loop = For(
        number, const(0), const(times), const(1), body, LoopKind.SERIAL, None,
        parts.loop.hints, parts.loop.loc,
    )  # fmt: skip
    rest = _several(parts, base, const(times * AT_ONCE), left, names) if left else ()
    declared = tuple(Allocate(buffer) for buffer in parts.second.values())
    start = Let(base, binary("mul", round_, parts.loop.extent))
    return (start, *declared, *((loop,) if times else ()), *rest)


def _several(
    parts: Alternating, base: Var, first: Expr, count: int, names: Names
) -> tuple[Stmt, ...]:
    """`count` iterations from `first` on; none is under way before or after them."""
    at = [binary("add", first, const(k)) for k in range(count)]
    result = list(renamed(tuple(_begin(parts, base, at[0], 0)), names))
    for k in range(1, count):
        result += renamed(tuple(_begin(parts, base, at[k], k % 2)), names)
        result += renamed(tuple(_end(parts, base, at[k - 1], (k - 1) % 2, 1)), names)
    last = count - 1
    return (*result, *renamed(tuple(_end(parts, base, at[last], last % 2, 0)), names))


def _begin(parts: Alternating, base: Var, at: Expr, which: int) -> list[Stmt]:
    """Iteration `at` up to its contraction, which is started, on one of the two sets."""
    step = binary("add", base, at)
    slots = slots_of(parts.groups, step)
    waits = [group.ring.wait_full(step) for group in parts.groups]
    block = _on(parts, (*parts.before, asynchronous(parts.gemm)), which, at)
    return [*waits, *(rebuffered(stmt, slots) for stmt in block)]


def _end(parts: Alternating, base: Var, at: Expr, which: int, running: int) -> list[Stmt]:
    """The rest of iteration `at`, while `running` contractions are under way."""
    step = binary("add", base, at)
    (gemm,) = _on(parts, (parts.gemm,), which, at)
    assert isinstance(gemm, Gemm)
    loaded = {copy.dst.buffer for group in parts.groups for copy in group.copies}
    by_lanes = not loaded.isdisjoint(buffers_in(parts.before))
    result: list[Stmt] = [wait_for(running, gemm)]
    result += AFTER_LANES_READ if by_lanes else [Intrinsic("sync_warp")]
    result += [group.ring.release(step, 0) for group in parts.groups]
    return [*result, *_on(parts, parts.after, which, at)]


def _on(parts: Alternating, block: Block, which: int, at: Expr) -> Block:
    """A block of iteration `at` on one of the two sets."""
    block = substitute_block(block, {parts.loop.var: at})
    if which == 0:
        return block

    def load(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer.name in parts.second:
            return Load(parts.second[node.buffer.name], node.indices)
        return None

    def visit(stmt: Stmt) -> Stmt:
        stmt = map_exprs(stmt, load)
        changes: dict[str, object] = {}
        for field in dataclasses.fields(stmt):
            value = getattr(stmt, field.name)
            if isinstance(value, Region) and value.buffer.name in parts.second:
                changes[field.name] = dataclasses.replace(
                    value, buffer=parts.second[value.buffer.name]
                )
            elif isinstance(value, Buffer) and value.name in parts.second:
                changes[field.name] = parts.second[value.name]
        return dataclasses.replace(stmt, **changes) if changes else stmt

    return map_stmts(block, visit)


# --- what may be done ----------------------------------------------------------------------------


def _is_private(buffer: Buffer, before: Block, outside: list[Stmt]) -> bool:
    """True for a fragment that every iteration writes anew, and nothing outside touches."""
    if buffer.scope is not Scope.FRAGMENT or any(
        isinstance(node, Load) and node.buffer == buffer for e in _exprs(before) for node in walk(e)
    ):
        return False
    if not all(covers(nest, access) for nest, access in _writes(before, buffer)):
        return False
    return not any(
        buffer in buffers_in((stmt,))
        for stmt in outside
        if not (isinstance(stmt, Allocate) and stmt.buffer == buffer and stmt.init is None)
    )


def _writes(block: Block, buffer: Buffer | None = None) -> list[tuple[Parallel, Access]]:
    return [
        (nest, access)
        for nest in block
        if isinstance(nest, Parallel)
        for access in accesses_of(nest)
        if access.is_write and buffer in (None, access.buffer)
    ]


def _exprs(block: Block) -> list[Expr]:
    return [expr for stmt in walk_stmts(block) for expr in exprs_of(stmt)]
