"""Shared layouts without bank conflicts for 16-byte accesses to rows and to columns of rows.

ldmatrix reads one 16-byte column of 8 neighbouring rows; a copy touches neighbouring columns of a
row. XORing the column's number with the number of its 128-byte line serves both for all rows of an
even number of columns; rows of an odd number need nothing. The candidates are compared by counting
their conflicts, not by rules of thumb.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from tilecore.hooks.records import LayoutRequest
from tilecore.ir.layout import Layout, Mode
from tilecore.ir.stmts import Gemm
from tilecore.passes.bank_conflicts import column_degree, row_degree
from tilecore.passes.swizzled_layouts import VECTOR_BYTES, swizzled_lines, swizzled_panels

_COUNTED_ROWS = 16  # conflicts repeat with this period at the latest
_NO_CONFLICTS = 2


def choose_layout(request: LayoutRequest) -> Layout | None:
    """The best layout for buffers that a gemm reads; None (row-major) for all others."""
    buffer = request.buffer
    shape = buffer.static_shape
    if shape is None or len(shape) < 2 or not any(isinstance(s, Gemm) for s in request.uses):
        return None
    size = buffer.dtype.bytes
    if buffer.dtype.bits < 8 or size > 4 or shape[-1] * size % VECTOR_BYTES:
        return None
    return best_layout(shape, size)


@functools.lru_cache(maxsize=256)
def best_layout(shape: tuple[int, ...], element_bytes: int) -> Layout:
    """The candidate with the fewest conflicts, the smallest of these."""
    counted: list[tuple[int, int, Layout]] = []
    for layout in candidates(shape, element_bytes):
        counted.append((conflicts(layout, element_bytes), layout.span, layout))
        if counted[-1][0] == _NO_CONFLICTS:
            break
    return min(counted, key=lambda one: one[:2])[2]


def conflicts(layout: Layout, element_bytes: int) -> int:
    """Passes of a matrix load and of a copy through `layout`, together; 2 is free of conflicts."""
    vector = VECTOR_BYTES // element_bytes
    rows = min(_COUNTED_ROWS, layout.shape[-2])
    part = Layout(
        (*layout.axes[:-2], _first(layout.axes[-2], rows), layout.axes[-1]), layout.swizzle
    )
    return column_degree(part, element_bytes, vector) + row_degree(part, element_bytes, vector)


def _first(axis: tuple[Mode, ...], extent: int) -> tuple[Mode, ...]:
    """The first positions of an axis of one mode."""
    return (Mode(min(extent, axis[0].extent), axis[0].stride),) if len(axis) == 1 else axis


def candidates(shape: tuple[int, ...], element_bytes: int) -> Iterator[Layout]:
    """Layouts worth comparing, smallest first: swizzled, row-major, padded."""
    for swizzled in (swizzled_panels, swizzled_lines):
        layout = swizzled(shape, element_bytes)
        if layout is not None:
            yield layout
    yield Layout.row_major(shape)
    yield padded(shape, element_bytes)


def padded(shape: tuple[int, ...], element_bytes: int) -> Layout:
    """Rows an odd number of 16-byte columns apart."""
    *outer, rows, columns = shape
    vectors = -(-columns * element_bytes // VECTOR_BYTES)
    row_stride = (vectors + 1 - vectors % 2) * VECTOR_BYTES // element_bytes
    strides = [1, row_stride]
    stride = rows * row_stride
    for extent in reversed(outer):
        strides.append(stride)
        stride *= extent
    return Layout.strided(shape, tuple(reversed(strides)))
