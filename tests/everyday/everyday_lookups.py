"""Kernels whose indices, bounds or lengths lie in memory."""

from __future__ import annotations

from typing import Any

import tilecore.language as T


def histogram(n: int, bins: int, block: int = 512) -> Any:
    """Counts in shared memory first, then one atomic a bin and block."""

    @T.prim_func
    def main(X: T.Tensor((n,), "int32"), H: T.Tensor((bins,), "int32")):
        with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
            own = T.alloc_shared((bins,), "int32")
            T.clear(own)
            for i in T.Parallel(block):
                if bx * block + i < n:
                    T.atomic_add(own[X[bx * block + i]], 1)
            for i in T.Parallel(bins):
                T.atomic_add(H[i], own[i])

    return main


def embedding(tokens: int, vocab: int, width: int) -> Any:
    """Rows of a table; their gradients are added back."""

    @T.prim_func
    def lookup(
        IDS: T.Tensor((tokens,), "int64"),
        W: T.Tensor((vocab, width), "float16"),
        Y: T.Tensor((tokens, width), "float16"),
    ):
        with T.Kernel(tokens, threads=64) as t:
            T.copy(W[IDS[t], :], Y[t, :])

    @T.prim_func
    def add_back(
        IDS: T.Tensor((tokens,), "int64"),
        DY: T.Tensor((tokens, width), "float32"),
        DW: T.Tensor((vocab, width), "float32"),
    ):
        with T.Kernel(tokens, threads=64) as t:
            for j in T.Parallel(width):
                T.atomic_add(DW[IDS[t], j], DY[t, j])

    return lookup, add_back


def csr_matvec(rows: int, cols: int, nnz: int) -> Any:
    """A sparse matrix by rows times a vector: each lane walks its row."""

    @T.prim_func
    def main(
        PTR: T.Tensor((rows + 1,), "int32"),
        COL: T.Tensor((nnz,), "int32"),
        VAL: T.Tensor((nnz,), "float32"),
        X: T.Tensor((cols,), "float32"),
        Y: T.Tensor((rows,), "float32"),
    ):
        with T.Kernel(T.ceildiv(rows, 64), threads=64) as bx:
            y = T.alloc_fragment((64,), "float32")
            T.clear(y)
            for i in T.Parallel(64):
                r = bx * 64 + i
                if r < rows:
                    for k in T.serial(PTR[r], PTR[r + 1]):
                        y[i] += VAL[k] * X[COL[k]]
            T.copy(y, Y[bx * 64])

    return main


def csr_rows(rows: int, cols: int, nnz: int) -> Any:
    """The same with a block of one warp for each row."""

    @T.prim_func
    def main(
        PTR: T.Tensor((rows + 1,), "int32"),
        COL: T.Tensor((nnz,), "int32"),
        VAL: T.Tensor((nnz,), "float32"),
        X: T.Tensor((cols,), "float32"),
        Y: T.Tensor((rows,), "float32"),
    ):
        with T.Kernel(rows, threads=32) as r:
            part = T.alloc_fragment((32,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.clear(part)
            for k in T.serial(T.ceildiv(PTR[r + 1] - PTR[r], 32)):
                for i in T.Parallel(32):
                    at = PTR[r] + k * 32 + i
                    if at < PTR[r + 1]:
                        part[i] += VAL[at] * X[COL[at]]
            T.reduce_sum(part, total)
            Y[r] = total[0]

    return main


def segment_sum(n: int, width: int, segments: int) -> Any:
    """Sums of the rows between two starts, eight at a time, cut off at the end."""

    @T.prim_func
    def main(
        X: T.Tensor((n, width), "float32"),
        START: T.Tensor((segments + 1,), "int32"),
        Y: T.Tensor((segments, width), "float32"),
    ):
        with T.Kernel(segments, threads=64) as s:
            tile = T.alloc_shared((8, width), "float32")
            part = T.alloc_fragment((width,), "float32")
            T.clear(part)
            first, last = START[s], START[s + 1]
            for k in T.serial(T.ceildiv(last - first, 8)):
                at = first + k * 8
                T.copy(X[at : T.min(at + 8, last), :], tile)
                T.reduce_sum(tile, part, dim=0, clear=False)
            T.copy(part, Y[s, :])

    return main


def paged_gather(seqs: int, pages: int, page: int, dim: int, most: int) -> Any:
    """Pages of a table in order, as far as each sequence is long."""

    @T.prim_func
    def main(
        TABLE: T.Tensor((seqs, most), "int32"),
        LEN: T.Tensor((seqs,), "int32"),
        K: T.Tensor((pages, page, dim), "float16"),
        OUT: T.Tensor((seqs, most * page, dim), "float16"),
    ):
        with T.Kernel(most, seqs, threads=64) as (p, s):
            tile = T.alloc_shared((page, dim), "float16")
            if p * page < LEN[s]:
                T.copy(K[TABLE[s, p], :, :], tile)
                for i, j in T.Parallel(page, dim):
                    OUT[s, p * page + i, j] = T.if_then_else(p * page + i < LEN[s], tile[i, j], 0)

    return main


def compaction(n: int, block: int = 256) -> Any:
    """The positive elements in their order, by the prefix sums of flags."""

    @T.prim_func
    def main(
        X: T.Tensor((n,), "int32"), Y: T.Tensor((n,), "int32"), COUNT: T.Tensor((1,), "int32")
    ):
        with T.Kernel(1, threads=128):
            keep = T.alloc_shared((block,), "int32")
            base = T.alloc_var("int32", init=0)
            for b in T.serial(T.ceildiv(n, block)):
                for i in T.Parallel(block):
                    keep[i] = 0
                    if b * block + i < n and X[b * block + i] > 0:
                        keep[i] = 1
                T.cumsum(keep)
                for i in T.Parallel(block):
                    at = b * block + i
                    if at < n and X[at] > 0:
                        Y[base + keep[i] - 1] = X[at]
                base += keep[block - 1]
            COUNT[0] = base

    return main


def bitonic(n: int) -> Any:
    """A sorting network over shared memory; its loops are unrolled while the program is read."""

    @T.prim_func
    def main(X: T.Tensor((n,), "int32"), Y: T.Tensor((n,), "int32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((n,), "int32")
            T.copy(X, s)
            k = 2
            while k <= n:
                j = k // 2
                while j > 0:
                    new = T.alloc_fragment((n,), "int32")
                    for i in T.Parallel(n):
                        other = i ^ j
                        low, high = T.min(s[i], s[other]), T.max(s[i], s[other])
                        up = (i & k) == 0
                        new[i] = T.if_then_else((i < other) == up, low, high)
                    T.copy(new, s)
                    j //= 2
                k *= 2
            T.copy(s, Y)

    return main


def moe_routing(tokens: int, experts: int, k: int = 2) -> Any:
    """Softmax over experts, the k best with weights that sum to 1, tokens counted by expert."""

    @T.prim_func
    def main(
        L: T.Tensor((tokens, experts), "float32"),
        W: T.Tensor((tokens, k), "float32"),
        E: T.Tensor((tokens, k), "int32"),
        COUNT: T.Tensor((experts,), "int32"),
        SLOT: T.Tensor((tokens, k), "int32"),
    ):
        with T.Kernel(T.ceildiv(tokens, 32), threads=32) as bx:
            lane = T.get_thread_binding()
            t = bx * 32 + lane
            if t < tokens:
                best = T.alloc_local((k,), "float32")
                which = T.alloc_local((k,), "int32")
                total = T.alloc_var("float32", init=0.0)
                for s in T.unroll(k):
                    best[s] = -T.infinity("float32")
                    which[s] = -1
                for e in T.serial(experts):
                    v = T.alloc_var("float32")
                    w = T.alloc_var("int32")
                    v = L[t, e]
                    w = e
                    for s in T.unroll(k):
                        if v > best[s]:
                            other = best[s]
                            o = which[s]
                            best[s] = v
                            which[s] = w
                            v = other
                            w = o
                for s in T.unroll(k):
                    total += T.exp(best[s] - best[0])
                for s in T.unroll(k):
                    W[t, s] = T.exp(best[s] - best[0]) / total
                    E[t, s] = which[s]
                    SLOT[t, s] = T.atomic_add(COUNT[which[s]], 1, return_prev=True)

    return main


def interp(n: int, m: int) -> Any:
    """Each element searches its place in a table by halving, and interpolates."""

    @T.prim_func
    def main(
        XP: T.Tensor((n,), "float32"),
        FP: T.Tensor((n,), "float32"),
        X: T.Tensor((m,), "float32"),
        Y: T.Tensor((m,), "float32"),
    ):
        with T.Kernel(T.ceildiv(m, 128), threads=128) as bx:
            for i in T.Parallel(128):
                low = T.alloc_var("int32", init=0)
                high = T.alloc_var("int32", init=n - 1)
                x = X[T.min(bx * 128 + i, m - 1)]
                while high - low > 1:
                    mid = (low + high) // 2
                    if XP[mid] <= x:
                        low = mid
                    else:
                        high = mid
                t = (x - XP[low]) / (XP[high] - XP[low])
                if bx * 128 + i < m:
                    Y[bx * 128 + i] = FP[low] + t * (FP[high] - FP[low])

    return main
