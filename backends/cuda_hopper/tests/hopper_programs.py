"""Tile programs for the tests of generated kernels."""

# Annotations are values of the tile language here, so they are not postponed.

from dataclasses import dataclass
from typing import Any

import tilecore.language as T
from tilecore.ir.dtypes import dtype_of


@dataclass(frozen=True, slots=True)
class Matmul:
    """One gemm: sizes, tiles, and how the operands are stored."""

    m: int
    n: int
    k: int
    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    stages: int = 3
    threads: int = 256
    dtype: str = "float16"
    trans_a: bool = False
    trans_b: bool = False
    sums: str = "float32"  # of floats; those of int8 are int32

    def __str__(self) -> str:
        tile = f"{self.tile_m}x{self.tile_n}x{self.tile_k}"
        stored = ("T" if self.trans_a else "N") + ("T" if self.trans_b else "N")
        return (
            f"{self.m}x{self.n}x{self.k}-{tile}-{self.stages}-{self.threads}-{stored}-{self.dtype}"
        )


def matmul(case: Matmul) -> Any:
    """C = op(A) @ op(B), one block a tile."""
    m, n, k, dtype = case.m, case.n, case.k, case.dtype
    tile_m, tile_n, tile_k = case.tile_m, case.tile_n, case.tile_k
    out = "int32" if dtype == "int8" else "float16" if dtype.startswith("float8") else dtype
    accum = "int32" if dtype == "int8" else case.sums
    shape_a, part_a = ((k, m), (tile_k, tile_m)) if case.trans_a else ((m, k), (tile_m, tile_k))
    shape_b, part_b = ((n, k), (tile_n, tile_k)) if case.trans_b else ((k, n), (tile_k, tile_n))
    A_type, B_type = T.Tensor(shape_a, dtype), T.Tensor(shape_b, dtype)
    C_type = T.Tensor((m, n), out)

    @T.prim_func
    def matmul(A: A_type, B: B_type, C: C_type):
        with T.Kernel(T.ceildiv(n, tile_n), T.ceildiv(m, tile_m), threads=case.threads) as (bx, by):
            a = T.alloc_shared(part_a, dtype)
            b = T.alloc_shared(part_b, dtype)
            c = T.alloc_fragment((tile_m, tile_n), accum)
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, tile_k), num_stages=case.stages):
                if case.trans_a:
                    T.copy(A[step * tile_k, by * tile_m], a)
                else:
                    T.copy(A[by * tile_m, step * tile_k], a)
                if case.trans_b:
                    T.copy(B[bx * tile_n, step * tile_k], b)
                else:
                    T.copy(B[step * tile_k, bx * tile_n], b)
                T.gemm(a, b, c, transpose_A=case.trans_a, transpose_B=case.trans_b)
            T.copy(c, C[by * tile_m, bx * tile_n])

    return matmul


def split_sum(m: int, n: int, k: int, splits: int, tile_n: int, dtype: str = "float32") -> Any:
    """C += A @ B, k split among blocks that all add to C; B is stored (n, k)."""
    steps = -(-k // 64 // splits)

    @T.prim_func
    def split_sum(
        A: T.Tensor((m, k), "float16"), B: T.Tensor((n, k), "float16"), C: T.Tensor((m, n), dtype)
    ):
        with T.Kernel(T.ceildiv(n, tile_n), T.ceildiv(m, 128), splits, threads=256) as (bx, by, bz):
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((tile_n, 64), "float16")
            c = T.alloc_fragment((128, tile_n), "float32")
            T.clear(c)
            for step in T.Pipelined(steps, num_stages=2):
                T.copy(A[by * 128, (bz * steps + step) * 64], a)
                T.copy(B[bx * tile_n, (bz * steps + step) * 64], b)
                T.gemm(a, b, c, transpose_B=True)
            T.atomic_add(C[by * 128, bx * tile_n], c)

    return split_sum


def ragged(rows: int, steps_of: tuple[int, ...]) -> Any:
    """Each row of tiles sums over as many tiles of k as a tensor says; only whole tiles leave."""
    n, k = 64, 32 * max(steps_of)
    tiles = len(steps_of)

    @T.prim_func
    def ragged(
        A: T.Tensor((64 * tiles, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        Steps: T.Tensor((tiles,), "int32"),
        C: T.Tensor((64 * tiles, n), "float16"),
    ):
        with T.Kernel(1, tiles, threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            count = Steps[by]
            T.clear(c)
            for step in T.Pipelined(count, num_stages=3):
                T.copy(A[by * 64, step * 32], a)
                T.copy(B[step * 32, bx * 64], b)
                T.gemm(a, b, c)
            if by * 64 + 64 <= rows:
                T.copy(c, C[by * 64, bx * 64])
            else:
                for i, j in T.Parallel(64, 64):
                    if by * 64 + i < rows:
                        C[by * 64 + i, bx * 64 + j] = c[i, j]

    return ragged


@dataclass(frozen=True, slots=True)
class Convolution:
    """One convolution: image, filters, windows, tiles.

    `apart` elements lie between the pixels of the image; `writes_image` makes the kernel write to
    it, what it holds.
    """

    n: int
    h: int
    w: int
    c: int
    f: int
    kernel: int = 3
    stride: int = 1
    dilation: int = 1
    pad: int = 1
    tile_m: int = 64
    tile_k: int = 64
    stages: int = 2
    threads: int = 128
    dtype: str = "float16"
    apart: int = 0
    writes_image: bool = False

    @property
    def element(self) -> Any:
        """The element type."""
        return dtype_of(self.dtype)

    def __str__(self) -> str:
        windows = f"{self.kernel}-{self.stride}-{self.dilation}-{self.pad}"
        tile = f"{self.tile_m}x{self.tile_k}-{self.stages}"
        return f"{self.n}x{self.h}x{self.w}x{self.c}-{self.f}-{windows}-{tile}-{self.dtype}"


def convolution(case: Convolution, dynamic: bool = False) -> Any:
    """Y = windows(X) @ W^T in float32; `dynamic` leaves the image's sizes to the call."""
    tile_n = 64
    reach = case.dilation * (case.kernel - 1) + 1
    n, h, w = (T.dynamic("n, h, w")) if dynamic else (case.n, case.h, case.w)
    out_h, out_w = ((e + 2 * case.pad - reach) // case.stride + 1 for e in (h, w))
    rows, length = n * out_h * out_w, case.kernel**2 * case.c
    pixel = case.c + case.apart
    strides = (h * w * pixel, w * pixel, pixel, 1)
    X_type = T.StridedTensor((n, h, w, case.c), strides, case.dtype)
    W_type, Y_type = T.Tensor((case.f, length), case.dtype), T.Tensor((rows, case.f), "float32")
    windows = (case.kernel, case.stride, case.dilation, case.pad)

    @T.prim_func
    def convolution(X: X_type, W: W_type, Y: Y_type):
        with T.Kernel(
            T.ceildiv(case.f, tile_n), T.ceildiv(rows, case.tile_m), threads=case.threads
        ) as (bx, by):
            x = T.alloc_shared((case.tile_m, case.tile_k), case.dtype)
            weights = T.alloc_shared((tile_n, case.tile_k), case.dtype)
            y = T.alloc_fragment((case.tile_m, tile_n), "float32")
            T.clear(y)
            for step in T.Pipelined(T.ceildiv(length, case.tile_k), num_stages=case.stages):
                T.im2col(X, x, by, step, *windows)
                T.copy(W[bx * tile_n, step * case.tile_k], weights)
                T.gemm(x, weights, y, transpose_B=True)
            T.copy(y, Y[by * case.tile_m, bx * tile_n])
            if case.writes_image:
                X[0, 0, 0, 0] = X[0, 0, 0, 0]

    return convolution
