"""Combining partial attention results: blocks that saw different keys of the same rows.

Part s of a row is normalised and comes with ``L_s``, the base-2 logarithm of its sum of weights.
With M the largest of them the whole is ``sum 2^(L_s - M) O_s / sum 2^(L_s - M)``, and its own
logarithm ``M + log2(sum 2^(L_s - M))``. A part without a key has -inf and counts nothing.
"""

# Annotations are values of the tile language here, so they are not postponed.

import tilecore.language as T
from tilecore_kernels.online_softmax import LN_2, normalize, to_log_sum

THREADS = 128
SPLITS_AT_ONCE = 64
"""Parts that are read together: enough loads in flight, few enough registers."""
COLUMNS_AT_ONCE = 128
"""Columns of one block: wide rows are divided, so that few of them still fill a device."""


@T.macro
def leave_part(rows, out, batch, head, split, first, Parts, Sums, Out, LSE):
    """Write a block's rows from `first` on: as part `split`, or as the result without `Parts`."""
    count, columns = (int(extent) for extent in out.shape)
    normalize(rows, out, columns)
    to_log_sum(rows, LN_2 if Parts is None else 1.0)
    if Parts is None:
        T.copy(out, Out[batch, head, first : first + count, 0:columns])
        T.copy(rows.peak, LSE[batch, head, first : first + count])
    else:
        T.copy(out, Parts[batch, head, split, first : first + count, 0:columns])
        T.copy(rows.peak, Sums[batch, head, split, first : first + count])


@T.macro
def combine_splits(Parts, Sums, Out, LSE):
    """A kernel that combines ``Parts[b, h, s, r, d]`` and ``Sums[b, h, s, r]`` over s.

    Writes ``Out[b, h, r, d]`` and the natural log-sum-exp ``LSE[b, h, r]``.
    """
    batch, heads, splits, group, dim = (int(extent) for extent in Parts.shape)
    some = min(SPLITS_AT_ONCE, splits)
    columns = COLUMNS_AT_ONCE if dim % COLUMNS_AT_ONCE == 0 else dim
    pieces = dim // columns
    minus_inf = -T.infinity("float32")
    with T.Kernel(group * pieces, heads, batch, threads=THREADS) as (bx, head, b):
        row, left = bx // pieces, bx % pieces * columns
        sums = T.alloc_fragment((splits,), "float32")
        peak = T.alloc_fragment((1,), "float32")
        total = T.alloc_fragment((1,), "float32")
        parts = T.alloc_fragment((some, columns), "float32")
        weights = T.alloc_fragment((some,), "float32")
        out = T.alloc_fragment((columns,), "float32")
        if splits == some:  # on their way while the sums are read
            T.copy(Parts[b, head, 0:some, row, left : left + columns], parts)
        for s in T.Parallel(splits):
            sums[s] = Sums[b, head, s, row]
        T.reduce_max(sums, peak, dim=0)
        # Without any key all sums are -inf: exponents against 0 keep nan out.
        anchor = T.if_then_else(peak[0] == minus_inf, 0.0, peak[0])
        for s in T.Parallel(splits):
            sums[s] = T.exp2(sums[s] - anchor)
        T.reduce_sum(sums, total, dim=0)
        share = T.if_then_else(total[0] == 0.0, 0.0, 1.0 / total[0])
        T.clear(out)
        for first in T.serial(0, splits, some):
            for s in T.Parallel(some):
                inside = first + s < splits
                weights[s] = T.if_then_else(
                    inside, T.exp2(Sums[b, head, first + s, row] - anchor), 0.0
                )
            if splits != some:
                rows = Parts[b, head, first : first + some, row, left : left + columns]
                T.copy(rows, parts)
            for s, d in T.Parallel(some, columns):
                parts[s, d] = weights[s] * parts[s, d]
            T.reduce_sum(parts, out, dim=0, clear=False)
        for d in T.Parallel(columns):
            Out[b, head, row, left + d] = out[d] * share
        if left == 0:
            LSE[b, head, row] = T.if_then_else(
                total[0] == 0.0, minus_inf, (T.log2(total[0]) + anchor) * LN_2
            )
