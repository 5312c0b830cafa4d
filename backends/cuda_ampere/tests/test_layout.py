"""Bank conflicts of the chosen shared layouts, counted for every row width."""

import pytest

from tilecore.passes.bank_conflicts import column_degree, row_degree
from tilecore_backend_cuda_ampere.layout import best_layout

VECTOR = 8  # 16-bit elements of a 16-byte access
LINE = 64  # 16-bit elements of 128 bytes


@pytest.mark.parametrize("rows", [16, 64, 128])
@pytest.mark.parametrize("width", range(8, 264, 8))
def test_conflicts_of_every_row_width(rows: int, width: int):
    layout = best_layout((rows, width), 2)
    column = column_degree(layout, 2, VECTOR)
    row = row_degree(layout, 2, VECTOR)
    assert (column, row) == (1, 1)
    offsets = {layout.offset((r, c)) for r in range(rows) for c in range(width)}
    assert len(offsets) == rows * width
    assert max(offsets) < layout.span
