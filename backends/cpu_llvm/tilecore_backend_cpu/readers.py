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
    """How many statements of a block, nested ones too, mention each buffer (declarations do not
    count; a view counts as a mention of what it shows)."""
    return Counter(name for stmt in walk_stmts(tuple(block)) for name in _mentioned(stmt))


def _mentioned(stmt: Stmt) -> set[str]:
    if isinstance(stmt, FusedNest):
        inner = (*stmt.nest.body, *(reduce for _, reduce in stmt.reduces))
        return set(mentions(inner))
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


def unread_stores(
    nest: FusedNest, at: int, block: Sequence[Stmt], counts: Counter[str], everywhere: Counter[str]
) -> frozenset[str]:
    """Buffers to which a nest, statement `at` of a block, writes what nothing reads after it.

    `counts` are the mentions of the block, `everywhere` those of the kernel. Such a buffer lives
    in this block only, and a statement before the nest overwrites all of it whenever the block
    runs; so the next round of a loop does not read it either.
    """
    written = {s.buffer for s in nest.nest.body if isinstance(s, Store)}
    later = mentions(block[at + 1 :])
    return frozenset(
        buffer.name
        for buffer in written
        if buffer.scope in ON_CHIP
        and counts[buffer.name] == everywhere[buffer.name]
        and buffer.name not in later
        and _begins_whole(buffer.name, block[:at])
    )


def _begins_whole(name: str, block: Sequence[Stmt]) -> bool:
    """Whether the first statement that mentions a buffer overwrites all of it."""
    first = next((stmt for stmt in block if name in mentions((stmt,))), None)
    match first:
        case Gemm(a=a, b=b, c=c, clear_accum=Const(value=clear)):
            return bool(clear) and is_whole_matrix(c) and name not in (a.buffer.name, b.buffer.name)
        case _:
            return False
