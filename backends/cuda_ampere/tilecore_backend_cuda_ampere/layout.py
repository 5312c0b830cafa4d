"""Shared layouts without bank conflicts for 16-byte accesses to rows and to columns of rows.

32 banks of 4 bytes serve 8 accesses of 16 bytes at a time when these hit 8 different 16-byte
columns of a 128-byte line. ldmatrix reads one column of 8 neighbouring rows; a copy reads
neighbouring columns of a row. XORing the column's number with the row's serves both, for rows of
32, 64, or a multiple of 128 bytes; other rows are cut into panels of such a width.
"""

from __future__ import annotations

from tilecore.hooks.records import LayoutRequest
from tilecore.ir.layout import Layout, Mode, Swizzle
from tilecore.ir.stmts import Gemm

VECTOR_BYTES = 16
LINE_BYTES = 128


def choose_layout(request: LayoutRequest) -> Layout | None:
    """A swizzled layout for buffers that a gemm reads; None (row-major) for all others."""
    buffer = request.buffer
    shape = buffer.static_shape
    if shape is None or len(shape) < 2 or not any(isinstance(s, Gemm) for s in request.uses):
        return None
    if buffer.dtype.bits < 8 or buffer.dtype.bytes > 4:
        return None
    return swizzled(shape, buffer.dtype.bytes)


def swizzled(shape: tuple[int, ...], element_bytes: int) -> Layout | None:
    """The layout of a row-major buffer, swizzled; None when its rows are too narrow or uneven."""
    *outer, rows, columns = shape
    row_bytes = columns * element_bytes
    panel_bytes = min(row_bytes & -row_bytes, LINE_BYTES)
    if row_bytes % 32 or panel_bytes < 32:
        return None
    panel = panel_bytes // element_bytes
    panels = columns // panel
    bits = (panel_bytes // VECTOR_BYTES).bit_length() - 1
    base = (VECTOR_BYTES // element_bytes).bit_length() - 1
    # Rows of a panel lie next to each other; XOR the column by the number of the 128-byte line.
    swizzle = Swizzle(bits, base, 3)
    axes: list[tuple[Mode, ...]] = []
    stride = rows * columns
    for extent in reversed(outer):
        axes.insert(0, (Mode(extent, stride),))
        stride *= extent
    axes.append((Mode(rows, panel),))
    axes.append((Mode(panel, 1), Mode(panels, rows * panel)) if panels > 1 else (Mode(panel, 1),))
    if rows * panel_bytes % (LINE_BYTES << bits):
        return None if panels > 1 or outer else Layout(tuple(axes), swizzle)
    return Layout(tuple(axes), swizzle)
