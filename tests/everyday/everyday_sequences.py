"""Recurrences over time in chunks, and scans that restart."""

from __future__ import annotations

from typing import Any

import tilecore.language as T


def state_space(batch: int, length: int, heads: int, dim: int, state: int, chunk: int = 32) -> Any:
    """h = exp(dt A) h + dt B x, y = C h: products within a chunk, a state between chunks."""

    @T.prim_func
    def main(
        X: T.Tensor((batch, length, heads, dim), "float16"),
        DT: T.Tensor((batch, length, heads), "float32"),
        A: T.Tensor((heads,), "float32"),
        B: T.Tensor((batch, length, state), "float16"),
        C: T.Tensor((batch, length, state), "float16"),
        Y: T.Tensor((batch, length, heads, dim), "float32"),
    ):
        with T.Kernel(heads, batch, threads=128) as (h, b):
            x = T.alloc_shared((chunk, dim), "float16")
            bs = T.alloc_shared((chunk, state), "float16")
            cs = T.alloc_shared((chunk, state), "float16")
            bd = T.alloc_shared((chunk, state), "float16")
            dt = T.alloc_shared((chunk,), "float32")
            log = T.alloc_shared((chunk,), "float32")
            p = T.alloc_shared((chunk, chunk), "float16")
            hs = T.alloc_shared((state, dim), "float16")
            hf = T.alloc_fragment((state, dim), "float32")
            scores = T.alloc_fragment((chunk, chunk), "float32")
            y = T.alloc_fragment((chunk, dim), "float32")
            T.clear(hf)
            for c in T.serial(T.ceildiv(length, chunk)):
                T.copy(X[b, c * chunk : (c + 1) * chunk, h, :], x)
                T.copy(B[b, c * chunk, 0], bs)
                T.copy(C[b, c * chunk, 0], cs)
                for i in T.Parallel(chunk):
                    dt[i] = DT[b, c * chunk + i, h]
                    log[i] = DT[b, c * chunk + i, h] * A[h]
                T.cumsum(log)
                T.copy(hf, hs)
                T.gemm(cs, hs, y, clear_accum=True)
                for i, j in T.Parallel(chunk, dim):
                    y[i, j] *= T.exp(log[i])
                T.gemm(cs, bs, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    decay = T.exp(log[i] - log[j]) * dt[j]
                    scores[i, j] = T.if_then_else(i >= j, scores[i, j] * decay, 0)
                T.copy(scores, p)
                T.gemm(p, x, y)
                T.copy(y, Y[b, c * chunk : (c + 1) * chunk, h, :])
                for i, j in T.Parallel(chunk, state):
                    bd[i, j] = bs[i, j] * T.exp(log[chunk - 1] - log[i]) * dt[i]
                for i, j in T.Parallel(state, dim):
                    hf[i, j] *= T.exp(log[chunk - 1])
                T.gemm(bd, x, hf, transpose_A=True)

    return main


def gated_delta_rule(length: int, heads: int, dk: int, dv: int, chunk: int = 16) -> Any:
    """A state that forgets, and corrects what it holds for each key: solved chunk by chunk."""

    @T.prim_func
    def main(
        Q: T.Tensor((length, heads, dk), "float32"),
        K: T.Tensor((length, heads, dk), "float32"),
        V: T.Tensor((length, heads, dv), "float32"),
        G: T.Tensor((length, heads), "float32"),
        BETA: T.Tensor((length, heads), "float32"),
        OUT: T.Tensor((length, heads, dv), "float32"),
    ):
        with T.Kernel(heads, threads=64) as h:
            q = T.alloc_shared((chunk, dk), "float32")
            k = T.alloc_shared((chunk, dk), "float32")
            kb = T.alloc_shared((chunk, dk), "float32")
            u = T.alloc_shared((chunk, dv), "float32")
            g = T.alloc_shared((chunk,), "float32")
            beta = T.alloc_shared((chunk,), "float32")
            a = T.alloc_shared((chunk, chunk), "float32")
            p = T.alloc_shared((chunk, chunk), "float32")
            state = T.alloc_shared((dk, dv), "float32")
            af = T.alloc_fragment((chunk, chunk), "float32")
            uf = T.alloc_fragment((chunk, dv), "float32")
            of = T.alloc_fragment((chunk, dv), "float32")
            sf = T.alloc_fragment((dk, dv), "float32")
            T.clear(state)
            for c in T.serial(T.ceildiv(length, chunk)):
                first = c * chunk
                T.copy(Q[first : first + chunk, h, :], q)
                T.copy(K[first : first + chunk, h, :], k)
                T.copy(V[first : first + chunk, h, :], u)
                for i in T.Parallel(chunk):
                    g[i] = G[first + i, h]
                    beta[i] = BETA[first + i, h]
                T.cumsum(g)
                for i, j in T.Parallel(chunk, dk):
                    kb[i, j] = k[i, j] * T.exp(g[i])
                T.gemm(kb, state, uf, clear_accum=True)
                for i, j in T.Parallel(chunk, dv):
                    u[i, j] = beta[i] * (u[i, j] - uf[i, j])
                T.gemm(k, k, af, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    a[i, j] = T.if_then_else(i > j, beta[i] * T.exp(g[i] - g[j]) * af[i, j], 0)
                for r in T.serial(1, chunk):
                    for j in T.Parallel(dv):
                        acc = T.alloc_var("float32", init=0.0)
                        for s in T.serial(r):
                            acc += a[r, s] * u[s, j]
                        u[r, j] -= acc
                T.gemm(q, k, af, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    p[i, j] = T.if_then_else(i >= j, T.exp(g[i] - g[j]) * af[i, j], 0)
                for i, j in T.Parallel(chunk, dk):
                    q[i, j] *= T.exp(g[i])
                T.gemm(q, state, of, clear_accum=True)
                T.gemm(p, u, of)
                T.copy(of, OUT[first : first + chunk, h, :])
                for i, j in T.Parallel(chunk, dk):
                    kb[i, j] = k[i, j] * T.exp(g[chunk - 1] - g[i])
                for i, j in T.Parallel(dk, dv):
                    sf[i, j] = state[i, j] * T.exp(g[chunk - 1])
                T.gemm(kb, u, sf, transpose_A=True)
                T.copy(sf, state)

    return main


def segmented_scan(n: int, block: int = 128) -> Any:
    """Prefix sums that begin anew at flags, with a carry between blocks."""

    @T.prim_func
    def main(X: T.Tensor((n,), "float32"), F: T.Tensor((n,), "bool"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=128):
            v = T.alloc_shared((block,), "float32")
            f = T.alloc_shared((block,), "bool")
            nv = T.alloc_fragment((block,), "float32")
            nf = T.alloc_fragment((block,), "bool")
            carry = T.alloc_var("float32", init=0.0)
            for b in T.serial(T.ceildiv(n, block)):
                T.copy(X[b * block], v)
                T.copy(F[b * block], f)
                d = 1
                while d < block:
                    for i in T.Parallel(block):
                        nv[i] = v[i]
                        nf[i] = f[i]
                        if i >= d:
                            nf[i] = f[i] | f[i - d]
                            if not f[i]:
                                nv[i] = v[i] + v[i - d]
                    T.copy(nv, v)
                    T.copy(nf, f)
                    d *= 2
                for i in T.Parallel(block):
                    if b * block + i < n:
                        Y[b * block + i] = T.if_then_else(f[i], v[i], v[i] + carry)
                carry = T.if_then_else(f[block - 1], v[block - 1], v[block - 1] + carry)

    return main


def causal_convolution(batch: int, length: int, channels: int, taps: int = 4) -> Any:
    """A filter over time for each channel with SiLU, and the last inputs for what follows."""

    @T.prim_func
    def main(
        X: T.Tensor((batch, length, channels), "float16"),
        W: T.Tensor((channels, taps), "float16"),
        BIAS: T.Tensor((channels,), "float16"),
        Y: T.Tensor((batch, length, channels), "float16"),
        STATE: T.Tensor((batch, taps - 1, channels), "float16"),
    ):
        with T.Kernel(T.ceildiv(channels, 64), T.ceildiv(length, 16), batch, threads=128) as (
            bc,
            bt,
            b,
        ):
            acc = T.alloc_fragment((16, 64), "float32")
            for i, j in T.Parallel(16, 64):
                acc[i, j] = BIAS[bc * 64 + j]
                for t in T.unroll(taps):
                    at = bt * 16 + i - (taps - 1) + t
                    if at >= 0:
                        acc[i, j] += X[b, at, bc * 64 + j].astype("float32") * W[
                            bc * 64 + j, t
                        ].astype("float32")
                acc[i, j] = acc[i, j] * T.sigmoid(acc[i, j])
            T.copy(acc, Y[b, bt * 16, bc * 64])
            if bt == 0:
                for i, j in T.Parallel(taps - 1, 64):
                    STATE[b, i, bc * 64 + j] = X[b, length - (taps - 1) + i, bc * 64 + j]

    return main
