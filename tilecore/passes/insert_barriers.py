"""Insert the block-wide barriers that memory accesses need: all of them, and no other.

Two accesses conflict when they may touch one place, one of them writes, and no barrier stands
between them. The check walks the kernel with the set of accesses since the last barrier; loops are
walked again with what the previous iteration left. Barriers are placed as late as possible, right
before the statement that conflicts; afterwards each one is taken out for a trial, and stays out if
the check still finds no conflict. An asynchronous write counts from its wait, too: the barrier
between issue and wait does not show it to other lanes. What a started contraction reads counts
from its wait, too: other lanes may write there only behind a barrier after that.

`find_conflicts` is the checker; tests use it to show that every barrier is needed.
"""

from __future__ import annotations

import dataclasses

from tilecore.errors import VerifyError
from tilecore.hooks.context import Context
from tilecore.ir.lane_dependence import is_per_lane, lane_dependent_names
from tilecore.ir.program import Kernel, Program
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import Block, Intrinsic, Stmt
from tilecore.ir.visit import BODY_FIELDS, walk_stmts
from tilecore.passes.barrier_conflicts import Conflict, Memo, find_conflicts, first_conflict
from tilecore.passes.memory_effects import NEXT_BLOCK, WRITE
from tilecore.passes.scopes import kernel_ranges, per_kernel, rewrite_block

BARRIER = Intrinsic("sync_block")


def insert_barriers(program: Program, context: Context) -> Program:
    """See the module's text."""

    def visit(kernel: Kernel) -> Kernel:
        ranges = kernel_ranges(kernel, program.symbols)
        per_lane = is_per_lane(kernel.body)
        memo = Memo(lane_dependent_names(kernel.body) if per_lane else frozenset())
        tried: Conflict | None = None
        while first := first_conflict(kernel, ranges, memo):
            if first.earlier.is_async and first.is_same_pair(tried):
                raise VerifyError(
                    f"{first.later.box.buffer.name} is touched while an asynchronous copy to it is"
                    " under way and no wait stands between"
                )
            if _is_in_phases(kernel.body, first.path):
                raise VerifyError(
                    f"{first.later.box.buffer.name} is touched by halves of the warps that are a"
                    " phase apart, and less than two phases lie between"
                )
            tried = first
            kernel = _separate(kernel, first, ranges, memo)
        if not per_lane:  # else barriers that the author wrote are meant
            kernel = _without_needless(kernel, ranges, memo)
        return dataclasses.replace(kernel, body=rewrite_block(kernel.body, _without_mark))

    return per_kernel(program, visit)


def _without_mark(stmt: Stmt) -> Block | None:
    """Where a block that stays begins another tile matters to the check alone."""
    return () if stmt == Intrinsic(NEXT_BLOCK) else None


def _separate(kernel: Kernel, conflict: Conflict, ranges: Ranges, memo: Memo) -> Kernel:
    """`kernel` with a barrier between the two accesses.

    Before the outermost branch around the later one that does it, so that all paths meet there.
    """
    path = conflict.path
    for depth in range(1, len(path)):
        if path[depth] not in ("then", "otherwise"):
            continue
        trial = dataclasses.replace(kernel, body=_insert(kernel.body, path[:depth]))
        left = find_conflicts(trial, ranges, memo)
        if not any(conflict.is_same_pair(other) for other in left):
            return trial
    return dataclasses.replace(kernel, body=_insert(kernel.body, path))


def _is_in_phases(block: Block, path: tuple[int | str, ...]) -> bool:
    """True when the statement at `path` is in a loop whose warps meet in phases."""
    while len(path) > 1:
        index, name, *rest = path
        assert isinstance(index, int)
        block, path = getattr(block[index], str(name)), tuple(rest)
        if Intrinsic("stagger.phase") in block:
            return True
    return False


def _insert(block: Block, path: tuple[int | str, ...]) -> Block:
    """`block` with a barrier before the statement at `path`."""
    index = path[0]
    assert isinstance(index, int)
    if len(path) == 1:
        return (*block[:index], BARRIER, *block[index:])
    name = str(path[1])
    stmt = block[index]
    inner = _insert(getattr(stmt, name), path[2:])
    return (*block[:index], dataclasses.replace(stmt, **{name: inner}), *block[index + 1 :])


def _without_needless(kernel: Kernel, ranges: Ranges, memo: Memo) -> Kernel:
    """Take out, one by one, barriers whose removal makes no conflict."""
    count = sum(stmt == BARRIER for stmt in walk_stmts(kernel.body))
    position = 0
    for _ in range(count):
        trial = dataclasses.replace(kernel, body=_remove(kernel.body, [position]))
        if first_conflict(trial, ranges, memo):
            position += 1
        else:
            kernel = trial
    return kernel


def _remove(block: Block, countdown: list[int]) -> Block:
    """`block` without its n-th barrier, in program order."""
    result: list[Stmt] = []
    for stmt in block:
        if stmt == BARRIER:
            countdown[0] -= 1
            if countdown[0] == -1:
                continue
        changes = {
            name: _remove(inner, countdown)
            for name in BODY_FIELDS
            if (inner := getattr(stmt, name, None))
        }
        result.append(dataclasses.replace(stmt, **changes) if changes else stmt)
    return tuple(result)


__all__ = ["BARRIER", "WRITE", "Conflict", "find_conflicts", "insert_barriers"]
