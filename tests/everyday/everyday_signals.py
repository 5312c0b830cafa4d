"""Kernels over positions: rotations, recurrences, windows, iterations of each element."""

from __future__ import annotations

from typing import Any

import tilecore.language as T


def rope(seq: int, heads: int, dim: int) -> Any:
    """Pairs (i, i + dim / 2) of each head turned by an angle that grows with the position."""
    half = dim // 2

    @T.prim_func
    def main(
        X: T.Tensor((seq, heads, dim), "float16"),
        COS: T.Tensor((seq, half), "float32"),
        SIN: T.Tensor((seq, half), "float32"),
        Y: T.Tensor((seq, heads, dim), "float16"),
    ):
        with T.Kernel(seq, threads=64) as s:
            for h, i in T.Parallel(heads, half):
                c, d = COS[s, i], SIN[s, i]
                a = T.cast(X[s, h, i], "float32")
                b = T.cast(X[s, h, i + half], "float32")
                Y[s, h, i] = a * c - b * d
                Y[s, h, i + half] = b * c + a * d

    return main


def rope_interleaved(seq: int, dim: int, base: float = 10000.0) -> Any:
    """Pairs of neighbours; the angles are computed where they are used."""

    @T.prim_func
    def main(X: T.Tensor((seq, dim), "float32"), Y: T.Tensor((seq, dim), "float32")):
        with T.Kernel(T.ceildiv(seq, 16), threads=128) as bx:
            x = T.alloc_shared((16, dim), "float32")
            T.copy(X[bx * 16, 0], x)
            for i, j in T.Parallel(16, dim // 2):
                angle = (bx * 16 + i) * T.exp2(-2.0 * j / dim * T.log2(base))
                Y[bx * 16 + i, 2 * j] = x[i, 2 * j] * T.cos(angle) - x[i, 2 * j + 1] * T.sin(angle)
                Y[bx * 16 + i, 2 * j + 1] = x[i, 2 * j] * T.sin(angle) + x[i, 2 * j + 1] * T.cos(
                    angle
                )

    return main


def selective_scan(batch: int, length: int, channels: int, state: int) -> Any:
    """h = exp(dt A) h + dt B x, y = C h + D x: a state for each channel, walked in time."""

    @T.prim_func
    def main(
        X: T.Tensor((batch, length, channels), "float32"),
        DT: T.Tensor((batch, length, channels), "float32"),
        A: T.Tensor((channels, state), "float32"),
        B: T.Tensor((batch, length, state), "float32"),
        C: T.Tensor((batch, length, state), "float32"),
        D: T.Tensor((channels,), "float32"),
        Y: T.Tensor((batch, length, channels), "float32"),
    ):
        with T.Kernel(T.ceildiv(channels, 32), batch, threads=128) as (bx, b):
            h = T.alloc_fragment((32, state), "float32")
            hc = T.alloc_fragment((32, state), "float32")
            y = T.alloc_fragment((32,), "float32")
            T.clear(h)
            for t in T.serial(length):
                for i, n in T.Parallel(32, state):
                    c = bx * 32 + i
                    dt = T.log(1.0 + T.exp(DT[b, t, c]))
                    h[i, n] = T.exp(dt * A[c, n]) * h[i, n] + dt * B[b, t, n] * X[b, t, c]
                    hc[i, n] = h[i, n] * C[b, t, n]
                T.reduce_sum(hc, y, dim=1)
                for i in T.Parallel(32):
                    Y[b, t, bx * 32 + i] = y[i] + D[bx * 32 + i] * X[b, t, bx * 32 + i]

    return main


def convolution_1d(n: int, taps: int, block: int = 128) -> Any:
    """A window slides over shared memory with a halo."""

    @T.prim_func
    def main(
        X: T.Tensor((n,), "float32"), W: T.Tensor((taps,), "float32"), Y: T.Tensor((n,), "float32")
    ):
        with T.Kernel(T.ceildiv(n, block), threads=block) as bx:
            x = T.alloc_shared((block + taps - 1,), "float32")
            y = T.alloc_fragment((block,), "float32")
            T.copy(X[bx * block], x)
            T.clear(y)
            for k in T.serial(taps):
                for i in T.Parallel(block):
                    y[i] += x[i + k] * W[k]
            T.copy(y, Y[bx * block])

    return main


def stencil(h: int, w: int) -> Any:
    """One generation of the game of life: tiles with a border on all sides."""

    @T.prim_func
    def main(X: T.Tensor((h, w), "uint8"), Y: T.Tensor((h, w), "uint8")):
        with T.Kernel(T.ceildiv(w, 16), T.ceildiv(h, 16), threads=128) as (bx, by):
            s = T.alloc_shared((18, 18), "uint8")
            T.copy(X[by * 16 - 1, bx * 16 - 1], s)
            for i, j in T.Parallel(16, 16):
                n = T.alloc_var("int32", init=0)
                for di, dj in T.grid(3, 3):
                    if di != 1 or dj != 1:
                        n += T.cast(s[i + di, j + dj], "int32")
                alive = (n == 3) | ((n == 2) & (s[i + 1, j + 1] == 1))
                if by * 16 + i < h and bx * 16 + j < w:
                    Y[by * 16 + i, bx * 16 + j] = T.cast(alive, "uint8")

    return main


def mandelbrot(h: int, w: int, limit: int) -> Any:
    """Each element iterates as long as it stays near."""

    @T.prim_func
    def main(N: T.Tensor((h, w), "int32")):
        with T.Kernel(T.ceildiv(w, 32), h, threads=32) as (bx, y):
            for i in T.Parallel(32):
                x = bx * 32 + i
                cr, ci = -2.0 + 3.0 * x / w, -1.0 + 2.0 * y / h
                zr = T.alloc_var("float32", init=0.0)
                zi = T.alloc_var("float32", init=0.0)
                n = T.alloc_var("int32", init=0)
                while n < limit and zr * zr + zi * zi <= 4.0:
                    t = zr * zr - zi * zi + cr
                    zi = 2.0 * zr * zi + ci
                    zr = t
                    n += 1
                if x < w:
                    N[y, x] = n

    return main
