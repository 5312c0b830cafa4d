"""Sixteen rows reduced at a time: the last vectors of their sums form a square.

A row's last vector alone takes four shuffles and four operations, one after the other. The square
takes two shuffles and one operation for each of 15 pairs, and many pairs are independent.
"""

from __future__ import annotations

from collections.abc import Sequence

from .builder import Value
from .reductions import Combiner

ROWS = 16
"""Rows of a group, and lanes of their vectors."""


def _quarters(pattern: Sequence[int]) -> list[int]:
    """A pattern over four lanes of a (0 to 3) and of b (4 to 7), repeated in each 128 bits."""
    return [
        4 * quarter + lane % 4 + (ROWS if lane >= 4 else 0)
        for quarter in range(4)
        for lane in pattern
    ]


def _whole(pattern: Sequence[int]) -> list[int]:
    """A pattern over the four 128-bit quarters of a (0 to 3) and of b (4 to 7)."""
    return [4 * quarter + lane for quarter in pattern for lane in range(4)]


_LEVELS = (
    (_quarters((0, 4, 1, 5)), _quarters((2, 6, 3, 7))),  # 32 bits of a and b in turn
    (_quarters((0, 1, 4, 5)), _quarters((2, 3, 6, 7))),  # 64 bits
    (_whole((0, 1, 4, 5)), _whole((2, 3, 6, 7))),
    (_whole((0, 2, 4, 6)), _whole((1, 3, 5, 7))),
)
"""By level, the two halves of a and of b that are combined; each is one shuffle instruction."""


def reduce_square(combiner: Combiner, rows: Sequence[Value]) -> Value:
    """Lane i of the result is vector i combined across its lanes; ``len(rows) == ROWS``."""
    vectors = list(rows)
    for low, high in _LEVELS:
        vectors = [
            combiner.combine(combiner.s.w.shuffle(a, b, low), combiner.s.w.shuffle(a, b, high))
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]
