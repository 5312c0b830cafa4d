"""Matrix products as they are written by hand."""

from __future__ import annotations

from typing import Any

import tilecore
import tilecore.language as T


def grouped_order(m: int, n: int, k: int, rows_of_group: int = 3) -> Any:
    """Blocks walk the output in groups of rows, written out by hand as tutorials do."""
    tiles_m, tiles_n = -(-m // 32), -(-n // 32)

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float16"),
    ):
        with T.Kernel(tiles_m * tiles_n, threads=64) as pid:
            group = pid // (rows_of_group * tiles_n)
            first = group * rows_of_group
            size = T.min(tiles_m - first, rows_of_group)
            pm = first + pid % (rows_of_group * tiles_n) % size
            pn = pid % (rows_of_group * tiles_n) // size
            a = T.alloc_shared((32, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[pm * 32 : pm * 32 + 32, ko * 32 : ko * 32 + 32], a)
                T.copy(B[ko * 32 : ko * 32 + 32, pn * 32 : pn * 32 + 32], b)
                T.gemm(a, b, c)
            T.copy(c, C[pm * 32 : (pm + 1) * 32, pn * 32 : (pn + 1) * 32])

    return main


def block_scaled_matmul(m: int, n: int, k: int, group: int = 32) -> Any:
    """int8 operands with one float scale for each row (column) and group of k."""

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "int8"),
        SA: T.Tensor((m, k // group), "float32"),
        B: T.Tensor((n, k), "int8"),
        SB: T.Tensor((n, k // group), "float32"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 64), threads=128) as (bx, by):
            a = T.alloc_shared((64, group), "int8")
            b = T.alloc_shared((64, group), "int8")
            part = T.alloc_fragment((64, 64), "int32")
            total = T.alloc_fragment((64, 64), "float32")
            T.clear(total)
            for g in T.Pipelined(k // group, num_stages=2):
                T.copy(A[by * 64, g * group], a)
                T.copy(B[bx * 64, g * group], b)
                T.gemm(a, b, part, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(64, 64):
                    total[i, j] += part[i, j] * SA[by * 64 + i, g] * SB[bx * 64 + j, g]
            T.copy(total, C[by * 64, bx * 64])

    return main


def swiglu(tokens: int, width: int, hidden: int) -> Any:
    """silu(x W1) * (x W3), both products in one kernel."""

    @T.prim_func
    def main(
        X: T.Tensor((tokens, width), "float16"),
        W1: T.Tensor((width, hidden), "float16"),
        W3: T.Tensor((width, hidden), "float16"),
        Y: T.Tensor((tokens, hidden), "float16"),
    ):
        with T.Kernel(T.ceildiv(hidden, 64), T.ceildiv(tokens, 64), threads=128) as (bx, by):
            x = T.alloc_shared((64, 32), "float16")
            w1 = T.alloc_shared((32, 64), "float16")
            w3 = T.alloc_shared((32, 64), "float16")
            gate = T.alloc_fragment((64, 64), "float32")
            up = T.alloc_fragment((64, 64), "float32")
            T.clear(gate)
            T.clear(up)
            for k in T.Pipelined(T.ceildiv(width, 32), num_stages=2):
                T.copy(X[by * 64, k * 32], x)
                T.copy(W1[k * 32, bx * 64], w1)
                T.copy(W3[k * 32, bx * 64], w3)
                T.gemm(x, w1, gate)
                T.gemm(x, w3, up)
            for i, j in T.Parallel(64, 64):
                up[i, j] *= gate[i, j] * T.sigmoid(gate[i, j])
            T.copy(up, Y[by * 64, bx * 64])

    return main


def expert_gemm(total: int, width: int, hidden: int, experts: int) -> Any:
    """Rows of each expert times its matrix; where they begin lies in memory."""

    @T.prim_func
    def main(
        X: T.Tensor((total, width), "float16"),
        W: T.Tensor((experts, width, hidden), "float16"),
        OFF: T.Tensor((experts + 1,), "int32"),
        Y: T.Tensor((total, hidden), "float16"),
    ):
        with T.Kernel(T.ceildiv(hidden, 32), experts, threads=64) as (bx, e):
            x = T.alloc_shared((32, 32), "float16")
            w = T.alloc_shared((32, 32), "float16")
            y = T.alloc_fragment((32, 32), "float32")
            first, last = OFF[e], OFF[e + 1]
            for m in T.serial(T.ceildiv(last - first, 32)):
                T.clear(y)
                for k in T.Pipelined(T.ceildiv(width, 32), num_stages=2):
                    T.copy(X[first + m * 32, k * 32], x)
                    T.copy(W[e, k * 32, bx * 32], w)
                    T.gemm(x, w, y)
                for i, j in T.Parallel(32, 32):
                    if first + m * 32 + i < last and bx * 32 + j < hidden:
                        Y[first + m * 32 + i, bx * 32 + j] = y[i, j]

    return main


def int4_gemm(m: int, n: int, k: int) -> Any:
    """Weights of four bits, two a byte, with a scale for each output column."""

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        Q: T.Tensor((n, k // 2), "uint8"),
        S: T.Tensor((n,), "float16"),
        C: T.Tensor((m, n), "float16"),
    ):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 32), threads=64) as (bx, by):
            a = T.alloc_shared((32, 64), "float16")
            q = T.alloc_shared((32, 32), "uint8")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, 64), num_stages=2):
                T.copy(A[by * 32, ko * 64], a)
                T.copy(Q[bx * 32, ko * 32], q)
                for i, j in T.Parallel(32, 64):
                    nibble = (q[i, j // 2] >> (4 * (j % 2))) & 15
                    b[i, j] = T.cast(nibble, "float16") - 8
                T.gemm(a, b, c, transpose_B=True)
            for i, j in T.Parallel(32, 32):
                c[i, j] *= S[bx * 32 + j]
            T.copy(c, C[by * 32, bx * 32])

    return main


@tilecore.jit
def gelu_linear(X, W, B, block: int = 32):
    """gelu(X W^T + B), in the eager style."""
    M, N, K = T.const("M, N, K")
    X: T.Tensor((M, K), "float16")
    W: T.Tensor((N, K), "float16")
    B: T.Tensor((N,), "float16")
    Y = T.empty((M, N), "float16")
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=64) as (bx, by):
        x = T.alloc_shared((block, 32), "float16")
        w = T.alloc_shared((block, 32), "float16")
        y = T.alloc_fragment((block, block), "float32")
        T.clear(y)
        for k in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
            T.copy(X[by * block, k * 32], x)
            T.copy(W[bx * block, k * 32], w)
            T.gemm(x, w, y, transpose_B=True)
        for i, j in T.Parallel(block, block):
            v = y[i, j] + B[bx * block + j]
            y[i, j] = 0.5 * v * (1.0 + T.erf(v * 0.70710678))
        T.copy(y, Y[by * block, bx * block])
    return Y
