"""Stores that go past the caches: results too large to stay there anyway.

An ordinary store first reads the line that it overwrites; a streaming store of a whole line does
not, which saves a third of the traffic of a copy. It needs an aligned address, so that nests which
may use it are written twice and choose at run time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.stmts import For
from tilecore.ir.visit import walk_stmts

from .analysis import coefficient
from .builder import FunctionWriter, Value
from .conversions import storage_type
from .lane_analysis import inline_lets
from .memory import is_affine, linear_offset
from .state import BlockState

if TYPE_CHECKING:
    from .elementwise import Nest, Touch

CACHES = 4
"""Buffers of more than so many second-level caches are streamed."""


def streamed_stores(s: BlockState, nest: Nest, lanes: int) -> tuple[frozenset[str], Value | None]:
    """Buffers that a nest can stream to, and that their addresses are aligned; None for none."""
    w = s.w
    names, condition = set(), None
    if any(isinstance(inner, For) for inner in walk_stmts(nest.stmt.body)):
        return frozenset(), None
    for touch in nest.touches:
        if not touch.is_store or not _is_large(s, touch.buffer) or touch.buffer.name in names:
            continue
        if lanes * touch.buffer.dtype.bits != s.cpu.vector_bits or not _is_regular(s, nest, touch):
            continue
        first = w.emit("i64", f"ptrtoint {_first_address(s, nest, touch)} to i64")
        rest = w.binary("and", first, w.i64(s.cpu.vector_bits // 8 - 1))
        is_aligned = w.icmp("eq", rest, w.i64(0))
        names.add(touch.buffer.name)
        condition = is_aligned if condition is None else w.binary("and", condition, is_aligned)
    return frozenset(names), condition


def _is_large(s: BlockState, buffer: Buffer) -> bool:
    shape = buffer.static_shape
    if buffer.scope is not Scope.GLOBAL or shape is None:
        return False
    return math.prod(shape) * buffer.dtype.bytes >= CACHES * s.cpu.l2_bytes


def _is_regular(s: BlockState, nest: Nest, touch: Touch) -> bool:
    """Lanes contiguous, and every other variable a whole number of vectors apart."""
    strides = s.storage_of(touch.buffer).strides
    if strides is None or not all(is_affine(s, index) for index in touch.indices):
        return False
    for n, var in enumerate(nest.stmt.vars):
        step = 0
        for index, stride in zip(touch.indices, strides, strict=True):
            moved = coefficient(index, var.name, s.definitions) or 0
            if moved and isinstance(stride, Value):
                return False
            step += moved * (0 if isinstance(stride, Value) else stride)
        step_bytes = step * touch.buffer.dtype.bytes
        if n == nest.axis and step != 1:
            return False
        if n != nest.axis and step_bytes % (s.cpu.vector_bits // 8):
            return False
    return True


def _first_address(s: BlockState, nest: Nest, touch: Touch) -> Value:
    for var in nest.stmt.vars:
        s.wide[var.name] = s.w.i64(0)
    indices = tuple(inline_lets(index, s.definitions) for index in touch.indices)
    storage = s.storage_of(touch.buffer)
    offset = linear_offset(s, storage, indices)
    for var in nest.stmt.vars:
        del s.wide[var.name]
    return s.w.offset(storage.pointer, storage_type(touch.buffer.dtype), offset)


def emit_fence(w: FunctionWriter, arch: str) -> None:
    """Make streamed stores visible before the team joins."""
    if arch == "x86_64":
        w.call("llvm.x86.sse.sfence", "void", [])
