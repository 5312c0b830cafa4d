"""Attention's backward pass that adds to dQ: its three kernels; see `attention_backward`."""

# Annotations are values of the tile language here, so they are not postponed.

from dataclasses import dataclass
from typing import Any

import tilecore.language as T
from tilecore_kernels.attention_masks import query_tiles
from tilecore_kernels.backward_kernels import ROWS, store_key_gradients, sum_products, weigh
from tilecore_kernels.backward_problem import PANEL
from tilecore_kernels.online_softmax import LOG2_E
from tilecore_kernels.tiles import round_up

CROWDED = 64
"""Weights and slopes of a lane up to which a product runs beside both of them."""

HEADS_TOGETHER = 4
"""Heads whose tiles are walked together where they are unequal, longest first: those of as many
blocks as are in flight, for 32 tiles a head and 132 multiprocessors. Blocks then end together (a
model of the walk: 0.98 of their time is work with heads one by one, 0.999 with four)."""


def columns_kept(p):
    """Columns of the sums: whole panels."""
    return round_up(p.dim, PANEL)


def sums_shape(p, tile_q):
    """Shape of the sums of dQ: whole steps of `tile_q` queries, a head's in one row."""
    return (p.batch, p.heads, round_up(p.q_len, tile_q) * columns_kept(p))


def place(p, i, d):
    """Where a head keeps the sum of query `i` and column `d`: blocks of ROWS queries, in them
    panels of columns, in these pieces of two rows, in these pairs of columns: as lanes of an
    accumulator hold them. Each lane then adds four neighbours, a warp whole lines of memory."""
    panel = (i // ROWS * columns_kept(p) + d // PANEL * PANEL) * ROWS
    half = ROWS // 2
    return panel + (i % half * PANEL + d % PANEL // 2 * 2 + i // half % 2) * 2 + d % 2


@T.macro
def prepare_rows(p, Out, dOut, LSE, Rows, Sums):
    """A kernel: ``Rows[0] = L log2(e)``, infinity for queries that see nothing, ``Rows[1] = D`` and
    zeros for the sums of dQ."""
    with T.Kernel(T.ceildiv(p.q_len, ROWS), p.heads, p.batch, threads=128) as (bx, head, batch):
        products = T.alloc_fragment((ROWS, p.dim_v), "float32")
        delta = T.alloc_fragment((ROWS,), "float32")
        zeros = T.alloc_fragment((ROWS * columns_kept(p),), "float32")
        first = bx * ROWS
        sum_products(Out, dOut, batch, head, first, products, delta)
        for i in T.Parallel(ROWS):
            if first + i < p.q_len:
                log_sum = LSE[batch, head, first + i]
                Rows[0, batch, head, first + i] = T.if_then_else(
                    log_sum == -T.infinity("float32"), T.infinity("float32"), log_sum * LOG2_E
                )
                Rows[1, batch, head, first + i] = delta[i]
        T.clear(zeros)
        begin = first * columns_kept(p)
        T.copy(zeros, Sums[batch, head, begin : begin + ROWS * columns_kept(p)])


@dataclass(frozen=True, slots=True)
class Whole:
    """Where the rows of one sequence of a batch are.

    Attributes:
        batch: its number.
    """

    batch: Any

    def queries(self, tensor: Any, head: Any, first: Any, count: int, columns: int) -> Any:
        """`count` rows of a tensor of queries."""
        return tensor[self.batch, head, first : first + count, 0:columns]

    keys = queries

    def rows(self, tensor: Any, head: Any, tile: Any, count: int) -> Any:
        """L and D of a tile of `count` queries, (2, count)."""
        return tensor[0:2, self.batch, head, tile * count : tile * count + count]

    def sums(self, tensor: Any, head: Any, tile: Any, count: int) -> Any:
        """The sums of a tile of queries, `count` of them."""
        return tensor[self.batch, head, tile * count : tile * count + count]

    def sum_at(self, head: Any, tile: Any, count: int, place: Any) -> tuple[Any, ...]:
        """Where one of them is."""
        return self.batch, head, tile * count + place


@T.macro
def gradients(p, config, Q, K, V, dOut, Lengths, Rows, Sums, dK, dV):
    """A kernel: dK and dV; a block owns keys, walks the queries that see them, and adds what its
    keys give to their sums of dQ.

    Where all tiles walk the same queries, those of a head are neighbours along the second axis and
    follow one another: they may load the queries for one another."""
    tile_k = config.block_k
    tiles = (p.kv_len + tile_k - 1) // tile_k
    alike = p.right is None and p.left is None
    grid = (p.kv_heads, tiles) if alike else (tiles, p.kv_heads)
    with T.Kernel(*grid, p.batch, threads=config.threads) as (first, second, batch):
        T.use_swizzle(tiles if alike else HEADS_TOGETHER)
        bx, kv_head = (second, first) if alike else (first, second)
        first_k = bx * tile_k
        limit = T.min(Lengths[batch], p.kv_len) if p.padded else p.kv_len
        span = (first_k, limit, p.kv_len - p.q_len, p.q_len)
        dk, dv = walk_queries(p, config, Whole(batch), kv_head, *span, Q, K, V, dOut, Rows, Sums)
        store_key_gradients(p, dk, dv, batch, kv_head, first_k, dK, dV)


@T.macro
def walk_queries(
    p, config, where, kv_head, first_k, limit, shift, q_len, Q, K, V, dOut, Rows, Sums
):  # fmt: skip
    """The gradients of a tile of keys; what they give to the queries that see them is added to the
    sums of dQ.

    Args:
        p: the problem; nothing of its lengths is used.
        where: a `Whole` or another record of its methods: where a sequence's rows are.
        first_k: the first key, counted in the sequence, which ends at `limit`.
        shift: keys of the sequence less its queries, of which there are `q_len`.
    """
    dtype, group = p.dtype, p.heads // p.kv_heads
    by_rows = T.GemmWarpPolicy.FullRow
    tile_k, tile_q = config.block_k, config.step_q
    each_sums = tile_q * columns_kept(p)
    # Slopes are rounded under a product of the weights, unless that takes more registers than fit.
    crowded = 2 * tile_k * tile_q > CROWDED * config.threads
    k = T.alloc_shared((tile_k, p.dim), dtype)
    v = T.alloc_shared((tile_k, p.dim_v), dtype)
    q = T.alloc_shared((tile_q, p.dim), dtype)
    grad = T.alloc_shared((tile_q, p.dim_v), dtype)
    rows = T.alloc_shared((2, tile_q), "float32")
    slopes_of_all = T.alloc_shared((2, tile_k, tile_q), dtype)
    weights = T.alloc_fragment((tile_k, tile_q), "float32")
    slopes = T.alloc_fragment((tile_k, tile_q), "float32")
    weights_in = weights if dtype == "float32" else T.alloc_fragment((tile_k, tile_q), dtype)
    slopes_in = slopes if dtype == "float32" else T.alloc_fragment((tile_k, tile_q), dtype)
    dk = T.alloc_fragment((tile_k, p.dim), "float32")
    dv = T.alloc_fragment((tile_k, p.dim_v), "float32")
    dq = T.alloc_fragment((tile_q, p.dim), "float32")
    if config.staged:
        staged = T.alloc_shared((each_sums,), "float32")
    T.copy(where.keys(K, kv_head, first_k, tile_k, p.dim), k)
    T.copy(where.keys(V, kv_head, first_k, tile_k, p.dim_v), v)
    T.clear(dk)
    T.clear(dv)
    begin, end = query_tiles(p, first_k, tile_k, shift, q_len, tile_q)
    each = end - begin
    for step in T.Pipelined(group * each, num_stages=config.num_stages):
        # The bounds are always kept; stated, they spare the guard of each addition.
        head = kv_head * group + T.max(0, T.min(step // each, group - 1))
        tile = begin + step % each
        first_q = tile * tile_q
        T.copy(where.queries(Q, head, first_q, tile_q, p.dim), q)
        T.copy(where.queries(dOut, head, first_q, tile_q, p.dim_v), grad)
        T.copy(where.rows(Rows, head, tile, tile_q), rows)
        weigh(
            p, k, q, v, grad, weights, slopes, lambda i: rows[0, i], lambda i: rows[1, i],
            first_q, first_k, shift, limit, hides_scores=True,
        )  # fmt: skip
        if dtype != "float32":
            T.copy(weights, weights_in)
        if dtype != "float32" and crowded:
            T.copy(slopes, slopes_in)
        T.gemm(weights_in, grad, dv, policy=by_rows)
        if dtype != "float32" and not crowded:
            T.copy(slopes, slopes_in)
        T.copy(slopes_in, slopes_of_all[step % 2, :, :])
        T.gemm(slopes_of_all[step % 2, :, :], k, dq, transpose_A=True, clear_accum=True)
        T.gemm(slopes_in, q, dk, policy=by_rows)
        if config.staged:
            for i, d in T.Parallel(tile_q, p.dim):
                staged[place(p, i, d)] = dq[i, d]
            T.atomic_add(where.sums(Sums, head, tile, each_sums), staged)
        else:
            for i, d in T.Parallel(tile_q, p.dim):
                at = where.sum_at(head, tile, each_sums, place(p, i, d))
                T.atomic_add(Sums[at], dq[i, d])
    return dk, dv


@T.macro
def round_sums(p, Sums, dQ):
    """A kernel: dQ, scaled and rounded from its sums."""
    half, panels, pairs = ROWS // 2, columns_kept(p) // PANEL, PANEL // 2
    with T.Kernel(T.ceildiv(p.q_len, ROWS), p.heads, p.batch, threads=128) as (bx, head, batch):
        sums = T.alloc_fragment((half, panels, pairs, 4), "float32")
        begin = bx * ROWS * columns_kept(p)
        for i, n, d, e in T.Parallel(half, panels, pairs, 4):
            sums[i, n, d, e] = Sums[batch, head, begin + ((n * half + i) * pairs + d) * 4 + e]
        for row, i, n, d, e in T.Parallel(2, half, panels, pairs, 2):
            dQ[batch, head, bx * ROWS + row * half + i, n * PANEL + d * 2 + e] = T.cast(
                sums[i, n, d, row * 2 + e] * p.scale, p.dtype
            )
