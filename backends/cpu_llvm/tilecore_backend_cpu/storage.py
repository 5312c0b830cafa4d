"""Where buffers live while a kernel runs: address, strides, layout."""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.buffers import Buffer
from tilecore.ir.layout import Layout

from .builder import Value


@dataclass(frozen=True, slots=True)
class Storage:
    """A buffer in memory.

    Attributes:
        buffer: what is stored.
        pointer: address of its first element.
        strides: elements from one index to the next, per axis: a constant or a 64-bit value;
            None when `layout` is not one stride an axis.
        layout: of on-chip buffers.
    """

    buffer: Buffer
    pointer: Value
    strides: tuple[int | Value, ...] | None
    layout: Layout | None = None


def plain_strides(layout: Layout) -> tuple[int, ...] | None:
    """One stride per axis, or None for layouts with blocked or swizzled axes."""
    if layout.swizzle is not None:
        return None
    strides = []
    for axis in layout.axes:
        modes = [mode for mode in axis if mode.extent > 1] or list(axis[:1])
        if len(modes) > 1:
            return None
        strides.append(modes[0].stride if modes else 0)
    return tuple(strides)
