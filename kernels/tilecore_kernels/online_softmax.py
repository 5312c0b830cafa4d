"""The running softmax that all attention kernels share: maximum, sum and rescale, tile by tile.

A block walks tiles of scores. For every row it keeps the anchor that exponents are taken against,
and the sum of weights relative to that anchor. Exponentials are powers of two, so that `scale` is
the factor of the scores times log2(e).

The anchor moves only to a score that is larger by more than a slack, in powers of two: results are
the same (the final division takes the anchor out again), and the larger it is, the more seldom
accumulators are rescaled. With a slack of 0 the largest weight is exactly 1; with 8 the error of
16-bit weights is 2 to 5 % larger, sums in float32 are exact still, and weights far from the largest
float16. So the largest score of one tile decides, and that of all tiles need not be kept in
registers.
"""

# Annotations are values of the tile language here, so they are not postponed.

from dataclasses import dataclass
from typing import Any

import tilecore.language as T

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453

FAR_BELOW = -1.0e30
"""Anchor before the first visible key: finite, so that exp2(-inf - anchor) is 0 and not nan."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What a block keeps for each of its rows; fragments of `count` float32.

    Attributes:
        count: rows of the tile.
        peak: the largest score of one tile; in the end, the log-sum-exp.
        previous: the last anchor, then the factor that it calls for.
        anchor: what exponents are taken against, in powers of two.
        part: the sum of one tile's weights, then whatever a caller needs.
        total: the sum of all weights so far, relative to the anchor.
    """

    count: int
    peak: Any
    previous: Any
    anchor: Any
    part: Any
    total: Any


@T.macro
def new_rows(count):
    """Fragments for `count` rows that have seen no key."""
    peak = T.alloc_fragment((count,), "float32")
    previous = T.alloc_fragment((count,), "float32")
    anchor = T.alloc_fragment((count,), "float32")
    part = T.alloc_fragment((count,), "float32")
    total = T.alloc_fragment((count,), "float32")
    T.clear(total)
    T.fill(anchor, FAR_BELOW)
    return Rows(count, peak, previous, anchor, part, total)


@T.macro
def weigh_scores(rows, scores, columns, scale, slack, lift=0.0):
    """Replace a tile of scores by its weights; `rows.previous` becomes the accumulators' factor.

    A new anchor is `lift` powers of two below the peak: weights are up to ``2 ** (lift + slack)``.
    """
    peak, previous, anchor, part, total = (
        rows.peak, rows.previous, rows.anchor, rows.part, rows.total,
    )  # fmt: skip
    T.copy(anchor, previous)
    T.reduce_max(scores, peak, dim=1)
    for i in T.Parallel(rows.count):
        top = peak[i] * scale - lift if lift else peak[i] * scale
        grown = top - anchor[i] > slack
        anchor[i] = T.if_then_else(grown, top, anchor[i])
    for i, j in T.Parallel(rows.count, columns):
        scores[i, j] = T.exp2(scores[i, j] * scale - anchor[i])
    T.reduce_sum(scores, part, dim=1)
    for i in T.Parallel(rows.count):
        previous[i] = T.exp2(previous[i] - anchor[i])
        total[i] = total[i] * previous[i] + part[i]


@T.macro
def rescale(rows, out, columns):
    """Bring an accumulator to the new anchor, after `weigh_scores`."""
    previous = rows.previous
    for i, j in T.Parallel(rows.count, columns):
        out[i, j] = out[i, j] * previous[i]


@T.macro
def add_values(rows, scores, weights, v, out, scale, slack, policy=T.GemmWarpPolicy.FullRow):
    """End a step: scores become weights, and the values that they weigh are added to `out`.

    `weights` holds them in the values' type; it may be `scores` itself. Warps divide the product
    as `policy` says.
    """
    columns, dim_v = int(scores.shape[1]), int(out.shape[1])
    weigh_scores(rows, scores, columns, scale, slack)
    rescale(rows, out, dim_v)
    if weights is not scores:
        T.copy(scores, weights)
    T.gemm(weights, v, out, policy=policy)


@T.macro
def add_sink(rows, sink):
    """Count one more key, of weight ``2 ** sink`` and value 0; `rows.previous` as after a tile."""
    previous, anchor, total = rows.previous, rows.anchor, rows.total
    for i in T.Parallel(rows.count):
        top = T.max(anchor[i], sink)
        previous[i] = T.exp2(anchor[i] - top)
        total[i] = total[i] * previous[i] + T.exp2(sink - top)
        anchor[i] = top


@T.macro
def normalize(rows, out, columns, factor=1.0):
    """Divide an accumulator by the rows' sums, times `factor`; rows without a visible key become 0.

    A nan sum is kept: it answers a nan in the input.
    """
    part, total = rows.part, rows.total
    for i in T.Parallel(rows.count):
        part[i] = T.if_then_else(total[i] == 0.0, 0.0, factor / total[i])
    for i, j in T.Parallel(rows.count, columns):
        out[i, j] = out[i, j] * part[i]


@T.macro
def to_log_sum(rows, unit):
    """`rows.peak` becomes the log-sum-exp in powers of two times `unit`; -inf without a key."""
    peak, anchor, total = rows.peak, rows.anchor, rows.total
    minus_inf = -T.infinity("float32")
    for i in T.Parallel(rows.count):
        log_sum = (T.log2(total[i]) + anchor[i]) * unit
        peak[i] = T.if_then_else(total[i] == 0.0, minus_inf, log_sum)
