"""The three kernels of attention's backward pass; `attention_backward` says what they compute."""

# Annotations are values of the tile language here, so they are not postponed.

import tilecore.language as T
from tilecore_kernels.attention_masks import first_query, hide_weights, key_tiles, query_tiles
from tilecore_kernels.online_softmax import LOG2_E

ROWS = 16
"""Rows of one block of the kernels before and after the products."""


@T.macro
def sum_products(Out, dOut, batch, head, first, products, delta):
    """``D_i = sum_d O_id dO_id`` of the rows from `first` on; `products` are what is summed."""
    for i, d in T.Parallel(*products.shape):
        grad = T.cast(dOut[batch, head, first + i, d], "float32")
        products[i, d] = grad * T.cast(Out[batch, head, first + i, d], "float32")
    T.reduce_sum(products, delta, dim=1)


@T.macro
def compute_deltas(p, Out, dOut, Delta):
    """A kernel: D of all rows."""
    with T.Kernel(T.ceildiv(p.q_len, ROWS), p.heads, p.batch, threads=128) as (bx, head, batch):
        products = T.alloc_fragment((ROWS, p.dim_v), "float32")
        delta = T.alloc_fragment((ROWS,), "float32")
        first = bx * ROWS
        sum_products(Out, dOut, batch, head, first, products, delta)
        T.copy(delta, Delta[batch, head, first : first + ROWS])


@T.macro
def store_key_gradients(p, dk, dv, batch, kv_head, first_k, dK, dV):
    """Write the sums of a block's keys, those of dK scaled."""
    tile_k = int(dk.shape[0])
    for j, d in T.Parallel(tile_k, p.dim):
        dk[j, d] = dk[j, d] * p.scale
    T.copy(dv, dV[batch, kv_head, first_k : first_k + tile_k, 0 : p.dim_v])
    T.copy(dk, dK[batch, kv_head, first_k : first_k + tile_k, 0 : p.dim])


@T.macro
def weigh(
    p, k, q, v, grad, weights, slopes, log_sum, delta, first_q, first_k, shift, limit,
    hides_scores=False,
):  # fmt: skip
    """Weights of a step, keys as rows, and their slopes; `log_sum` (of base 2) and `delta` tell L
    and D of the step's query i. Where L is infinity for queries that see nothing (`hides_scores`),
    scores are hidden, and nothing but arithmetic stands behind them; else the weights are."""
    scale, by_rows = p.scale * LOG2_E, T.GemmWarpPolicy.FullRow
    T.gemm(k, q, weights, transpose_B=True, clear_accum=True, policy=by_rows)
    T.gemm(v, grad, slopes, transpose_B=True, clear_accum=True, policy=by_rows)
    if hides_scores:
        hidden = -T.infinity("float32")
        hide_weights(p, weights, first_q, first_k, shift, limit, hidden=hidden)
    for j, i in T.Parallel(*weights.shape):
        weights[j, i] = T.exp2(weights[j, i] * scale - log_sum(i))
    if not hides_scores:
        hide_weights(p, weights, first_q, first_k, shift, limit)
    for j, i in T.Parallel(*slopes.shape):
        slopes[j, i] = weights[j, i] * (slopes[j, i] - delta(i))


@T.macro
def keys_and_values(p, config, Q, K, V, LSE, dOut, Lengths, Delta, dK, dV):
    """A kernel: dK and dV; a block owns keys and walks the queries that see them."""
    dtype, group, shift = p.dtype, p.heads // p.kv_heads, p.kv_len - p.q_len
    by_rows = T.GemmWarpPolicy.FullRow
    tile_k, tile_q = config.block_k, config.step_q
    with T.Kernel(T.ceildiv(p.kv_len, tile_k), p.kv_heads, p.batch, threads=config.threads) as (
        bx,
        kv_head,
        batch,
    ):
        k = T.alloc_shared((tile_k, p.dim), dtype)
        v = T.alloc_shared((tile_k, p.dim_v), dtype)
        q = T.alloc_shared((tile_q, p.dim), dtype)
        grad = T.alloc_shared((tile_q, p.dim_v), dtype)
        lse = T.alloc_shared((tile_q,), "float32")
        delta = T.alloc_shared((tile_q,), "float32")
        weights = T.alloc_fragment((tile_k, tile_q), "float32")
        slopes = T.alloc_fragment((tile_k, tile_q), "float32")
        weights_in = weights if dtype == "float32" else T.alloc_fragment((tile_k, tile_q), dtype)
        slopes_in = slopes if dtype == "float32" else T.alloc_fragment((tile_k, tile_q), dtype)
        dk = T.alloc_fragment((tile_k, p.dim), "float32")
        dv = T.alloc_fragment((tile_k, p.dim_v), "float32")
        first_k = bx * tile_k
        limit = T.min(Lengths[batch], p.kv_len) if p.padded else p.kv_len
        T.copy(K[batch, kv_head, first_k : first_k + tile_k, 0 : p.dim], k)
        T.copy(V[batch, kv_head, first_k : first_k + tile_k, 0 : p.dim_v], v)
        T.clear(dk)
        T.clear(dv)
        begin, end = query_tiles(p, first_k, tile_k, shift, p.q_len, tile_q)
        each = end - begin
        for step in T.Pipelined(group * each, num_stages=config.num_stages):
            head = kv_head * group + step // each
            first_q = (begin + step % each) * tile_q
            T.copy(Q[batch, head, first_q : first_q + tile_q, 0 : p.dim], q)
            T.copy(LSE[batch, head, first_q : first_q + tile_q], lse)
            T.copy(dOut[batch, head, first_q : first_q + tile_q, 0 : p.dim_v], grad)
            T.copy(Delta[batch, head, first_q : first_q + tile_q], delta)
            weigh(
                p, k, q, v, grad, weights, slopes, lambda i: lse[i] * LOG2_E, lambda i: delta[i],
                first_q, first_k, shift, limit,
            )  # fmt: skip
            if dtype != "float32":
                T.copy(weights, weights_in)
            T.gemm(weights_in, grad, dv, policy=by_rows)
            if dtype != "float32":
                T.copy(slopes, slopes_in)
            T.gemm(slopes_in, q, dk, policy=by_rows)
        store_key_gradients(p, dk, dv, batch, kv_head, first_k, dK, dV)


@T.macro
def queries(p, config, Q, K, V, LSE, dOut, Lengths, Delta, dQ):
    """A kernel: dQ; a block owns queries and walks the keys that they see."""
    dtype, group, shift = p.dtype, p.heads // p.kv_heads, p.kv_len - p.q_len
    scale, by_rows = p.scale * LOG2_E, T.GemmWarpPolicy.FullRow
    tile_q, tile_k = config.block_q, config.step_k
    with T.Kernel(T.ceildiv(p.q_len, tile_q), p.heads, p.batch, threads=config.threads) as (
        bx,
        head,
        batch,
    ):
        q = T.alloc_shared((tile_q, p.dim), dtype)
        grad = T.alloc_shared((tile_q, p.dim_v), dtype)
        k = T.alloc_shared((tile_k, p.dim), dtype)
        v = T.alloc_shared((tile_k, p.dim_v), dtype)
        weights = T.alloc_fragment((tile_q, tile_k), "float32")
        slopes = T.alloc_fragment((tile_q, tile_k), "float32")
        slopes_in = slopes if dtype == "float32" else T.alloc_fragment((tile_q, tile_k), dtype)
        lse = T.alloc_fragment((tile_q,), "float32")
        delta = T.alloc_fragment((tile_q,), "float32")
        dq = T.alloc_fragment((tile_q, p.dim), "float32")
        first_q = first_query(p, bx, p.q_len, tile_q)
        limit = T.min(Lengths[batch], p.kv_len) if p.padded else p.kv_len
        T.copy(Q[batch, head, first_q : first_q + tile_q, 0 : p.dim], q)
        T.copy(dOut[batch, head, first_q : first_q + tile_q, 0 : p.dim_v], grad)
        T.clear(dq)
        for i in T.Parallel(tile_q):
            lse[i] = LSE[batch, head, first_q + i] * LOG2_E
            delta[i] = Delta[batch, head, first_q + i]
        begin, end = key_tiles(p, first_q, tile_q, shift, limit, tile_k)
        for step in T.Pipelined(begin, end, num_stages=config.num_stages):
            first_k = step * tile_k
            T.copy(K[batch, head // group, first_k : first_k + tile_k, 0 : p.dim], k)
            T.copy(V[batch, head // group, first_k : first_k + tile_k, 0 : p.dim_v], v)
            T.gemm(q, k, weights, transpose_B=True, clear_accum=True, policy=by_rows)
            T.gemm(grad, v, slopes, transpose_B=True, clear_accum=True, policy=by_rows)
            for i, j in T.Parallel(tile_q, tile_k):
                weights[i, j] = T.exp2(weights[i, j] * scale - lse[i])
            hide_weights(p, weights, first_q, first_k, shift, limit, keys_first=False)
            for i, j in T.Parallel(tile_q, tile_k):
                slopes[i, j] = weights[i, j] * (slopes[i, j] - delta[i])
            if dtype != "float32":
                T.copy(slopes, slopes_in)
            T.gemm(slopes_in, k, dq, policy=by_rows)
        for i, d in T.Parallel(tile_q, p.dim):
            dq[i, d] = dq[i, d] * p.scale
        T.copy(dq, dQ[batch, head, first_q : first_q + tile_q, 0 : p.dim])
