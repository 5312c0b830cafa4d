"""Issue plain copies from global to shared memory asynchronously.

    Copy(A -> A_shared); Copy(B -> B_shared)
      ->  async.copy(A -> A_shared); async.copy(B -> B_shared); async.commit; async.wait(0)

Runs after `pipeline_loops`, on the copies that it left. Neighbouring copies share one wait.
Copies stay synchronous when the backend has no asynchronous way for them, or when no width of
that way fits their alignment. Copies that the author started asynchronously are issued in the same
way, and left to the author's waits; where there is none they are done at once.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilecore.hooks.context import Context
from tilecore.hooks.records import AsyncCopyRequest
from tilecore.ir.buffers import Region, Scope
from tilecore.ir.expr import Binary, Const, Expr, binary, const
from tilecore.ir.layout import Layout
from tilecore.ir.program import Kernel, Program
from tilecore.ir.ranges import Ranges
from tilecore.ir.simplify import NOTHING_KNOWN, known_multiple, simplify, upper_bound
from tilecore.ir.stmts import Block, Copy, Hints, Intrinsic, Parallel, Stmt
from tilecore.ir.visit import BODY_FIELDS
from tilecore.passes.memory_order import is_dense
from tilecore.passes.scopes import bytes_of, kernel_ranges, per_kernel, static
from tilecore.passes.wide_indices import wide

COMMIT = Intrinsic("async.commit")
LARGEST_INT32 = 2**31 - 1
IN_LANE_ORDER = "in_lane_order"
"""Hint of an ``async.copy`` that an atom of that kind issues."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a copy is issued: bytes that a lane moves at once, and see `AsyncCopyAtom`."""

    width: int
    in_lane_order: bool = False


def wait(pending: int, operations: int | None = None) -> Intrinsic:
    """``async.wait``: until at most `pending` groups are in flight, of so many copies of a lane."""
    hints = () if operations is None else (("operations", operations),)
    return Intrinsic("async.wait", (const(pending),), hints)


def issue(copy: Copy, way: Way) -> Intrinsic:
    """``async.copy`` by `way`."""
    order = ((IN_LANE_ORDER, True),) if way.in_lane_order else ()
    hints = (("bytes", way.width), *order, *_family_hints(copy))
    return Intrinsic("async.copy", (copy.src, copy.dst), hints, copy.loc)


def _family_hints(copy: Copy) -> Hints:
    """Advice that the author gives one family of backends: its emit rules look for it."""
    return tuple((name, value) for name, value in copy.hints if "." in name)


def operations_of(copy: Copy, way: Way, threads: int) -> int:
    """Copies that one lane issues for the whole of `copy`."""
    return -(-bytes_of(copy.dst) // (way.width * threads))


def async_copies(program: Program, context: Context) -> Program:
    """See the module's text."""

    def visit(kernel: Kernel) -> Kernel:
        ranges = kernel_ranges(kernel, program.symbols)
        return dataclasses.replace(kernel, body=_rewrite(kernel.body, kernel, ranges, context))

    return per_kernel(program, visit)


def _rewrite(block: Block, kernel: Kernel, ranges: Ranges, context: Context) -> Block:
    result: list[Stmt] = []
    open_group: set[str] = set()  # destinations under way
    for stmt in block:
        if isinstance(stmt, Intrinsic) and stmt.op == "async.copy":
            result.append(_authors(stmt, kernel, ranges, context))
            continue
        way = async_way(stmt, kernel, ranges, context) if isinstance(stmt, Copy) else None
        if way is not None:
            assert isinstance(stmt, Copy)
            if stmt.dst.buffer.name in open_group:
                result += [COMMIT, wait(0)]
                open_group.clear()
            result.append(issue(stmt, way))
            open_group.add(stmt.dst.buffer.name)
            continue
        if open_group and not _may_delay_wait(stmt):
            result += [COMMIT, wait(0)]
            open_group.clear()
        changes = {
            name: _rewrite(inner, kernel, ranges, context)
            for name in BODY_FIELDS
            if not isinstance(stmt, Parallel) and (inner := getattr(stmt, name, None))
        }
        result.append(dataclasses.replace(stmt, **changes) if changes else stmt)
    if open_group:
        result += [COMMIT, wait(0)]
    return tuple(result)


def _authors(stmt: Intrinsic, kernel: Kernel, ranges: Ranges, context: Context) -> Stmt:
    """An asynchronous copy of the author's, by the backend's way or as a plain one."""
    if "bytes" in dict(stmt.hints):  # of a pipeline
        return stmt
    src, dst = stmt.args
    assert isinstance(src, Region) and isinstance(dst, Region), "the language gives two regions"
    copy = Copy(src, dst, stmt.hints, stmt.loc)
    way = async_way(copy, kernel, ranges, context)
    return copy if way is None else issue(copy, way)


def _may_delay_wait(stmt: Stmt) -> bool:
    """Statements that a group may stay open over: they touch only registers or nothing."""
    from tilecore.ir.stmts import Allocate, Fill

    if isinstance(stmt, Fill):
        return stmt.dst.buffer.scope is Scope.FRAGMENT
    return isinstance(stmt, Allocate)


def async_way(copy: Copy, kernel: Kernel, ranges: Ranges, context: Context) -> Way | None:
    """How `copy` is issued asynchronously; None if it cannot be.

    A piece must be contiguous and aligned on both sides, and either all inside or all outside the
    source's and the destination's shape.
    """
    src, dst = copy.src, copy.dst
    if src.buffer.scope is not Scope.GLOBAL or dst.buffer.scope is not Scope.SHARED:
        return None
    if src.dtype != dst.dtype or src.dtype.bits < 8 or src.buffer.safe_value != 0:
        return None
    request = AsyncCopyRequest(copy, kernel, options=context.options)
    atom = context.hooks.call("tilecore_lower_async_copy", request=request, target=context.target)
    if atom is None or not src.shape or not isinstance(src.shape[-1], Const):
        return None
    layout = kernel.layout_of(dst.buffer)
    if not isinstance(layout, Layout) or src.axes[-1] != src.buffer.rank - 1:
        return None
    if dst.axes[-1] != dst.buffer.rank - 1:
        return None
    elements = piece(src, dst, layout, ranges)
    for width in atom.widths:
        if elements % max(1, width // src.dtype.bytes) or width < src.dtype.bytes:
            continue
        if not atom.in_lane_order or is_dense(dst, layout, width, kernel.threads):
            return Way(width, atom.in_lane_order)
    return None


def piece(src: Region, dst: Region, layout: Layout, ranges: Ranges) -> int:
    """The most neighbouring elements (a power of two up to 16) that always move as one."""
    extent = int(src.shape[-1].value)  # type: ignore[attr-defined]
    width = 16
    run = layout.contiguous_run(dst.buffer.rank - 1)
    inner = static(dst.buffer)[-1]
    while width > 1 and not (
        extent % width == 0
        and run % width == 0
        and inner % width == 0
        and known_multiple(simplify(dst.starts[-1], ranges)) % width == 0
        and global_piece(src, width)
    ):
        width //= 2
    return width


def global_piece(region: Region, width: int) -> bool:
    """True when pieces of `width` along the last axis are aligned and wholly in or out of shape."""
    buffer = region.buffer
    if known_multiple(region.starts[-1]) % width or known_multiple(buffer.shape[-1]) % width:
        return False
    strides = strides_of(buffer.shape, buffer.strides)
    return strides[-1] == const(1) and all(known_multiple(s) % width == 0 for s in strides[:-1])


def strides_of(shape: tuple[Expr, ...], strides: tuple[Expr, ...] | None) -> tuple[Expr, ...]:
    """Element strides of a global buffer, row-major when it has none of its own.

    Products that 32 bits may not hold have 64: a large constant, or a size that only the call tells
    times anything. What the author writes of such sizes is computed in 64, too.
    """
    if strides is not None:
        return tuple(wide(one) if isinstance(one, Binary) else one for one in strides)
    result: list[Expr] = [const(1)]
    for extent in reversed(shape[1:]):
        inner = result[-1]
        if upper_bound(inner, NOTHING_KNOWN) * upper_bound(extent, NOTHING_KNOWN) > LARGEST_INT32:
            inner, extent = wide(inner), wide(extent)
        result.append(binary("mul", inner, extent))
    return tuple(reversed(result))
