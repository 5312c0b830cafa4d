"""Give every shared buffer its byte offset; buffers that never live at the same time share bytes.

A buffer lives from its first to its last access; inside a loop, a buffer that was declared outside
lives through the whole loop. Offsets go to the kernel's hints: ``smem.<name>`` (offset),
``smem_size.<name>`` and ``smem_bytes`` (total). Reused bytes are ordered by `insert_barriers`,
which runs after this pass.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass

from tilecore.errors import ResourceError
from tilecore.hooks.context import Context
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Const
from tilecore.ir.layout import Layout
from tilecore.ir.program import Kernel, Program
from tilecore.ir.stmts import Allocate, Block, For, Intrinsic, Stmt, While
from tilecore.ir.visit import buffers_in, child_blocks, walk_stmts
from tilecore.passes.scopes import per_kernel, with_hint, without_bodies

ALIGNMENT = 128
"""Bytes. One line of all 32 banks, so that bank numbers follow from offsets."""

BARRIER_ALIGNMENT = 16
"""The same of transaction barriers where there is no more room: they are read by no vector."""

UNSHARED_BYTES = 8 * 1024
"""Up to here buffers do not share bytes; a block this small never limits how many blocks fit."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Positions of the first and the last access, in program order."""

    buffer: Buffer
    first: int
    last: int
    size: int
    alignment: int = ALIGNMENT


def plan_shared_memory(program: Program, context: Context) -> Program:
    """See the module's text.

    Raises:
        ResourceError: more bytes than the target's block has.
    """

    def visit(kernel: Kernel) -> Kernel:
        lifetimes = lifetimes_of(kernel)
        offsets = place(lifetimes)
        total = _end(lifetimes, offsets)
        limit = context.target.smem_bytes
        if limit and total > limit:
            closer = [_close(one, _barriers(kernel)) for one in lifetimes]
            if _end(closer, place(closer)) <= limit:
                lifetimes, offsets = closer, place(closer)
                total = _end(lifetimes, offsets)
        if limit and total > limit:
            raise _too_much(kernel, lifetimes, offsets, total, limit)
        hints = with_hint(kernel.hints, "smem_bytes", total)
        for lifetime in lifetimes:
            name = lifetime.buffer.name
            hints = with_hint(hints, f"smem.{name}", offsets[name])
            hints = with_hint(hints, f"smem_size.{name}", lifetime.size)
        return dataclasses.replace(kernel, hints=hints)

    return per_kernel(program, visit)


def _end(lifetimes: list[Lifetime], offsets: dict[str, int]) -> int:
    """Bytes up to the end of the last buffer."""
    return max((offsets[one.buffer.name] + one.size for one in lifetimes), default=0)


def _close(one: Lifetime, barriers: set[str]) -> Lifetime:
    """A buffer that may lie close to others, if it is one of `barriers`."""
    if one.buffer.name not in barriers:
        return one
    return dataclasses.replace(one, alignment=BARRIER_ALIGNMENT)


def size_of(buffer: Buffer, layout: Layout) -> int:
    """Bytes of a shared buffer in its layout."""
    return -(-layout.span * buffer.dtype.bits // 8)


def aligned(size: int) -> int:
    """Bytes up to where the next buffer may begin."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def alignment_of(buffer: Buffer, layout: Layout) -> int:
    """Bytes to which a buffer begins aligned: a whole period of its swizzle, so that the XOR of
    offsets is one of addresses, too."""
    if layout.swizzle is None or layout.swizzle.bits == 0:
        return ALIGNMENT
    bits = layout.swizzle.base + layout.swizzle.shift + layout.swizzle.bits
    return max(ALIGNMENT, (buffer.dtype.bits << bits) // 8)


def lifetimes_of(kernel: Kernel) -> list[Lifetime]:
    """Lifetimes of all shared buffers, by first access."""
    spans: dict[str, tuple[int, int]] = {}
    buffers: dict[str, Buffer] = {}
    position = itertools.count()
    _scan(kernel.body, position, spans, buffers, {})
    end = next(position)
    for name in _barriers(kernel):
        spans[name] = (0, end)  # memory of a transaction barrier must not be written otherwise
    result = []
    for name, (first, last) in spans.items():
        layout = kernel.layout_of(buffers[name])
        assert isinstance(layout, Layout), f"{name} has no layout yet"
        size = size_of(buffers[name], layout)
        result.append(
            Lifetime(buffers[name], first, last, size, alignment_of(buffers[name], layout))
        )
    return sorted(result, key=lambda t: (t.first, t.buffer.name))


def _scan(
    block: Block,
    position: itertools.count[int],
    spans: dict[str, tuple[int, int]],
    buffers: dict[str, Buffer],
    flying: dict[str, Buffer],
) -> set[str]:
    """Record accesses of a block; the answer is the buffers declared in it.

    What an asynchronous copy writes (`flying`) is not free before it has been waited for, also
    where nothing reads it.
    """
    declared: set[str] = set()
    for stmt in block:
        now = next(position)
        if isinstance(stmt, Allocate):
            declared.add(stmt.buffer.name)
            continue
        for buffer in _own_buffers(stmt):
            _extend(buffer, now, now, spans, buffers)
        if isinstance(stmt, Intrinsic):
            _follow_copies(stmt, now, spans, buffers, flying)
        inner_declared: set[str] = set()
        for inner in child_blocks(stmt):
            inner_declared |= _scan(inner, position, spans, buffers, flying)
        if isinstance(stmt, For | While):
            end = next(position)
            for buffer in buffers_in((stmt,)):
                if buffer.scope is Scope.SHARED and buffer.name not in inner_declared:
                    _extend(buffer, now, end, spans, buffers)
        declared |= inner_declared
    return declared


def _follow_copies(
    stmt: Intrinsic,
    now: int,
    spans: dict[str, tuple[int, int]],
    buffers: dict[str, Buffer],
    flying: dict[str, Buffer],
) -> None:
    """Remember the destinations of asynchronous copies, and let them live to the waits."""
    if stmt.op == "async.copy":
        target = stmt.args[1]
        if isinstance(target, Region) and target.buffer.scope is Scope.SHARED:
            flying[target.buffer.name] = target.buffer
    elif stmt.op == "async.wait":
        for buffer in flying.values():
            _extend(buffer, now, now, spans, buffers)
        if isinstance(stmt.args[0], Const) and stmt.args[0].value == 0:
            flying.clear()


def _barriers(kernel: Kernel) -> set[str]:
    """Names of the buffers that hold transaction barriers."""
    return {
        region.buffer.name
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, Intrinsic) and stmt.op == "barrier.init"
        for region in stmt.args
        if isinstance(region, Region)
    }


def _own_buffers(stmt: Stmt) -> list[Buffer]:
    return [
        buffer for buffer in buffers_in((without_bodies(stmt),)) if buffer.scope is Scope.SHARED
    ]


def _extend(
    buffer: Buffer,
    first: int,
    last: int,
    spans: dict[str, tuple[int, int]],
    buffers: dict[str, Buffer],
) -> None:
    low, high = spans.get(buffer.name, (first, last))
    spans[buffer.name] = (min(low, first), max(high, last))
    buffers[buffer.name] = buffer


def place(lifetimes: list[Lifetime]) -> dict[str, int]:
    """Byte offsets: large buffers first, each at the lowest place free during its lifetime.

    While everything fits in a few KiB nothing is shared: that saves barriers and costs nothing.
    """
    if sum(aligned(t.size) for t in lifetimes) <= UNSHARED_BYTES:
        lifetimes = [dataclasses.replace(t, first=0, last=0) for t in lifetimes]
    offsets: dict[str, int] = {}
    placed: list[Lifetime] = []
    for one in sorted(lifetimes, key=lambda t: (-t.size, t.first, t.buffer.name)):
        busy = sorted(
            (offsets[other.buffer.name], offsets[other.buffer.name] + other.size)
            for other in placed
            if other.first <= one.last and one.first <= other.last
        )
        at = 0
        for start, end in busy:
            if at + one.size <= start:
                break
            at = max(at, -(-end // one.alignment) * one.alignment)
        offsets[one.buffer.name] = at
        placed.append(one)
    return offsets


def _too_much(
    kernel: Kernel, lifetimes: list[Lifetime], offsets: dict[str, int], total: int, limit: int
) -> ResourceError:
    rows = [
        f"  {t.buffer.name}: {t.size} bytes at {offsets[t.buffer.name]}"
        f" ({' x '.join(str(e) for e in t.buffer.static_shape or ())} {t.buffer.dtype})"
        for t in sorted(lifetimes, key=lambda t: -t.size)
    ]
    largest = max(lifetimes, key=lambda t: t.size).buffer.name
    return ResourceError(
        f"kernel {kernel.name} needs more shared memory than a block has\n"
        + "\n".join(rows)
        + "\n",
        expected=f"at most {limit} bytes",
        got=f"{total} bytes",
        loc=kernel.loc,
        hint=f"use smaller tiles or fewer stages; the largest buffer is {largest}",
    )
