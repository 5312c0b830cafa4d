"""Mixtures of experts and quantised weights, as serving code has them."""

from __future__ import annotations

from typing import Any

import tilecore.language as T


def expert_slots(tokens: int, k: int, experts: int, block: int) -> Any:
    """Pairs (token, choice) in the order of their experts, each padded to whole blocks."""
    pairs = tokens * k
    slots = -(-(pairs + experts * (block - 1)) // block) * block

    @T.prim_func
    def main(
        E: T.Tensor((tokens, k), "int32"),
        ORDER: T.Tensor((slots,), "int32"),
        OF: T.Tensor((slots // block,), "int32"),
        TOTAL: T.Tensor((1,), "int32"),
    ):
        with T.Kernel(1, threads=128):
            count = T.alloc_shared((experts,), "int32")
            ends = T.alloc_shared((experts,), "int32")
            place = T.alloc_shared((experts,), "int32")
            T.clear(count)
            for i in T.Parallel(pairs):
                T.atomic_add(count[E[i // k, i % k]], 1)
            for e in T.Parallel(experts):
                ends[e] = T.ceildiv(count[e], block) * block
            T.cumsum(ends)
            for e in T.Parallel(experts):
                place[e] = ends[e] - T.ceildiv(count[e], block) * block
            TOTAL[0] = ends[experts - 1]
            T.fill(ORDER, pairs)
            T.fill(OF, -1)
            for e in T.Parallel(experts):
                for b in T.serial(T.ceildiv(count[e], block)):
                    OF[place[e] // block + b] = e
            for i in T.Parallel(pairs):
                at = T.atomic_add(place[E[i // k, i % k]], 1, return_prev=True)
                ORDER[at] = i

    return main


def expert_rows(
    tokens: int, k: int, experts: int, width: int, hidden: int, slots: int, block: int
) -> Any:
    """Gathered rows times the matrix of their expert, added back with the weight of the choice."""
    pairs = tokens * k

    @T.prim_func
    def main(
        X: T.Tensor((tokens, width), "float16"),
        W: T.Tensor((experts, hidden, width), "float16"),
        P: T.Tensor((tokens, k), "float32"),
        ORDER: T.Tensor((slots,), "int32"),
        OF: T.Tensor((slots // block,), "int32"),
        Y: T.Tensor((tokens, hidden), "float32"),
    ):
        with T.Kernel(T.ceildiv(hidden, 64), slots // block, threads=128) as (bx, by):
            rows = T.alloc_shared((block,), "int32")
            x = T.alloc_shared((block, 32), "float16")
            w = T.alloc_shared((64, 32), "float16")
            y = T.alloc_fragment((block, 64), "float32")
            e = OF[by]
            if e >= 0:
                T.copy(ORDER[by * block], rows)
                T.clear(y)
                for ko in T.Pipelined(T.ceildiv(width, 32), num_stages=2):
                    for i, j in T.Parallel(block, 32):
                        inside = rows[i] < pairs
                        x[i, j] = T.if_then_else(inside, X[rows[i] // k, ko * 32 + j], 0)
                    T.copy(W[e, bx * 64, ko * 32], w)
                    T.gemm(x, w, y, transpose_B=True)
                for i, j in T.Parallel(block, 64):
                    if rows[i] < pairs and bx * 64 + j < hidden:
                        weight = P[rows[i] // k, rows[i] % k]
                        T.atomic_add(Y[rows[i] // k, bx * 64 + j], y[i, j] * weight)

    return main


def grouped_int4(m: int, n: int, k: int, group: int = 32) -> Any:
    """Weights of four bits, eight a word, with a scale and a packed zero point for each group."""

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        Q: T.Tensor((n, k // 8), "int32"),
        S: T.Tensor((n, k // group), "float16"),
        Z: T.Tensor((n // 8, k // group), "int32"),
        C: T.Tensor((m, n), "float16"),
    ):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 32), threads=128) as (bx, by):
            a = T.alloc_shared((32, group), "float16")
            q = T.alloc_shared((64, group // 8), "int32")
            w = T.alloc_shared((64, group), "float16")
            c = T.alloc_fragment((32, 64), "float32")
            T.clear(c)
            for g in T.Pipelined(k // group, num_stages=3):
                T.copy(A[by * 32, g * group], a)
                T.copy(Q[bx * 64, g * (group // 8)], q)
                for i, j in T.Parallel(64, group):
                    row = bx * 64 + i
                    zero = (Z[row // 8, g] >> (row % 8 * 4)) & 15
                    value = (q[i, j // 8] >> (j % 8 * 4)) & 15
                    w[i, j] = (value - zero) * S[row, g]
                T.gemm(a, w, c, transpose_B=True)
            T.copy(c, C[by * 32, bx * 64])

    return main


def scaled_groups(total: int, n: int, k: int, experts: int, block_k: int = 64) -> Any:
    """fp8 rows of experts: A has a scale for each row and block of k, B for each block."""

    @T.prim_func
    def main(
        A: T.Tensor((total, k), "float8_e4m3fn"),
        SA: T.Tensor((total, k // block_k), "float32"),
        B: T.Tensor((experts, n, k), "float8_e4m3fn"),
        SB: T.Tensor((experts, T.ceildiv(n, 64), k // block_k), "float32"),
        GROUP: T.Tensor((total // 32,), "int32"),
        C: T.Tensor((total, n), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(n, 64), total // 32, threads=128) as (bx, by):
            a = T.alloc_shared((32, block_k), "float8_e4m3fn")
            b = T.alloc_shared((64, block_k), "float8_e4m3fn")
            s = T.alloc_fragment((32,), "float32")
            part = T.alloc_fragment((32, 64), "float32")
            c = T.alloc_fragment((32, 64), "float32")
            e = GROUP[by]
            T.clear(c)
            for ko in T.Pipelined(k // block_k, num_stages=2):
                T.copy(A[by * 32, ko * block_k], a)
                T.copy(B[e, bx * 64, ko * block_k], b)
                for i in T.Parallel(32):
                    s[i] = SA[by * 32 + i, ko] * SB[e, bx, ko]
                T.gemm(a, b, part, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(32, 64):
                    c[i, j] += part[i, j] * s[i]
            T.copy(c, C[by * 32, bx * 64])

    return main
