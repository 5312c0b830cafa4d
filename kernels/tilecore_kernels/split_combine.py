"""Combining partial attention results: blocks that saw different keys of the same rows.

Part s of a row is normalised and comes with ``L_s``, the base-2 logarithm of its sum of weights.
With M the largest of them the whole is ``sum 2^(L_s - M) O_s / sum 2^(L_s - M)``, and its own
logarithm ``M + log2(sum 2^(L_s - M))``. A part without a key has -inf and counts nothing.

The parts of a sequence lie at consecutive places of ``Parts (places, heads, rows, columns)`` and
``Sums (places, heads, rows)``; the result of a sequence that is not divided is written at once.
"""

# Annotations are values of the tile language here, so they are not postponed.

import tilecore.language as T
from tilecore_kernels.online_softmax import LN_2, normalize, to_log_sum

THREADS = 128
PARTS_AT_ONCE = 64
"""Parts that are read together: enough loads in flight, few enough registers."""
COLUMNS_AT_ONCE = 128
"""Columns of one block: wide rows are divided, so that few of them still fill a device."""


@T.macro
def leave_part(rows, out, batch, place, is_whole, head, first, Parts, Sums, Out, LSE):
    """Write a block's rows from `first` on: where `is_whole`, as the result of sequence `batch`,
    else as the part at `place`."""
    count, columns = (int(extent) for extent in out.shape)
    normalize(rows, out, columns)
    to_log_sum(rows, LN_2 if is_whole else 1.0)
    if is_whole:
        T.copy(out, Out[batch, head, first : first + count, 0:columns])
        T.copy(rows.peak, LSE[batch, head, first : first + count])
    else:
        T.copy(out, Parts[place, head, first : first + count, 0:columns])
        T.copy(rows.peak, Sums[place, head, first : first + count])


@T.macro
def combine_splits(Parts, Sums, splits, Out, LSE):
    """A kernel that combines the parts of sequences that are all divided in `splits`.

    Writes ``Out[b, h, r, d]`` and the natural log-sum-exp ``LSE[b, h, r]``.
    """
    batch, heads, group, dim = (int(extent) for extent in Out.shape)
    columns = COLUMNS_AT_ONCE if dim % COLUMNS_AT_ONCE == 0 else dim
    pieces = dim // columns
    with T.Kernel(group * pieces, heads, batch, threads=THREADS) as (bx, head, b):
        row, left = bx // pieces, bx % pieces * columns
        combine_row(Parts, Sums, Out, LSE, b, head, row, left, columns, b * splits, splits, splits)


@T.macro
def combine_shares(Parts, Sums, PartsOf, most, Out, LSE):
    """The same where ``PartsOf[b]`` names the first part of each sequence and how many it has, at
    most `most`; results of sequences with one part are there already."""
    batch, heads, group, dim = (int(extent) for extent in Out.shape)
    columns = COLUMNS_AT_ONCE if dim % COLUMNS_AT_ONCE == 0 else dim
    pieces = dim // columns
    with T.Kernel(group * pieces, heads, batch, threads=THREADS) as (bx, head, b):
        row, left = bx // pieces, bx % pieces * columns
        first, count = PartsOf[b, 0], PartsOf[b, 1]
        if count != 1:
            combine_row(Parts, Sums, Out, LSE, b, head, row, left, columns, first, count, most)


@T.macro
def combine_row(Parts, Sums, Out, LSE, b, head, row, left, columns, first, count, most):
    """Combine `columns` columns from `left` on of one row: `count` parts from place `first` on.

    Where `count` is not known while compiling, places behind it are not read.
    """
    some = min(PARTS_AT_ONCE, most)
    minus_inf = -T.infinity("float32")
    sums = T.alloc_fragment((most,), "float32")
    peak = T.alloc_fragment((1,), "float32")
    total = T.alloc_fragment((1,), "float32")
    parts = T.alloc_fragment((some, columns), "float32")
    weights = T.alloc_fragment((some,), "float32")
    out = T.alloc_fragment((columns,), "float32")
    if most == some:  # on their way while the sums are read
        read_parts(Parts, parts, first, count, head, row, left)
    for s in T.Parallel(most):
        sums[s] = T.if_then_else(s < count, Sums[first + s, head, row], minus_inf)
    T.reduce_max(sums, peak, dim=0)
    # Without any key all sums are -inf: exponents against 0 keep nan out.
    anchor = T.if_then_else(peak[0] == minus_inf, 0.0, peak[0])
    for s in T.Parallel(most):
        sums[s] = T.exp2(sums[s] - anchor)
    T.reduce_sum(sums, total, dim=0)
    share = T.if_then_else(total[0] == 0.0, 0.0, 1.0 / total[0])
    T.clear(out)
    for begin in T.serial(0, count, some):
        for s in T.Parallel(some):
            inside = begin + s < count
            weights[s] = T.if_then_else(
                inside, T.exp2(Sums[first + begin + s, head, row] - anchor), 0.0
            )
        if most != some:
            read_parts(Parts, parts, first + begin, count - begin, head, row, left)
        for s, d in T.Parallel(some, columns):
            parts[s, d] = weights[s] * parts[s, d]
        T.reduce_sum(parts, out, dim=0, clear=False)
    for d in T.Parallel(columns):
        Out[b, head, row, left + d] = out[d] * share
    if left == 0:
        LSE[b, head, row] = T.if_then_else(
            total[0] == 0.0, minus_inf, (T.log2(total[0]) + anchor) * LN_2
        )


@T.macro
def read_parts(Parts, parts, first, count, head, row, left):
    """Fill `parts` with parts from place `first` on; those from `count` on become 0."""
    some, columns = (int(extent) for extent in parts.shape)
    if isinstance(count, int) and count == some:
        T.copy(Parts[first : first + some, head, row, left : left + columns], parts)
    else:
        for s, d in T.Parallel(some, columns):
            parts[s, d] = T.if_then_else(s < count, Parts[first + s, head, row, left + d], 0.0)
