"""Which on-chip buffers merely hold a piece of an input, and could live where the input lies."""

from __future__ import annotations

import math

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Const, Load, walk
from tilecore.ir.layout import Layout
from tilecore.ir.stmts import Alias, Allocate, Atomic, Copy, Fill, Gemm, Reduce, Scan, Stmt, Store
from tilecore.ir.visit import exprs_of, regions_of

from .gemm_kernels import plan_gemm
from .host import HostCpu

_L1_SET_SPAN_BYTES = 4096
"""Addresses so far apart share a set of the first-level cache (64 sets of 64 bytes)."""
_NEAR_ROWS_BYTES = 512
_MOST_BORROWED_BYTES = 4 << 20
"""Largest scratch tile with the input's row pitch that is set aside for ragged edges."""


def written_buffer(stmt: Stmt) -> Buffer | None:
    """The buffer that a statement itself writes."""
    match stmt:
        case Store(buffer=buffer):
            return buffer
        case Copy(dst=dst) | Fill(dst=dst) | Reduce(dst=dst) | Scan(dst=dst) | Atomic(dst=dst):
            return dst.buffer
        case Gemm(c=c):
            return c.buffer
        case _:
            return None


def covers_buffer(region: Region) -> bool:
    """Whether a region is all of its buffer."""
    starts_at_zero = all(isinstance(start, Const) and start.value == 0 for start in region.starts)
    return starts_at_zero and region.static_shape == region.buffer.static_shape


def sole_copy(buffer: Buffer, stmts: list[Stmt]) -> Copy | None:
    """The copy that alone fills a matrix `buffer`, whole, from an input that is never written."""
    writers = [stmt for stmt in stmts if written_buffer(stmt) == buffer]
    if len(writers) != 1 or not isinstance(writers[0], Copy):
        return None
    copy = writers[0]
    src, dst = copy.src, copy.dst
    is_plain = (
        src.buffer.scope is Scope.GLOBAL
        and src.dtype == dst.dtype
        and dst.buffer.scope is not Scope.LOCAL
    )
    if (
        not is_plain
        or dst.buffer.rank != 2
        or not covers_buffer(dst)
        or src.static_shape != dst.static_shape
    ):
        return None
    if any(written_buffer(stmt) == src.buffer for stmt in stmts):
        return None
    views = {name for s in stmts if isinstance(s, Alias) for name in (s.source.name, s.buffer.name)}
    return None if views & {src.buffer.name, dst.buffer.name} else copy


def borrowed_layout(buffer: Buffer, stmts: list[Stmt], cpu: HostCpu) -> Layout | None:
    """The layout of an A operand that kernels can read in place, with the input's row pitch."""
    copy = sole_copy(buffer, stmts)
    pitch = _row_pitch(copy.src) if copy is not None else None
    shape = buffer.static_shape
    if pitch is None or shape is None or pitch < shape[1]:
        return None
    if ((shape[0] - 1) * pitch + shape[1]) * buffer.dtype.bytes > _MOST_BORROWED_BYTES:
        return None
    uses = [stmt for stmt in stmts if mentions(stmt, buffer) and stmt is not copy]
    if not uses or not all(_reads_in_place(stmt, buffer, pitch, cpu) for stmt in uses):
        return None
    return Layout.strided(shape, (pitch, 1))


def mentions(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether a statement's own fields name `buffer`; its declaration does not count."""
    if isinstance(stmt, Allocate):
        return False
    if any(region.buffer == buffer for region in regions_of(stmt)):
        return True
    return any(
        isinstance(n, Load) and n.buffer == buffer for top in exprs_of(stmt) for n in walk(top)
    )


def _row_pitch(src: Region) -> int | None:
    """Constant distance between the rows of a region with contiguous rows."""
    buffer = src.buffer
    if src.axes[-1] != buffer.rank - 1:
        return None
    if buffer.strides is not None:
        strides = buffer.strides
        if not all(isinstance(stride, Const) for stride in strides) or strides[-1].value != 1:  # type: ignore[attr-defined]
            return None
        return int(strides[src.axes[0]].value)  # type: ignore[attr-defined]
    inner = buffer.shape[src.axes[0] + 1 :]
    if not all(isinstance(extent, Const) for extent in inner):
        return None
    return math.prod(int(extent.value) for extent in inner)  # type: ignore[attr-defined]


def _reads_in_place(stmt: Stmt, buffer: Buffer, pitch: int, cpu: HostCpu) -> bool:
    if not isinstance(stmt, Gemm) or stmt.transpose_a or buffer in (stmt.b.buffer, stmt.c.buffer):
        return False
    if stmt.a.buffer != buffer or not covers_buffer(stmt.a):
        return False
    plan = plan_gemm(stmt.a.dtype, stmt.b.dtype, stmt.c.dtype, cpu)
    rows, columns = buffer.static_shape or (0, 0)
    if plan.a_dtype != buffer.dtype or columns % plan.k_block:
        return False
    if plan.kind == "tile":
        # A tile load touches 16 rows: far apart, each misses the translation cache.
        return rows % 16 == 0 and pitch * buffer.dtype.bytes <= _NEAR_ROWS_BYTES
    apart = math.gcd(pitch * buffer.dtype.bytes, _L1_SET_SPAN_BYTES)
    return -(-plan.m_block // (_L1_SET_SPAN_BYTES // apart)) <= 2
