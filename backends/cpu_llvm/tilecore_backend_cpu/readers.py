"""Who reads an on-chip buffer: what may be rounded more simply, and what need not be stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tilecore.ir.buffers import Scope
from tilecore.ir.expr import Const, Load, walk
from tilecore.ir.stmts import Alias, Allocate, Block, Copy, Fill, Gemm, Stmt, Store
from tilecore.ir.visit import exprs_of, regions_of, walk_stmts

from .fusion import FusedNest
from .host import HostCpu
from .scheduling import gemm_plan, is_whole_matrix

ON_CHIP = (Scope.SHARED, Scope.FRAGMENT)


def mentions(block: Sequence[Stmt]) -> Counter[str]:
    """How many statements of a block, nested ones too, mention each buffer by its name
    (declarations do not count, but for those of views)."""
    counts: Counter[str] = Counter()
    for stmt in walk_stmts(tuple(block)):
        counts.update(mentions(stmt.members) if isinstance(stmt, FusedNest) else _mentioned(stmt))
    return counts


def _mentioned(stmt: Stmt) -> set[str]:
    names = {region.buffer.name for region in regions_of(stmt)}
    names |= set(_loaded(stmt))
    match stmt:
        case Store(buffer=buffer):
            names.add(buffer.name)
        case Alias(buffer=buffer, source=source):
            names |= {buffer.name, source.name}
        case _:
            pass
    return names


def _loaded(stmt: Stmt) -> Iterator[str]:
    """Buffers that a statement's own expressions read."""
    for top in exprs_of(stmt):
        yield from (node.buffer.name for node in walk(top) if isinstance(node, Load))


def flushed_buffers(body: Block, cpu: HostCpu) -> frozenset[str]:
    """bfloat16 buffers of which only products read, with instructions that take subnormal factors
    for zero: rounding may flush them, too (Intel SDM: TDPBF16PS, VDPBF16PS, VCVTNEPS2BF16)."""
    candidates = {
        stmt.buffer.name
        for stmt in walk_stmts(body)
        if isinstance(stmt, Allocate)
        and stmt.buffer.dtype.name == "bfloat16"
        and stmt.buffer.scope in ON_CHIP
    }
    for stmt in walk_stmts(body):
        candidates -= set(_exact_readings(stmt, cpu))
        if not candidates:
            break
    return frozenset(candidates)


def _exact_readings(stmt: Stmt, cpu: HostCpu) -> Iterator[str]:
    """Buffers whose subnormals matter to a statement."""
    yield from _loaded(stmt)
    match stmt:
        case Gemm() if gemm_plan(stmt, cpu).kind in ("tile", "dot"):
            yield stmt.c.buffer.name
        case Fill() | Store() | Allocate():
            return
        case Alias(buffer=buffer, source=source):
            yield from (buffer.name, source.name)
        case Copy(src=src):
            yield src.buffer.name
        case _:  # atomics and reductions may read what they write
            yield from (region.buffer.name for region in regions_of(stmt))


def unread_stores(block: Sequence[Stmt], everywhere: Counter[str]) -> list[frozenset[str]]:
    """By statement of a block, buffers to which it, a nest, writes what nothing reads after it.

    `everywhere` are the mentions of the kernel (see `BlockState`). Such a buffer lives in this
    block only, and a statement before the nest overwrites all of it whenever the block runs; so
    the next round of a loop does not read it either.
    """
    unread: list[frozenset[str]] = [frozenset()] * len(block)
    if not any(isinstance(stmt, FusedNest) for stmt in block):
        return unread
    counts: Counter[str] = Counter()
    users: dict[str, list[Stmt]] = {}
    for stmt in block:
        mentioned = mentions((stmt,))
        counts.update(mentioned)
        for name in mentioned:
            users.setdefault(name, []).append(stmt)
    for at, stmt in enumerate(block):
        if isinstance(stmt, FusedNest):
            unread[at] = frozenset(
                inner.buffer.name
                for inner in stmt.nest.body
                if isinstance(inner, Store)
                and inner.buffer.scope in ON_CHIP
                and counts[inner.buffer.name] == everywhere[inner.buffer.name]
                and users[inner.buffer.name][-1] is stmt
                and _overwrites(users[inner.buffer.name][0], inner.buffer.name)
            )
    return unread


def _overwrites(stmt: Stmt, name: str) -> bool:
    """Whether a statement overwrites all of a buffer, and does not read it."""
    match stmt:
        case Gemm(a=a, b=b, c=c, clear_accum=Const(value=clear)):
            return bool(clear) and is_whole_matrix(c) and name not in (a.buffer.name, b.buffer.name)
        case _:
            return False
