"""Shared layouts that the copy engine writes and wgmma reads, and the facts of descriptors.

Both know one arrangement: panels of 128 (64, 32) bytes a row, rows next to each other, 16-byte
chunks XORed by the number of the 128-byte line. It is the arrangement that the base backend chooses
against bank conflicts, so there is one layout for all three.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilecore.errors import Loc, LoweringError
from tilecore.hooks.records import LayoutRequest
from tilecore.ir.dtypes import DType
from tilecore.ir.layout import Layout
from tilecore.ir.stmts import Gemm
from tilecore.passes.swizzled_layouts import swizzled_panels

CHUNK_BYTES = 16
LINE_BYTES = 128
SWIZZLE_CODES = {0: 0, 3: 1, 2: 2, 1: 3}
"""log2 of the chunks of a swizzled row -> code in a descriptor (PTX ISA, "Matrix Descriptor")."""


def choose_layout(request: LayoutRequest) -> Layout | None:
    """Panels for what wgmma reads; the base backend answers for all other buffers."""
    shape = request.buffer.static_shape
    for stmt in request.uses:
        atom = str(dict(stmt.hints).get("atom", "")) if isinstance(stmt, Gemm) else ""
        if atom.startswith("wgmma_") and shape is not None:
            return panels(shape, request.buffer.dtype.bytes)
    return None


def panels(shape: tuple[int, ...], element_bytes: int) -> Layout | None:
    """The layout in panels as wide as the rows allow; None when wgmma could not read it."""
    if len(shape) < 2 or shape[-2] % 8:
        return None
    return swizzled_panels(shape, element_bytes)


@dataclass(frozen=True, slots=True)
class Panels:
    """A shared layout as the hardware sees it.

    Attributes:
        swizzle_bits: log2 of the 16-byte chunks of a swizzled row; 0 without swizzle.
        columns: elements of a panel's row.
        stride: elements from one panel to the next; 0 when there is only one.
        rows: extents of the axes before the last, which are compact row by row.
    """

    swizzle_bits: int
    columns: int
    stride: int
    rows: tuple[int, ...]


def panels_of(layout: Layout, dtype: DType, axes: tuple[int, ...]) -> Panels | None:
    """The panels of a layout over `axes` (the others are fixed); None when it has another form."""
    last = layout.axes[axes[-1]]
    if not 1 <= len(last) <= 2 or last[0].stride != 1:
        return None
    columns = last[0].extent
    swizzle = layout.swizzle
    bits = 0 if swizzle is None else swizzle.bits
    if swizzle is not None and bits:
        base = (CHUNK_BYTES // dtype.bytes).bit_length() - 1
        if (swizzle.base, swizzle.shift) != (
            base,
            3,
        ) or columns * dtype.bytes != CHUNK_BYTES << bits:
            return None
    expected = columns
    rows: list[int] = []
    for axis in reversed(axes[:-1]):
        modes = [mode for mode in layout.axes[axis] if mode.extent > 1]
        if len(modes) > 1 or (modes and modes[0].stride != expected):
            return None
        rows.insert(0, modes[0].extent if modes else 1)
        expected *= rows[0]
    stride = last[1].stride if len(last) == 2 and last[1].extent > 1 else 0
    return Panels(bits, columns, stride, tuple(rows))


def descriptor_facts(
    layout: Layout, dtype: DType, mn_major: bool, name: str = "an operand", loc: Loc | None = None
) -> tuple[int, int, int]:
    """(leading bytes, stride bytes, swizzle code) of an operand in the last two axes of a layout.

    K-major: stride is the distance of 8 rows; the leading distance is unused with a swizzle.
    MN-major: stride is the distance of 8 rows of k, leading that of two panels along m or n.
    `name` and `loc` are the operand's, for the error.

    Raises:
        LoweringError: wgmma cannot read this layout.
    """
    rank = len(layout.axes)
    form = panels_of(layout, dtype, (rank - 2, rank - 1))
    if form is None or form.swizzle_bits == 0:
        shape = tuple(math.prod(mode.extent for mode in axis) for axis in layout.axes)
        raise LoweringError(
            f"layouts conflict: wgmma reads {name} and cannot read its shared layout",
            expected=f"swizzled panels of 32, 64 or 128 bytes: {panels(shape, dtype.bytes)}",
            got=f"{name}: {layout}",
            loc=loc,
            hint=f"leave {name} out of T.annotate_layout",
        )
    row_bytes = CHUNK_BYTES << form.swizzle_bits
    leading = form.stride * dtype.bytes if mn_major and form.stride else CHUNK_BYTES
    return leading, 8 * row_bytes, SWIZZLE_CODES[form.swizzle_bits]
