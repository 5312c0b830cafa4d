"""A matrix product with an epilogue of one's own: any Python function of one tile expression.

python examples/custom_epilogue.py [backend]
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import tilecore
import tilecore.language as T


def matmul_with(epilogue: Callable[[Any], Any], m: int, n: int, k: int) -> Any:
    """``C = epilogue(A @ B)``; the function is traced into the kernel, it costs no extra pass."""
    tile_m, tile_n, tile_k = 64, 64, 64

    @T.prim_func
    def matmul(
        A: T.Tensor((m, k), "float32"),
        B: T.Tensor((k, n), "float32"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, tile_n), T.ceildiv(m, tile_m), threads=128) as (bx, by):
            a = T.alloc_shared((tile_m, tile_k), "float32")
            b = T.alloc_shared((tile_k, tile_n), "float32")
            c = T.alloc_fragment((tile_m, tile_n), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, tile_k), num_stages=2):
                T.copy(A[by * tile_m, step * tile_k], a)
                T.copy(B[step * tile_k, bx * tile_n], b)
                T.gemm(a, b, c)
            for i, j in T.Parallel(tile_m, tile_n):
                c[i, j] = epilogue(c[i, j])
            T.copy(c, C[by * tile_m, bx * tile_n])

    return matmul


def soft_clip(x: Any) -> Any:
    """Large values are squeezed towards +-30, small ones pass: the softcap of some models."""
    return 30.0 * T.tanh(x / 30.0)


def squared_relu(x: Any) -> Any:
    return T.if_then_else(x > 0, x * x, 0.0)


def main() -> None:
    backend = sys.argv[1] if len(sys.argv) > 1 else None
    m, n, k = 200, 130, 300
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k)).astype(np.float32)
    b = rng.standard_normal((k, n)).astype(np.float32)
    product = a.astype(np.float64) @ b.astype(np.float64)
    for function, wanted in (
        (soft_clip, 30.0 * np.tanh(product / 30.0)),
        (squared_relu, np.maximum(product, 0) ** 2),
    ):
        kernel = tilecore.compile(matmul_with(function, m, n, k), backend)
        c = np.empty((m, n), np.float32)
        kernel(a, b, c)
        error = np.abs(c - wanted).max() / np.abs(wanted).max()
        print(f"{function.__name__}: largest relative error {error:.1e}")
        assert error < 1e-5


if __name__ == "__main__":
    main()
