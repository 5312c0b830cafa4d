"""Losses, transforms, sorting, factorising: what is no product of matrices."""

from __future__ import annotations

import math
from typing import Any

import tilecore.language as T


def chunked_cross_entropy(rows: int, vocab: int, block: int = 128) -> Any:
    """The log-sum-exp of long rows chunk by chunk, then the gradient in place."""

    @T.prim_func
    def main(
        X: T.Tensor((rows, vocab), "float16"),
        Y: T.Tensor((rows,), "int64"),
        LOSS: T.Tensor((rows,), "float32"),
        LSE: T.Tensor((rows,), "float32"),
        scale: T.float32,
    ):
        with T.Kernel(rows, threads=128) as r:
            x = T.alloc_fragment((block,), "float32")
            cm = T.alloc_fragment((1,), "float32")
            cs = T.alloc_fragment((1,), "float32")
            m = T.alloc_var("float32", init=-T.infinity("float32"))
            d = T.alloc_var("float32", init=0.0)
            for c in T.serial(T.ceildiv(vocab, block)):
                for j in T.Parallel(block):
                    x[j] = T.if_then_else(
                        c * block + j < vocab, X[r, c * block + j], -T.infinity("float32")
                    )
                T.reduce_max(x, cm)
                new = T.max(m, cm[0])
                for j in T.Parallel(block):
                    x[j] = T.exp(x[j] - new)
                T.reduce_sum(x, cs)
                d = d * T.exp(m - new) + cs[0]
                m = new
            y = Y[r]
            if y == -100:
                LOSS[r] = 0
            else:
                LOSS[r] = m + T.log(d) - X[r, y]
            LSE[r] = m + T.log(d)
            T.sync_threads()
            for c in T.serial(T.ceildiv(vocab, block)):
                for j in T.Parallel(block):
                    at = c * block + j
                    if at < vocab:
                        g = T.exp(X[r, at] - LSE[r]) - T.if_then_else(at == y, 1.0, 0.0)
                        X[r, at] = T.if_then_else(y == -100, 0.0, g * scale)

    return main


def hadamard(rows: int, n: int, stages: tuple[int, int] = (16, 16)) -> Any:
    """The transform of a row as two products with views of it as a matrix."""
    a, b = stages

    @T.prim_func
    def main(
        X: T.Tensor((rows, n), "float16"),
        HA: T.Tensor((a, a), "float16"),
        HB: T.Tensor((b, b), "float16"),
        Y: T.Tensor((rows, n), "float16"),
    ):
        with T.Kernel(rows, threads=64) as r:
            s = T.alloc_shared((n,), "float16")
            m = T.reshape(s, (a, b))
            ha = T.alloc_shared((a, a), "float16")
            hb = T.alloc_shared((b, b), "float16")
            t = T.alloc_shared((a, b), "float16")
            acc = T.alloc_fragment((a, b), "float32")
            T.copy(X[r, :], s)
            T.copy(HA, ha)
            T.copy(HB, hb)
            T.gemm(m, hb, acc, clear_accum=True)
            T.copy(acc, t)
            T.gemm(ha, t, acc, clear_accum=True)
            T.copy(acc, m)
            T.copy(s, Y[r, :])

    return main


def radix_sort(n: int, bits: int = 4, passes: int = 8) -> Any:
    """Keys with values, least digit first: places are prefix sums of flags."""
    bins = 1 << bits

    @T.prim_func
    def main(K: T.Tensor((n,), "uint32"), V: T.Tensor((n,), "int32")):
        with T.Kernel(1, threads=128):
            k = T.alloc_shared((n,), "uint32")
            v = T.alloc_shared((n,), "int32")
            k2 = T.alloc_shared((n,), "uint32")
            v2 = T.alloc_shared((n,), "int32")
            flags = T.alloc_shared((bins, n), "int32")
            T.copy(K, k)
            T.copy(V, v)
            for p in T.serial(passes):
                for b, i in T.Parallel(bins, n):
                    digit = T.cast(k[i] >> (p * bits), "int32") & (bins - 1)
                    flags[b, i] = T.if_then_else(digit == b, 1, 0)
                flat = T.reshape(flags, (bins * n,))
                T.cumsum(flat)
                for i in T.Parallel(n):
                    digit = T.cast(k[i] >> (p * bits), "int32") & (bins - 1)
                    at = flags[digit, i] - 1
                    k2[at] = k[i]
                    v2[at] = v[i]
                T.copy(k2, k)
                T.copy(v2, v)
            T.copy(k, K)
            T.copy(v, V)

    return main


def fft(rows: int, n: int) -> Any:
    """Radix 2, complex numbers as pairs, two buffers in turn."""

    @T.prim_func
    def main(X: T.Tensor((rows, n, 2), "float32"), Y: T.Tensor((rows, n, 2), "float32")):
        with T.Kernel(rows, threads=64) as r:
            a = T.alloc_shared((2, n, 2), "float32")
            T.copy(X[r, :, :], a[0, :, :])
            for s in range(int(math.log2(n))):
                half = 1 << s
                src, dst = s % 2, 1 - s % 2
                for i in T.Parallel(n // 2):
                    k = i % half
                    angle = -math.pi * k / half
                    c, d = T.cos(angle), T.sin(angle)
                    ur, ui = a[src, i, 0], a[src, i, 1]
                    xr, xi = a[src, i + n // 2, 0], a[src, i + n // 2, 1]
                    vr = xr * c - xi * d
                    vi = xr * d + xi * c
                    j = (i // half) * 2 * half + k
                    a[dst, j, 0] = ur + vr
                    a[dst, j, 1] = ui + vi
                    a[dst, j + half, 0] = ur - vr
                    a[dst, j + half, 1] = ui - vi
            T.copy(a[int(math.log2(n)) % 2, :, :], Y[r, :, :])

    return main


def philox(n: int, rounds: int = 10) -> Any:
    """Random bits of a counter and a key."""

    @T.prim_func
    def main(Y: T.Tensor((n, 4), "uint32"), seed: T.uint32):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as b:
            for i in T.Parallel(64):
                c0 = T.alloc_var("uint32")
                c1 = T.alloc_var("uint32", init=0)
                c2 = T.alloc_var("uint32", init=0)
                c3 = T.alloc_var("uint32", init=0)
                k0 = T.alloc_var("uint32")
                k1 = T.alloc_var("uint32", init=0)
                c0 = T.uint32(b * 64 + i)
                k0 = seed
                for _ in T.unroll(rounds):
                    p0 = T.uint64(c0) * T.uint64(0xD2511F53)
                    p1 = T.uint64(c2) * T.uint64(0xCD9E8D57)
                    n0 = T.uint32(p1 >> 32) ^ c1 ^ k0
                    n2 = T.uint32(p0 >> 32) ^ c3 ^ k1
                    c1 = T.uint32(p1)
                    c3 = T.uint32(p0)
                    c0 = n0
                    c2 = n2
                    k0 += 0x9E3779B9
                    k1 += 0xBB67AE85
                if b * 64 + i < n:
                    Y[b * 64 + i, 0] = c0
                    Y[b * 64 + i, 1] = c1
                    Y[b * 64 + i, 2] = c2
                    Y[b * 64 + i, 3] = c3

    return main


def cholesky(batch: int, n: int) -> Any:
    """The factor of a small matrix, column by column."""

    @T.prim_func
    def main(A: T.Tensor((batch, n, n), "float32"), L: T.Tensor((batch, n, n), "float32")):
        with T.Kernel(batch, threads=64) as b:
            s = T.alloc_shared((n, n), "float32")
            T.copy(A[b, :, :], s)
            for k in range(n):
                s[k, k] = T.sqrt(s[k, k])
                for i in T.Parallel(n):
                    if i > k:
                        s[i, k] /= s[k, k]
                for i, j in T.Parallel(n, n):
                    if j > k and i >= j:
                        s[i, j] -= s[i, k] * s[j, k]
            for i, j in T.Parallel(n, n):
                L[b, i, j] = s[i, j] if i >= j else 0.0

    return main


def edit_distance(n: int, m: int) -> Any:
    """A table walked along its anti-diagonals."""

    @T.prim_func
    def main(A: T.Tensor((n,), "uint8"), B: T.Tensor((m,), "uint8"), D: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=64):
            d = T.alloc_shared((3, n + 1), "int32")
            T.fill(d, 0)
            for t in T.serial(n + m + 1):
                for i in T.Parallel(n + 1):
                    j = t - i
                    if j >= 0 and j <= m:
                        if i == 0:
                            d[t % 3, i] = j
                        elif j == 0:
                            d[t % 3, i] = i
                        else:
                            cost = T.if_then_else(A[i - 1] == B[j - 1], 0, 1)
                            d[t % 3, i] = T.min(
                                T.min(d[(t + 2) % 3, i - 1] + 1, d[(t + 2) % 3, i] + 1),
                                d[(t + 1) % 3, i - 1] + cost,
                            )
            D[0] = d[(n + m) % 3, n]

    return main


def suppression(n: int) -> Any:
    """Boxes by their score; each that stands removes those that it covers."""

    @T.prim_func
    def main(B: T.Tensor((n, 4), "float32"), KEEP: T.Tensor((n,), "bool"), limit: T.float32):
        with T.Kernel(1, threads=128):
            box = T.alloc_shared((n, 4), "float32")
            alive = T.alloc_shared((n,), "bool")
            T.copy(B, box)
            T.fill(alive, True)
            for i in T.serial(n):
                if alive[i]:
                    for j in T.Parallel(n):
                        if j > i:
                            w = T.max(
                                T.min(box[i, 2], box[j, 2]) - T.max(box[i, 0], box[j, 0]), 0.0
                            )
                            h = T.max(
                                T.min(box[i, 3], box[j, 3]) - T.max(box[i, 1], box[j, 1]), 0.0
                            )
                            ai = (box[i, 2] - box[i, 0]) * (box[i, 3] - box[i, 1])
                            aj = (box[j, 2] - box[j, 0]) * (box[j, 3] - box[j, 1])
                            if w * h > limit * (ai + aj - w * h):
                                alive[j] = False
            T.copy(alive, KEEP)

    return main
