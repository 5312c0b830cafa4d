"""Kernels written for each lane: shared arrays, barriers, exchanges in a warp."""

from __future__ import annotations

from typing import Any

import tilecore.language as T


def lane_matmul(m: int, n: int, k: int, tile: int = 16) -> Any:
    """Each lane computes one element from two shared tiles."""

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float32"),
        B: T.Tensor((k, n), "float32"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, tile), T.ceildiv(m, tile), threads=(tile, tile)) as (bx, by):
            tx = T.get_thread_binding(0)
            ty = T.get_thread_binding(1)
            As = T.alloc_shared((tile, tile), "float32")
            Bs = T.alloc_shared((tile, tile + 1), "float32")
            acc = T.alloc_var("float32", init=0.0)
            row = by * tile + ty
            col = bx * tile + tx
            for p in T.serial(T.ceildiv(k, tile)):
                As[ty, tx] = T.if_then_else(
                    row < m and p * tile + tx < k, A[row, p * tile + tx], 0.0
                )
                Bs[ty, tx] = T.if_then_else(
                    p * tile + ty < k and col < n, B[p * tile + ty, col], 0.0
                )
                T.sync_threads()
                for i in T.unroll(tile):
                    acc += As[ty, i] * Bs[i, tx]
                T.sync_threads()
            if row < m and col < n:
                C[row, col] = acc

    return main


def register_tiles(
    m: int, n: int, k: int, bm: int = 64, bn: int = 64, bk: int = 8, tm: int = 4, tn: int = 4
) -> Any:
    """Each lane computes a tile in its registers."""

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float32"),
        B: T.Tensor((k, n), "float32"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=256) as (bx, by):
            tid = T.get_thread_binding()
            tx = tid % (bn // tn)
            ty = tid // (bn // tn)
            As = T.alloc_shared((bk, bm), "float32")
            Bs = T.alloc_shared((bk, bn), "float32")
            acc = T.alloc_local((tm, tn), "float32")
            ra = T.alloc_local((tm,), "float32")
            rb = T.alloc_local((tn,), "float32")
            T.clear(acc)
            for p in T.serial(T.ceildiv(k, bk)):
                for part in T.unroll(bm * bk // 256):
                    e = part * 256 + tid
                    As[e % bk, e // bk] = (
                        A[by * bm + e // bk, p * bk + e % bk]
                        if by * bm + e // bk < m and p * bk + e % bk < k
                        else 0.0
                    )
                for part in T.unroll(bn * bk // 256):
                    e = part * 256 + tid
                    Bs[e // bn, e % bn] = (
                        B[p * bk + e // bn, bx * bn + e % bn]
                        if p * bk + e // bn < k and bx * bn + e % bn < n
                        else 0.0
                    )
                T.sync_threads()
                for kk in T.serial(bk):
                    for i in T.unroll(tm):
                        ra[i] = As[kk, ty * tm + i]
                    for j in T.unroll(tn):
                        rb[j] = Bs[kk, tx * tn + j]
                    for i in T.unroll(tm):
                        for j in T.unroll(tn):
                            acc[i, j] += ra[i] * rb[j]
                T.sync_threads()
            for i in T.unroll(tm):
                for j in T.unroll(tn):
                    if by * bm + ty * tm + i < m and bx * bn + tx * tn + j < n:
                        C[by * bm + ty * tm + i, bx * bn + tx * tn + j] = acc[i, j]

    return main


def strided_sum(n: int, threads: int = 256) -> Any:
    """Lanes go over the array in strides; warps exchange, the block adds once."""

    @T.prim_func
    def main(X: T.Tensor((n,), "float32"), Y: T.Tensor((1,), "float32")):
        with T.Kernel(4, threads=threads) as b:
            tid = T.get_thread_binding()
            warp_sums = T.alloc_shared((threads // 32,), "float32")
            v = T.alloc_var("float32", init=0.0)
            i = T.alloc_var("int32")
            i = b * threads + tid
            while i < n:
                v += X[i]
                i += threads * 4
            for off in [16, 8, 4, 2, 1]:
                v += T.shfl_down(v, off)
            if tid % 32 == 0:
                warp_sums[tid // 32] = v
            T.sync_threads()
            if tid == 0:
                s = T.alloc_var("float32", init=0.0)
                for w in T.serial(threads // 32):
                    s += warp_sums[w]
                T.atomic_add(Y[0], s)

    return main


def blelloch_scan(n: int) -> Any:
    """Sums up a tree and down again."""
    threads = n // 2

    @T.prim_func
    def main(X: T.Tensor((n,), "int32"), Y: T.Tensor((n,), "int32")):
        with T.Kernel(1, threads=threads):
            t = T.get_thread_binding()
            s = T.alloc_shared((n,), "int32")
            off = T.alloc_var("int32", init=1)
            d = T.alloc_var("int32", init=n // 2)
            s[2 * t] = X[2 * t]
            s[2 * t + 1] = X[2 * t + 1]
            while d > 0:
                T.sync_threads()
                if t < d:
                    ai = off * (2 * t + 1) - 1
                    bi = off * (2 * t + 2) - 1
                    s[bi] += s[ai]
                off *= 2
                d //= 2
            T.sync_threads()
            if t == 0:
                s[n - 1] = 0
            d = 1
            while d < n:
                off //= 2
                T.sync_threads()
                if t < d:
                    ai = off * (2 * t + 1) - 1
                    bi = off * (2 * t + 2) - 1
                    tmp = s[ai]
                    s[ai] = s[bi]
                    s[bi] += tmp
                d *= 2
            T.sync_threads()
            Y[2 * t] = s[2 * t]
            Y[2 * t + 1] = s[2 * t + 1]

    return main


def warp_softmax(rows: int, cols: int) -> Any:
    """A warp for each row."""

    @T.prim_func
    def main(X: T.Tensor((rows, cols), "float32"), Y: T.Tensor((rows, cols), "float32")):
        with T.Kernel(T.ceildiv(rows, 4), threads=128) as b:
            tid = T.get_thread_binding()
            row = b * 4 + tid // 32
            lane = tid % 32
            if row < rows:
                m = T.alloc_var("float32", init=-T.infinity("float32"))
                s = T.alloc_var("float32", init=0.0)
                for k in T.serial(T.ceildiv(cols, 32)):
                    c = k * 32 + lane
                    if c < cols:
                        m = T.max(m, X[row, c])
                for o in (16, 8, 4, 2, 1):
                    m = T.max(m, T.shfl_xor(m, o))
                for k in T.serial(T.ceildiv(cols, 32)):
                    c = k * 32 + lane
                    if c < cols:
                        s += T.exp(X[row, c] - m)
                for o in (16, 8, 4, 2, 1):
                    s += T.shfl_xor(s, o)
                for k in T.serial(T.ceildiv(cols, 32)):
                    c = k * 32 + lane
                    if c < cols:
                        Y[row, c] = T.exp(X[row, c] - m) / s

    return main


def bodies(n: int) -> Any:
    """Forces of all on each, tile by tile."""

    @T.prim_func
    def main(P: T.Tensor((n, 4), "float32"), F: T.Tensor((n, 3), "float32")):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as b:
            t = T.get_thread_binding()
            s = T.alloc_shared((64, 4), "float32")
            i = b * 64 + t
            f = T.alloc_local((3,), "float32")
            p = T.alloc_local((4,), "float32")
            T.clear(f)
            for c in T.serial(4):
                p[c] = P[i, c] if i < n else 0.0
            for k in T.serial(T.ceildiv(n, 64)):
                for c in T.unroll(4):
                    s[t, c] = P[k * 64 + t, c] if k * 64 + t < n else 0.0
                T.sync_threads()
                for j in T.serial(64):
                    dx = s[j, 0] - p[0]
                    dy = s[j, 1] - p[1]
                    dz = s[j, 2] - p[2]
                    inv = T.rsqrt(dx * dx + dy * dy + dz * dz + 0.01)
                    w = s[j, 3] * inv * inv * inv
                    f[0] += dx * w
                    f[1] += dy * w
                    f[2] += dz * w
                T.sync_threads()
            if i < n:
                for c in T.unroll(3):
                    F[i, c] = f[c]

    return main
