"""The parts of a loop of two chained contractions that teams can take by turns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import TRUE
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import (
    Allocate,
    Assert,
    Atomic,
    Block,
    Copy,
    For,
    Gemm,
    Intrinsic,
    Let,
    Parallel,
    Print,
    Reduce,
    Stmt,
    Store,
    WarpScope,
    While,
)
from tilecore.ir.visit import buffers_in, exprs_of, walk_stmts
from tilecore.passes.accesses import accesses_of, covers
from tilecore.passes.defer_sums import is_dead
from tilecore.passes.elementwise import as_parallel
from tilecore.passes.scopes import bytes_of, is_pipelined, is_whole, loads_in

MOST_CARRIED = 2048
"""Bytes of one fragment that may pass from team to team at each tile."""


@dataclass(frozen=True, slots=True)
class TurnParts:
    """A kernel around one pipelined loop.

    Attributes:
        before, after: what stands around the loop.
        loop: the loop.
        head: copies and scalars at the begin of its body.
        first: the contraction that makes scores.
        work: what is done with them; touches neither `out` nor memory that others see.
        handed: the copy of the result to shared memory.
        tail: elementwise work on `out`, needed before the last contraction.
        last: the contraction that adds to `out`.
        weights: the shared buffer of `handed`.
        out: the wide result.
        carried: fragments of `work` that the next tile, `tail` or `after` reads.
    """

    before: Block
    after: Block
    loop: For
    head: Block
    first: Gemm
    work: Block
    handed: Copy
    tail: Block
    last: Gemm
    weights: Buffer
    out: Buffer
    carried: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class Effect:
    """One buffer that a statement reads or writes; `is_whole` for writes of all elements."""

    buffer: Buffer
    is_write: bool
    is_whole: bool = False


def effects_of(stmt: Stmt) -> Iterator[Effect]:
    """Effects of a statement's own fields, reads first; nested blocks come by themselves."""
    for expr in exprs_of(stmt):
        yield from (Effect(load.buffer, False) for load in loads_in(expr))
    match stmt:
        case Gemm(a=a, b=b, c=c):
            yield from (Effect(region.buffer, False) for region in (a, b, c))
            yield Effect(c.buffer, True)
        case Reduce(src=src, dst=dst, clear=clear):
            yield Effect(src.buffer, False)
            if not clear:
                yield Effect(dst.buffer, False)
            yield Effect(dst.buffer, True, clear and is_whole(dst))
        case _ if (nest := as_parallel(stmt)) is not None:
            for access in accesses_of(nest):
                yield Effect(access.buffer, access.is_write, covers(nest, access))
        case Store(buffer=buffer):
            yield Effect(buffer, True)
        case Atomic(dst=dst):
            yield Effect(dst.buffer, True)
        case _:
            pass


def parts_of(kernel: Kernel) -> TurnParts | None:
    """The parts of a kernel that has one such loop; None for any other."""
    loops = [s for s in walk_stmts(kernel.body) if is_pipelined(s)]
    if len(loops) != 1 or not any(s is loops[0] for s in kernel.body):
        return None
    unwanted = (Intrinsic, WarpScope, Print, Assert, While, Atomic)
    if any(isinstance(s, unwanted) for s in walk_stmts(kernel.body)):
        return None
    loop = loops[0]
    assert isinstance(loop, For)
    at = next(k for k, s in enumerate(kernel.body) if s is loop)
    before, after = kernel.body[:at], kernel.body[at + 1 :]
    gemms = [s for s in walk_stmts(kernel.body) if isinstance(s, Gemm)]
    if len(gemms) != 2 or not loop.body or loop.body[-1] is not gemms[1]:
        return None
    first, last = gemms
    first_at = next((k for k, s in enumerate(loop.body) if s is first), None)
    if first_at is None or first.clear_accum != TRUE:
        return None
    head, between = loop.body[:first_at], loop.body[first_at + 1 : -1]
    if not all(isinstance(s, Let) or (isinstance(s, Copy) and s.fills_shared) for s in head):
        return None
    return _from_body(before, after, loop, head, first, between, last)


def _from_body(
    before: Block, after: Block, loop: For, head: Block, first: Gemm, between: Block, last: Gemm
) -> TurnParts | None:
    weights, out = last.a.buffer, last.c.buffer
    if weights.scope is not Scope.SHARED or last.transpose_a or last.transpose_b:
        return None
    if any(s.fills_shared and s.dst.buffer == weights for s in head if isinstance(s, Copy)):
        return None
    handed = [s for s in between if isinstance(s, Copy) and s.dst.buffer == weights]
    others = tuple(s for s in between if s not in handed)
    if len(handed) != 1 or not is_whole(handed[0].dst) or not is_whole(last.a):
        return None
    if handed[0].src.buffer.scope is not Scope.FRAGMENT or not is_whole(handed[0].src):
        return None
    tail = tuple(s for s in others if out in buffers_in((s,)))
    work = tuple(s for s in others if out not in buffers_in((s,)))
    outside = (*before, *after, *head, first, *work, *tail)
    if any(weights in buffers_in((s,)) for s in outside if not isinstance(s, Allocate)):
        return None
    brought = {s.dst.buffer for s in head if isinstance(s, Copy)}
    if not brought.isdisjoint(buffers_in((*work, *tail))):
        return None  # slots are for contractions: they are released without regard to lanes
    if not (_may_move(between, handed[0], tail) and _stays_inside(work, tail, first, out)):
        return None
    carried = _carried(first.c.buffer, work, tail, after)
    if carried is None:
        return None
    return TurnParts(
        before, after, loop, head, first, work, handed[0], tail, last, weights, out, carried
    )


def _may_move(between: Block, handed: Copy, tail: Block) -> bool:
    """True when `handed` and `tail` may come after all other work."""
    late = (handed, *tail)
    for k, stmt in enumerate(between):
        if not any(stmt is s for s in late):
            continue
        read = {e.buffer for e in _all_effects(stmt) if not e.is_write}
        written = {e.buffer for e in _all_effects(stmt) if e.is_write}
        for later in between[k + 1 :]:
            if any(later is s for s in late):
                continue
            for effect in _all_effects(later):
                if effect.buffer in written or (effect.is_write and effect.buffer in read):
                    return False
    return True


def _stays_inside(work: Block, tail: Block, first: Gemm, out: Buffer) -> bool:
    """True when work writes registers only, and the tail nothing but `out`."""
    if first.c.buffer.scope is not Scope.FRAGMENT or out == first.c.buffer:
        return False
    if any(isinstance(s, Allocate) for s in walk_stmts((*work, *tail))):
        return False
    ok = all(e.buffer.scope is Scope.FRAGMENT for s in work for e in _all_effects(s) if e.is_write)
    only_out = all(e.buffer == out for s in tail for e in _all_effects(s) if e.is_write)
    return ok and only_out and all(isinstance(s, Parallel) for s in tail)


def _all_effects(stmt: Stmt) -> list[Effect]:
    if as_parallel(stmt) is not None or isinstance(stmt, Reduce):
        return list(effects_of(stmt))
    # What stands under a condition or in a loop may not happen.
    return [
        dataclasses.replace(effect, is_whole=False)
        for inner in walk_stmts((stmt,))
        for effect in effects_of(inner)
    ]


def _carried(scores: Buffer, work: Block, tail: Block, after: Block) -> tuple[Buffer, ...] | None:
    """Fragments that work leaves to others; None when one of them is large."""
    written: dict[str, Buffer] = {}
    exposed: set[str] = set()
    done = {scores.name}
    for stmt in work:
        for effect in _all_effects(stmt):
            if effect.buffer.scope is not Scope.FRAGMENT:
                continue
            name = effect.buffer.name
            if effect.is_write:
                written[name] = effect.buffer
                if effect.is_whole:
                    done.add(name)
            elif name not in done:
                exposed.add(name)
    late = {b.name for b in buffers_in(tail)}
    late |= {b.name for b in buffers_in(after) if not is_dead(after, b)}
    found = tuple(b for name, b in written.items() if name in exposed | late)
    return None if any(bytes_of(buffer) > MOST_CARRIED for buffer in found) else found
