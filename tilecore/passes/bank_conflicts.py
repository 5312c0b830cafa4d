"""Bank conflicts of shared layouts, counted from the layouts.

Shared memory has banks of 4 bytes. A warp's access of 4 bytes a lane is served at once when no
bank is asked for two different words; wider accesses are served in parts of the warp that ask for
one line of all banks together (8 lanes at 16 bytes, 16 at 8). The degree of an access is the
number of passes that its worst part takes: 1 is free of conflicts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tilecore.ir.layout import Layout

BANKS = 32
BANK_BYTES = 4


def degree(byte_offsets: Sequence[int], lane_bytes: int, banks: int = BANKS) -> int:
    """Passes that one access takes; lane i touches `lane_bytes` from ``byte_offsets[i]`` on."""
    line = banks * BANK_BYTES
    together = max(1, line // max(lane_bytes, BANK_BYTES))
    worst = 1
    for first in range(0, len(byte_offsets), together):
        words: defaultdict[int, set[int]] = defaultdict(set)
        for offset in byte_offsets[first : first + together]:
            for word in range(offset // BANK_BYTES, -(-(offset + lane_bytes) // BANK_BYTES)):
                words[word % banks].add(word)
        worst = max(worst, *map(len, words.values()))
    return worst


def column_degree(layout: Layout, element_bytes: int, vector: int, rows: int = 8) -> int:
    """The worst degree of reading a column of `rows` vectors of `vector` elements (a matrix load).

    The last two axes are rows and columns; the others are taken at 0.
    """
    height, width = layout.shape[-2:]
    worst = 1
    for row in range(0, height - rows + 1, rows):
        for column in range(0, width - vector + 1, vector):
            offsets = [_byte(layout, element_bytes, row + r, column) for r in range(rows)]
            worst = max(worst, degree(offsets, vector * element_bytes))
    return worst


def row_degree(layout: Layout, element_bytes: int, vector: int, lanes: int = 32) -> int:
    """The worst degree of touching the tile in memory order, `vector` elements a lane (a copy)."""
    height, width = layout.shape[-2:]
    across = max(1, width // vector)
    worst = 1
    for first in range(0, height * across - lanes + 1, lanes):
        places = [divmod(first + lane, across) for lane in range(lanes)]
        offsets = [_byte(layout, element_bytes, r, c * vector) for r, c in places]
        worst = max(worst, degree(offsets, vector * element_bytes))
    return worst


def _byte(layout: Layout, element_bytes: int, row: int, column: int) -> int:
    outer = (0,) * (len(layout.axes) - 2)
    return layout.offset((*outer, row, column)) * element_bytes
