"""LDS layouts without bank conflicts for 16-byte accesses.

LDS has 32 banks of 4 bytes: 128 bytes a clock, so ds_read_b128 serves 8 lanes at a time. MFMA
operands are read 16 bytes a lane, one row a lane: 8 lanes of one clock name the same 16-byte column
of 8 different rows. Which 8 depends on the instruction (measured elsewhere for b128: lanes 0-3 with
12-15, 20-27, ...), but always eight rows that differ modulo 8. XORing the column's number with the
row's number modulo 8 gives each of them banks of its own, and a copy that writes neighbouring
columns of a row keeps them apart, too. Rows are cut into panels of 128 bytes (64, 32 where rows are
narrower).
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
    if buffer.dtype.bits < 8 or buffer.dtype.bytes > 8:
        return None
    return swizzled(shape, buffer.dtype.bytes)


def swizzled(shape: tuple[int, ...], element_bytes: int) -> Layout | None:
    """The swizzled layout of a row-major buffer; None when its rows are too narrow or uneven."""
    *outer, rows, columns = shape
    row_bytes = columns * element_bytes
    panel_bytes = min(row_bytes & -row_bytes, LINE_BYTES)
    if panel_bytes < 2 * VECTOR_BYTES:
        return None
    panel = panel_bytes // element_bytes
    panels = columns // panel
    bits = (panel_bytes // VECTOR_BYTES).bit_length() - 1
    base = (VECTOR_BYTES // element_bytes).bit_length() - 1
    if rows * panel_bytes % (LINE_BYTES << bits) and (panels > 1 or outer):
        return None  # the XOR would leave the panel
    axes: list[tuple[Mode, ...]] = []
    stride = rows * columns
    for extent in reversed(outer):
        axes.insert(0, (Mode(extent, stride),))
        stride *= extent
    axes.append((Mode(rows, panel),))
    inner = Mode(panel, 1)
    axes.append((inner, Mode(panels, rows * panel)) if panels > 1 else (inner,))
    # Offsets count in lines of 128 bytes, 8 vectors each: the XOR takes the line's number.
    return Layout(tuple(axes), Swizzle(bits, base, 3))
