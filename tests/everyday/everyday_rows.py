"""Kernels that work row by row: norms, losses, the largest, masks, eight bits."""

from __future__ import annotations

from typing import Any

import tilecore.language as T


def dropout(n: int, p: float, block: int = 256) -> Any:
    """Elements are dropped by a counter-based generator, so that a seed gives the same mask."""

    @T.macro
    def mixed(x):
        x = x ^ (x >> 16)
        x = x * T.uint32(0x7FEB352D)
        x = x ^ (x >> 15)
        x = x * T.uint32(0x846CA68B)
        return x ^ (x >> 16)

    @T.prim_func
    def main(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32"), seed: T.uint32):
        with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
            for i in T.Parallel(block):
                at = bx * block + i
                bits = mixed(T.cast(at, "uint32") ^ (seed * T.uint32(0x9E3779B9)))
                uniform = T.cast(bits >> 8, "float32") * (1.0 / (1 << 24))
                Y[at] = T.if_then_else(uniform > p, X[at] / (1.0 - p), 0.0)

    return main


def layer_norm_backward(rows: int, cols: int, block: int = 8) -> Any:
    """dX of each row, and dW, dB summed over all rows by atomics."""

    @T.prim_func
    def main(
        X: T.Tensor((rows, cols), "float32"),
        W: T.Tensor((cols,), "float32"),
        DY: T.Tensor((rows, cols), "float32"),
        DX: T.Tensor((rows, cols), "float32"),
        DW: T.Tensor((cols,), "float32"),
        DB: T.Tensor((cols,), "float32"),
    ):
        with T.Kernel(T.ceildiv(rows, block), threads=128) as bx:
            x = T.alloc_fragment((block, cols), "float32")
            dy = T.alloc_fragment((block, cols), "float32")
            wdy = T.alloc_fragment((block, cols), "float32")
            xwdy = T.alloc_fragment((block, cols), "float32")
            mean = T.alloc_fragment((block,), "float32")
            var = T.alloc_fragment((block,), "float32")
            rstd = T.alloc_fragment((block,), "float32")
            c1 = T.alloc_fragment((block,), "float32")
            c2 = T.alloc_fragment((block,), "float32")
            T.copy(X[bx * block, 0], x)
            T.copy(DY[bx * block, 0], dy)
            T.reduce_sum(x, mean, dim=1)
            for i in T.Parallel(block):
                mean[i] = mean[i] / cols
            for i, j in T.Parallel(block, cols):
                x[i, j] -= mean[i]
                xwdy[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(xwdy, var, dim=1)
            for i in T.Parallel(block):
                rstd[i] = T.rsqrt(var[i] / cols + 1e-5)
            for i, j in T.Parallel(block, cols):
                x[i, j] *= rstd[i]
                wdy[i, j] = W[j] * dy[i, j]
                xwdy[i, j] = x[i, j] * wdy[i, j]
            T.reduce_sum(xwdy, c1, dim=1)
            T.reduce_sum(wdy, c2, dim=1)
            for i, j in T.Parallel(block, cols):
                DX[bx * block + i, j] = (wdy[i, j] - (x[i, j] * c1[i] + c2[i]) / cols) * rstd[i]
            dw = T.alloc_fragment((cols,), "float32")
            db = T.alloc_fragment((cols,), "float32")
            for i, j in T.Parallel(block, cols):
                x[i, j] *= dy[i, j]
            T.reduce_sum(x, dw, dim=0)
            T.reduce_sum(dy, db, dim=0)
            T.atomic_add(DW, dw)
            T.atomic_add(DB, db)

    return main


def group_norm(b: int, c: int, s: int, groups: int) -> Any:
    """Channels of one group share mean and variance."""
    per = c // groups

    @T.prim_func
    def main(
        X: T.Tensor((b, c, s), "float16"),
        W: T.Tensor((c,), "float32"),
        B: T.Tensor((c,), "float32"),
        Y: T.Tensor((b, c, s), "float16"),
    ):
        with T.Kernel(groups, b, threads=128) as (g, n):
            x = T.alloc_fragment((per, s), "float32")
            rows = T.alloc_fragment((per,), "float32")
            mean = T.alloc_fragment((1,), "float32")
            var = T.alloc_fragment((1,), "float32")
            sq = T.alloc_fragment((per, s), "float32")
            T.copy(X[n, g * per : (g + 1) * per, :], x)
            T.reduce_sum(x, rows, dim=-1)
            T.reduce_sum(rows, mean, dim=0)
            for i, j in T.Parallel(per, s):
                x[i, j] -= mean[0] / (per * s)
                sq[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(sq, rows, dim=-1)
            T.reduce_sum(rows, var, dim=0)
            for i, j in T.Parallel(per, s):
                x[i, j] = (
                    x[i, j] * T.rsqrt(var[0] / (per * s) + 1e-5) * W[g * per + i] + B[g * per + i]
                )
            T.copy(x, Y[n, g * per : (g + 1) * per, :])

    return main


def cross_entropy(rows: int, classes: int, ignored: int = -100, block: int = 128) -> Any:
    """Loss of each row and the logits' gradient; rows with the ignored label have neither."""

    @T.prim_func
    def main(
        X: T.Tensor((rows, classes), "float32"),
        LABEL: T.Tensor((rows,), "int64"),
        LOSS: T.Tensor((rows,), "float32"),
        DX: T.Tensor((rows, classes), "float32"),
    ):
        with T.Kernel(rows, threads=128) as r:
            x = T.alloc_fragment((block,), "float32")
            m = T.alloc_fragment((1,), "float32")
            new = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            part = T.alloc_fragment((1,), "float32")
            T.fill(m, -T.infinity("float32"))
            T.clear(total)
            for c in T.serial(T.ceildiv(classes, block)):
                for i in T.Parallel(block):
                    x[i] = T.if_then_else(
                        c * block + i < classes, X[r, c * block + i], -T.infinity("float32")
                    )
                T.copy(m, new)
                T.reduce_max(x, new, dim=0, clear=False)
                for i in T.Parallel(block):
                    x[i] = T.exp(x[i] - new[0])
                T.reduce_sum(x, part, dim=0)
                total[0] = total[0] * T.exp(m[0] - new[0]) + part[0]
                m[0] = new[0]
            label = LABEL[r]
            if label == ignored:
                LOSS[r] = 0.0
                for i in T.Parallel(classes):
                    DX[r, i] = 0.0
            else:
                LOSS[r] = T.log(total[0]) + m[0] - X[r, label]
                for i in T.Parallel(classes):
                    DX[r, i] = T.exp(X[r, i] - m[0]) / total[0] - T.if_then_else(
                        i == label, 1.0, 0.0
                    )

    return main


def top_k(rows: int, cols: int, k: int, block: int = 4) -> Any:
    """Values and places of the k largest of each row, the first of equal ones."""

    @T.prim_func
    def main(
        X: T.Tensor((rows, cols), "float32"),
        V: T.Tensor((rows, k), "float32"),
        AT: T.Tensor((rows, k), "int32"),
    ):
        with T.Kernel(T.ceildiv(rows, block), threads=128) as bx:
            x = T.alloc_fragment((block, cols), "float32")
            place = T.alloc_fragment((block, cols), "int32")
            best = T.alloc_fragment((block,), "float32")
            first = T.alloc_fragment((block,), "int32")
            T.copy(X[bx * block, 0], x)
            for step in T.serial(k):
                T.reduce_max(x, best, dim=1)
                for i, j in T.Parallel(block, cols):
                    place[i, j] = T.if_then_else(x[i, j] == best[i], j, cols)
                T.reduce_min(place, first, dim=1)
                for i, j in T.Parallel(block, cols):
                    if j == first[i]:
                        x[i, j] = -T.infinity("float32")
                for i in T.Parallel(block):
                    V[bx * block + i, step] = best[i]
                    AT[bx * block + i, step] = first[i]

    return main


def argmax(rows: int, cols: int) -> Any:
    """The largest key, which holds a value's order and, below it, its place from the end."""

    @T.prim_func
    def main(X: T.Tensor((rows, cols), "float32"), AT: T.Tensor((rows,), "int64")):
        with T.Kernel(rows, threads=64) as r:
            key = T.alloc_fragment((cols,), "uint64")
            best = T.alloc_fragment((1,), "uint64")
            for j in T.Parallel(cols):
                bits = T.reinterpret(X[r, j], "uint32")
                order = T.if_then_else(bits >> 31 != 0, ~bits, bits | T.uint32(0x80000000))
                key[j] = (T.cast(order, "uint64") << 32) | T.cast(cols - 1 - j, "uint64")
            T.reduce_max(key, best)
            AT[r] = cols - 1 - T.cast(best[0] & T.uint64(0xFFFFFFFF), "int64")

    return main


def masked_mean(rows: int, cols: int) -> Any:
    """Means over the elements that a mask of bool names."""

    @T.prim_func
    def main(
        X: T.Tensor((rows, cols), "float32"),
        M: T.Tensor((rows, cols), "bool"),
        Y: T.Tensor((rows,), "float32"),
    ):
        with T.Kernel(T.ceildiv(rows, 8), threads=64) as bx:
            x = T.alloc_fragment((8, cols), "float32")
            n = T.alloc_fragment((8, cols), "int32")
            total = T.alloc_fragment((8, 1), "float32")
            count = T.alloc_fragment((8, 1), "int32")
            for i, j in T.Parallel(8, cols):
                m = M[bx * 8 + i, j]
                x[i, j] = T.if_then_else(m, X[bx * 8 + i, j], 0)
                n[i, j] = T.cast(m, "int32")
            T.reduce_sum(x, total, dim=1)
            T.reduce_sum(n, count, dim=1)
            for i in T.Parallel(8):
                Y[bx * 8 + i] = total[i, 0] / T.max(count[i, 0], 1)

    return main


def cumulative_sum(rows: int, cols: int, block: int = 64) -> Any:
    """Prefix sums of long rows, block by block with a carry."""

    @T.prim_func
    def main(X: T.Tensor((rows, cols), "float32"), Y: T.Tensor((rows, cols), "float32")):
        with T.Kernel(T.ceildiv(rows, 4), threads=128) as bx:
            x = T.alloc_shared((4, block), "float32")
            carry = T.alloc_fragment((4,), "float32")
            part = T.alloc_fragment((4,), "float32")
            T.clear(carry)
            for k in T.serial(T.ceildiv(cols, block)):
                T.copy(X[bx * 4, k * block], x)
                T.reduce_sum(x, part, dim=1)
                T.cumsum(x, dim=1)
                for i, j in T.Parallel(4, block):
                    if k * block + j < cols:
                        Y[bx * 4 + i, k * block + j] = x[i, j] + carry[i]
                for i in T.Parallel(4):
                    carry[i] += part[i]

    return main


def quantise(rows: int, cols: int, group: int) -> Any:
    """int8 by groups of a row, with the scale that takes the largest to 127; and back."""
    groups = cols // group

    @T.prim_func
    def to_int8(
        X: T.Tensor((rows, cols), "float16"),
        Q: T.Tensor((rows, cols), "int8"),
        S: T.Tensor((rows, groups), "float32"),
    ):
        with T.Kernel(T.ceildiv(rows, 8), groups, threads=128) as (bx, g):
            x = T.alloc_fragment((8, group), "float32")
            most = T.alloc_fragment((8,), "float32")
            T.copy(X[bx * 8, g * group], x)
            T.reduce_absmax(x, most, dim=1)
            for i in T.Parallel(8):
                most[i] = T.max(most[i], 1e-8) / 127.0
                S[bx * 8 + i, g] = most[i]
            for i, j in T.Parallel(8, group):
                Q[bx * 8 + i, g * group + j] = T.clamp(T.round(x[i, j] / most[i]), -128.0, 127.0)

    @T.prim_func
    def from_int8(
        Q: T.Tensor((rows, cols), "int8"),
        S: T.Tensor((rows, groups), "float32"),
        Y: T.Tensor((rows, cols), "float16"),
    ):
        with T.Kernel(rows, threads=64) as r:
            for j in T.Parallel(cols):
                Y[r, j] = Q[r, j] * S[r, j // group]

    return to_int8, from_int8


def fp8_rows(rows: int, cols: int) -> Any:
    """Eight-bit floats with a scale for each row."""

    @T.prim_func
    def main(
        X: T.Tensor((rows, cols), "float32"),
        Q: T.Tensor((rows, cols), "float8_e4m3fn"),
        S: T.Tensor((rows,), "float32"),
    ):
        with T.Kernel(rows, threads=64) as r:
            x = T.alloc_fragment((cols,), "float32")
            most = T.alloc_fragment((1,), "float32")
            T.copy(X[r, :], x)
            T.reduce_absmax(x, most)
            scale = T.max(most[0], 1e-12) / 448.0
            S[r] = scale
            for j in T.Parallel(cols):
                Q[r, j] = x[j] / scale

    return main
