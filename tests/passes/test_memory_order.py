"""Where a dense layout keeps an element, and which element it keeps at a place."""

from __future__ import annotations

from itertools import product

import pytest

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import float16
from tilecore.ir.expr import Const, const
from tilecore.ir.layout import Layout, Mode, Swizzle
from tilecore.passes.memory_order import coordinates_at, is_dense, tile_of

ROWS = Layout(((Mode(16, 64),), (Mode(64, 1),)))
PANELS = Layout(((Mode(16, 64),), (Mode(64, 1), Mode(2, 1024))), Swizzle(3, 3, 3))
DENSE = [
    ROWS,
    Layout(((Mode(32, 32),), (Mode(32, 1),)), Swizzle(2, 3, 3)),
    PANELS,
    Layout(((Mode(8, 1),), (Mode(12, 8),))),
    Layout(((Mode(3, 128),), (Mode(4, 32),), (Mode(32, 1),))),
]


def region(layout: Layout, slots: int = 0) -> Region:
    shape = (*((slots,) if slots else ()), *layout.shape)
    buffer = Buffer("s", tuple(const(e) for e in shape), float16, Scope.SHARED)
    starts = tuple(const(0) for _ in shape)
    extents = (*((None,) if slots else ()), *(const(e) for e in layout.shape))
    return Region(buffer, starts, extents)


@pytest.mark.parametrize("layout", DENSE, ids=str)
def test_coordinates_are_the_inverse_of_offsets(layout: Layout) -> None:
    for coordinates in product(*(range(extent) for extent in layout.shape)):
        found = coordinates_at(layout, const(layout.offset(coordinates)))
        assert all(isinstance(c, Const) for c in found)
        assert tuple(int(c.value) for c in found) == coordinates  # type: ignore[attr-defined]


@pytest.mark.parametrize("layout", DENSE, ids=str)
def test_dense_layouts_deal_equal_numbers_of_pieces(layout: Layout) -> None:
    lanes = 32
    assert is_dense(region(layout), layout, 4, lanes) == (layout.size % (2 * lanes) == 0)


def test_what_is_not_dense() -> None:
    gaps = Layout(((Mode(16, 72),), (Mode(64, 1),)))
    assert not is_dense(region(gaps), gaps, 4, 32)
    # pieces longer than what the swizzle keeps together, and more lanes than pieces
    assert not is_dense(region(PANELS), PANELS, 32, 32)
    assert not is_dense(region(ROWS), ROWS, 4, 1024)
    # a part of a tile, and a tile that a lane's piece does not divide
    part = Region(region(ROWS).buffer, (const(0), const(0)), (const(8), const(64)))
    assert not is_dense(part, ROWS, 4, 32)


def test_slots_stand_apart_from_the_swizzle() -> None:
    for span, fits in ((2048, True), (2048 + 64, False)):
        layout = Layout(((Mode(2, span),), *PANELS.axes), PANELS.swizzle)
        slot = region(PANELS, slots=2)
        assert tile_of(slot, layout) == PANELS
        assert is_dense(slot, layout, 4, 32) == fits
