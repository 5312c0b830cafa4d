"""What a server of language models does beside products."""

from __future__ import annotations

from typing import Any

import tilecore.language as T


def append_to_pages(tokens: int, heads: int, dim: int, pages: int, page: int) -> Any:
    """New keys and values go to their slots of a cache of fp8 pages; slot -1 is padding."""

    @T.prim_func
    def main(
        K: T.Tensor((tokens, heads, dim), "bfloat16"),
        V: T.Tensor((tokens, heads, dim), "bfloat16"),
        SLOT: T.Tensor((tokens,), "int64"),
        SCALE: T.Tensor((2,), "float32"),
        KC: T.Tensor((pages, page, heads, dim), "float8_e4m3fn"),
        VC: T.Tensor((pages, heads, dim, page), "float8_e4m3fn"),
    ):
        with T.Kernel(tokens, threads=64) as t:
            slot = SLOT[t]
            if slot >= 0:
                for h, d in T.Parallel(heads, dim):
                    KC[slot // page, slot % page, h, d] = K[t, h, d] / SCALE[0]
                    VC[slot // page, h, d, slot % page] = V[t, h, d] / SCALE[1]

    return main


def norm_and_rope(tokens: int, q_heads: int, kv_heads: int, dim: int, eps: float = 1e-6) -> Any:
    """RMS norm of the heads of a fused QKV row, then their rotation, in place."""
    half = dim // 2
    total = q_heads + 2 * kv_heads

    @T.prim_func
    def main(
        QKV: T.Tensor((tokens, total, dim), "bfloat16"),
        WQ: T.Tensor((dim,), "bfloat16"),
        WK: T.Tensor((dim,), "bfloat16"),
        POS: T.Tensor((tokens,), "int64"),
        CACHE: T.Tensor((64, dim), "float32"),
    ):
        with T.Kernel(tokens, q_heads + kv_heads, threads=32) as (t, h):
            x = T.alloc_fragment((dim,), "float32")
            sq = T.alloc_fragment((dim,), "float32")
            total_sq = T.alloc_fragment((1,), "float32")
            s = T.alloc_shared((dim,), "float32")
            T.copy(QKV[t, h, :], x)
            for i in T.Parallel(dim):
                sq[i] = x[i] * x[i]
            T.reduce_sum(sq, total_sq, dim=0)
            for i in T.Parallel(dim):
                w = T.if_then_else(h < q_heads, WQ[i], WK[i])
                s[i] = x[i] * T.rsqrt(total_sq[0] / dim + eps) * w
            pos = POS[t]
            for i in T.Parallel(half):
                c = CACHE[pos, i]
                d = CACHE[pos, half + i]
                QKV[t, h, i] = s[i] * c - s[half + i] * d
                QKV[t, h, half + i] = s[half + i] * c + s[i] * d

    return main


def add_norm_quantise(rows: int, cols: int, eps: float = 1e-6) -> Any:
    """The residual is added and kept; its norm is given in int8 with a scale for each row."""

    @T.prim_func
    def main(
        X: T.Tensor((rows, cols), "float16"),
        R: T.Tensor((rows, cols), "float16"),
        W: T.Tensor((cols,), "float16"),
        Q: T.Tensor((rows, cols), "int8"),
        S: T.Tensor((rows,), "float32"),
    ):
        with T.Kernel(rows, threads=128) as r:
            x = T.alloc_fragment((1, cols), "float32")
            sq = T.alloc_fragment((1, cols), "float32")
            ssum = T.alloc_fragment((1,), "float32")
            amax = T.alloc_fragment((1,), "float32")
            for _, j in T.Parallel(1, cols):
                v = X[r, j].astype(T.float32) + R[r, j].astype(T.float32)
                R[r, j] = v
                x[0, j] = v
                sq[0, j] = v * v
            T.reduce_sum(sq, ssum, dim=1)
            for _, j in T.Parallel(1, cols):
                x[0, j] = x[0, j] * T.rsqrt(ssum[0] / cols + eps) * W[j]
            T.reduce_absmax(x, amax, dim=1)
            S[r] = amax[0] / 127
            for _, j in T.Parallel(1, cols):
                Q[r, j] = T.round(x[0, j] * (127 / amax[0]))

    return main


def sample(rows: int, vocab: int) -> Any:
    """The best k by bisection, then the largest of these with Gumbel noise."""

    @T.prim_func
    def main(
        L: T.Tensor((rows, vocab), "float32"),
        KS: T.Tensor((rows,), "int32"),
        TEMP: T.Tensor((rows,), "float32"),
        NOISE: T.Tensor((rows, vocab), "float32"),
        OUT: T.Tensor((rows,), "int32"),
    ):
        with T.Kernel(rows, threads=128) as r:
            x = T.alloc_fragment((vocab,), "float32")
            hit = T.alloc_fragment((vocab,), "int32")
            n = T.alloc_fragment((1,), "int32")
            top = T.alloc_fragment((1,), "float32")
            at = T.alloc_fragment((vocab,), "int32")
            first = T.alloc_fragment((1,), "int32")
            lo = T.alloc_var("float32")
            hi = T.alloc_var("float32")
            T.copy(L[r, :], x)
            T.reduce_max(x, top)
            hi = top[0]
            T.reduce_min(x, top)
            lo = top[0] - 1.0
            for _ in T.serial(40):
                mid = (lo + hi) * 0.5
                for j in T.Parallel(vocab):
                    hit[j] = T.cast(x[j] > mid, "int32")
                T.reduce_sum(hit, n)
                if n[0] >= KS[r]:
                    lo = mid
                else:
                    hi = mid
            for j in T.Parallel(vocab):
                g = -T.log(-T.log(NOISE[r, j]))
                x[j] = T.if_then_else(x[j] > lo, x[j] / TEMP[r] + g, -T.infinity("float32"))
            T.reduce_max(x, top)
            for j in T.Parallel(vocab):
                at[j] = T.if_then_else(x[j] == top[0], j, vocab)
            T.reduce_min(at, first)
            OUT[r] = first[0]

    return main


def nucleus(rows: int, vocab: int) -> Any:
    """Probabilities below the nucleus become zero: bisection until it is narrow."""

    @T.prim_func
    def main(
        L: T.Tensor((rows, vocab), "float32"),
        P: T.Tensor((rows,), "float32"),
        Y: T.Tensor((rows, vocab), "float32"),
    ):
        with T.Kernel(rows, threads=64) as r:
            x = T.alloc_fragment((vocab,), "float32")
            kept = T.alloc_fragment((vocab,), "float32")
            s = T.alloc_fragment((1,), "float32")
            m = T.alloc_fragment((1,), "float32")
            lo = T.alloc_var("float32", init=0.0)
            hi = T.alloc_var("float32", init=1.0)
            T.copy(L[r, 0], x)
            T.reduce_max(x, m)
            for j in T.Parallel(vocab):
                x[j] = T.exp(x[j] - m[0])
            T.reduce_sum(x, s)
            for j in T.Parallel(vocab):
                x[j] /= s[0]
            while hi - lo > 1e-7:
                mid = (lo + hi) / 2
                for j in T.Parallel(vocab):
                    kept[j] = x[j] if x[j] >= mid else 0.0
                T.reduce_sum(kept, s)
                if s[0] >= P[r]:
                    lo = mid
                else:
                    hi = mid
            for j in T.Parallel(vocab):
                kept[j] = x[j] if x[j] >= lo else 0.0
            T.reduce_sum(kept, s)
            for j in T.Parallel(vocab):
                Y[r, j] = kept[j] / s[0]

    return main


def listed_attention(heads: int, seq: int, dim: int, most: int, block: int = 32) -> Any:
    """Each block of queries reads the blocks of keys that its list names."""
    nb = seq // block

    @T.prim_func
    def main(
        Q: T.Tensor((heads, seq, dim), "float16"),
        K: T.Tensor((heads, seq, dim), "float16"),
        V: T.Tensor((heads, seq, dim), "float16"),
        IDX: T.Tensor((heads, nb, most), "int32"),
        CNT: T.Tensor((heads, nb), "int32"),
        OUT: T.Tensor((heads, seq, dim), "float16"),
    ):
        with T.Kernel(nb, heads, threads=64) as (bx, h):
            q = T.alloc_shared((block, dim), "float16")
            k = T.alloc_shared((block, dim), "float16")
            v = T.alloc_shared((block, dim), "float16")
            s = T.alloc_fragment((block, block), "float32")
            p = T.alloc_fragment((block, block), "float16")
            o = T.alloc_fragment((block, dim), "float32")
            m = T.alloc_fragment((block,), "float32")
            m_old = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((block,), "float32")
            rs = T.alloc_fragment((block,), "float32")
            T.copy(Q[h, bx * block : (bx + 1) * block, :], q)
            T.clear(o)
            T.clear(total)
            T.fill(m, -T.infinity("float32"))
            for n in T.Pipelined(CNT[h, bx], num_stages=2):
                kb = IDX[h, bx, n]
                T.copy(K[h, kb * block : (kb + 1) * block, :], k)
                T.copy(V[h, kb * block : (kb + 1) * block, :], v)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                if kb == bx:
                    for i, j in T.Parallel(block, block):
                        s[i, j] = T.if_then_else(i >= j, s[i, j], -T.infinity("float32"))
                T.copy(m, m_old)
                T.reduce_max(s, m, dim=1, clear=False)
                for i, j in T.Parallel(block, block):
                    s[i, j] = T.exp2((s[i, j] - m[i]) * (1.4426950408889634 / dim**0.5))
                T.reduce_sum(s, rs, dim=1)
                for i in T.Parallel(block):
                    m_old[i] = T.exp2((m_old[i] - m[i]) * (1.4426950408889634 / dim**0.5))
                    total[i] = total[i] * m_old[i] + rs[i]
                for i, j in T.Parallel(block, dim):
                    o[i, j] *= m_old[i]
                T.copy(s, p)
                T.gemm(p, v, o)
            for i, j in T.Parallel(block, dim):
                o[i, j] /= total[i]
            T.copy(o, OUT[h, bx * block : (bx + 1) * block, :])

    return main
