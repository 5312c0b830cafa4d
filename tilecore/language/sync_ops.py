"""Synchronisation written by the author: barriers, asynchronous copies, warp scopes.

A plain tile program needs none of these; the compiler places barriers and waits. They map one to
one to the core intrinsics of ``ir/README.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from tilecore.ir.buffers import Buffer, Region
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Expr, const
from tilecore.ir.stmts import Intrinsic, WarpScope
from tilecore.language import operators as ops
from tilecore.language.builder import Frame, current
from tilecore.language.indexing import element_of
from tilecore.language.locate import caller_loc, fail, refuse
from tilecore.language.loops import make_hints
from tilecore.language.tile_ops import copy_regions, tile_builder
from tilecore.language.values import BufferValue

WARPS_PER_GROUP = 4  # a warpgroup is four warps


def _emit(what: str, op: str, *args: Expr | Region, hints: Any = ()) -> None:
    builder = current()
    builder.require_kernel(what)
    if builder.inside("parallel"):
        fail(f"{what} inside T.Parallel", expected="a place where all lanes arrive")
    builder.emit(Intrinsic(op, args, hints, caller_loc()))


def sync_threads(barrier_id: int | None = None, arrive_count: int | None = None) -> None:
    """All lanes of the block meet (or those of one named barrier)."""
    if barrier_id is None:
        _emit("T.sync_threads", "sync_block")
        return
    threads = arrive_count
    if threads is None:
        threads = 1
        for dim in current().require_kernel("T.sync_threads").thread_dims:
            threads *= dim
    named_barrier_sync(barrier_id, threads)


def sync_warp(mask: Any = None) -> None:
    """All lanes of a warp meet."""
    if mask is not None:
        refuse("T.sync_warp(mask=...)", "lane masks are a matter of one target")
    _emit("T.sync_warp", "sync_warp")


def named_barrier_sync(barrier_id: int, thread_count: int) -> None:
    """The lanes of a named barrier meet."""
    _emit("T.named_barrier_sync", "named_barrier.sync", *_named(barrier_id, thread_count))


def named_barrier_arrive(barrier_id: int, thread_count: int) -> None:
    """Arrive at a named barrier without waiting."""
    _emit("T.named_barrier_arrive", "named_barrier.arrive", *_named(barrier_id, thread_count))


def _named(barrier_id: Any, thread_count: Any) -> tuple[Expr, Expr]:
    return ops.as_index(barrier_id, "barrier id"), ops.as_index(thread_count, "thread count")


def barrier_element(value: Any, what: str) -> Region:
    """The region of one barrier: ``bar[i]``, or ``bar`` where there is only one.

    Raises:
        LanguageError: `value` is no barrier.
    """
    buffer: Buffer | None = None
    indices: tuple[Expr, ...] = ()
    if isinstance(value, BufferValue) and value.buffer.static_shape == (1,):
        buffer, indices = value.buffer, (const(0, int32),)
    element = element_of(value)
    if element is not None:
        buffer, indices = element
    if buffer is None or buffer.dtype.name != "uint64" or buffer.scope.value != "shared":
        fail(f"{what} takes a barrier", expected="T.alloc_barrier(...)", got=ops.describe(value))
    return Region(buffer, indices, (None,) * len(indices))


def barrier_arrive(mbarrier: Any) -> None:
    """One arrival at a transaction barrier."""
    _emit("T.barrier_arrive", "barrier.arrive", barrier_element(mbarrier, "T.barrier_arrive"))


def barrier_wait(mbarrier: Any, parity: Any) -> None:
    """Wait until the phase of that parity is complete."""
    region = barrier_element(mbarrier, "T.barrier_wait")
    _emit("T.barrier_wait", "barrier.wait", region, ops.as_index(parity, "parity"))


def mbarrier_arrive(mbarrier: Any, cta_id: Any = None) -> None:
    """One arrival at a transaction barrier of this block."""
    if cta_id is not None:
        refuse("T.mbarrier_arrive(cta_id=...)", "barriers of another block need a cluster")
    barrier_arrive(mbarrier)


def mbarrier_expect_tx(mbarrier: Any, tx: Any) -> None:
    """Announce bytes that will arrive."""
    region = barrier_element(mbarrier, "T.mbarrier_expect_tx")
    _emit("T.mbarrier_expect_tx", "barrier.expect", region, ops.as_index(tx, "bytes"))


def mbarrier_arrive_expect_tx(mbarrier: Any, tx: Any) -> None:
    """One arrival that announces bytes."""
    region = barrier_element(mbarrier, "T.mbarrier_arrive_expect_tx")
    _emit("T.mbarrier_arrive_expect_tx", "barrier.arrive_expect", region, ops.as_index(tx, "bytes"))


mbarrier_wait_parity = barrier_wait


def async_copy(
    src: Any,
    dst: Any,
    *,
    coalesced_width: int | None = None,
    annotations: Mapping[str, Any] | None = None,
    loop_layout: Any = None,
) -> None:
    """Start a copy that nobody may rely on before `async_wait`."""
    if loop_layout is not None:
        refuse("T.async_copy(loop_layout=...)", "the layout of a copy follows from the buffers")
    tile_builder("T.async_copy")
    source, target = copy_regions(src, dst, "T.async_copy")
    hints = make_hints({"coalesced_width": coalesced_width}, annotations)
    _emit("T.async_copy", "async.copy", source, target, hints=hints)


def async_commit() -> None:
    """Close the current group of asynchronous copies."""
    _emit("T.async_commit", "async.commit")


def async_wait(pending: int = 0) -> None:
    """Wait until at most `pending` groups are in flight."""
    _emit("T.async_wait", "async.wait", ops.as_index(pending, "pending"))


# The vocabulary's older names.
ptx_commit_group = async_commit
ptx_wait_group = async_wait


class _WarpBlock:
    """``with T.ws(0):`` and ``with T.warps(first, last):``."""

    def __init__(self, first: int, last: int, role: str) -> None:
        self.first = first
        self.last = last
        self.role = role
        self.loc = caller_loc()
        self.frame: Frame | None = None

    def __enter__(self) -> None:
        builder = current()
        builder.require_kernel("T.ws")
        if builder.inside("parallel", "warps"):
            fail("T.ws inside T.Parallel or T.ws", expected="a place where all warps arrive")
        self.frame = builder.push("warps")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and self.frame is not None:
            builder = current()
            body = builder.pop(self.frame)
            builder.emit(WarpScope(self.first, self.last, body, self.role, self.loc))


def ws(*warp_group_idx: int) -> _WarpBlock:
    """A block for the given warpgroups (4 warps each), which must be neighbours."""
    groups = sorted(warp_group_idx)
    if not groups or groups != list(range(groups[0], groups[0] + len(groups))):
        fail(
            "T.ws takes neighbouring warpgroups", expected="e.g. T.ws(0) or T.ws(1, 2)", got=groups
        )
    return _WarpBlock(groups[0] * WARPS_PER_GROUP, (groups[-1] + 1) * WARPS_PER_GROUP, "")


def warps(first: int, last: int, role: str = "") -> _WarpBlock:
    """A block for the warps ``first <= warp < last``; `role` names their duty."""
    if not 0 <= first < last:
        fail("T.warps takes a range", expected="0 <= first < last", got=(first, last))
    return _WarpBlock(first, last, role)
