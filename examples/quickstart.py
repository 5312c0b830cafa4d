"""The first program: a matrix product with a ReLU, compiled, run and checked.

python examples/quickstart.py [backend]
"""

import sys

import numpy as np

import tilecore
import tilecore.language as T

M, N, K = 1000, 777, 513
TILE_M, TILE_N, TILE_K = 128, 128, 64


@T.prim_func
def matmul_relu(
    A: T.Tensor((M, K), "float32"),
    B: T.Tensor((K, N), "float32"),
    C: T.Tensor((M, N), "float32"),
):
    # One block of the grid computes one tile of C. No tile size divides M, N or K: loads outside
    # of A and B give zeros, and stores outside of C are dropped.
    with T.Kernel(T.ceildiv(N, TILE_N), T.ceildiv(M, TILE_M), threads=128) as (bx, by):
        a = T.alloc_shared((TILE_M, TILE_K), "float32")
        b = T.alloc_shared((TILE_K, TILE_N), "float32")
        c = T.alloc_fragment((TILE_M, TILE_N), "float32")
        T.clear(c)
        for k in T.Pipelined(T.ceildiv(K, TILE_K), num_stages=2):
            T.copy(A[by * TILE_M, k * TILE_K], a)
            T.copy(B[k * TILE_K, bx * TILE_N], b)
            T.gemm(a, b, c)
        for i, j in T.Parallel(TILE_M, TILE_N):
            c[i, j] = T.max(c[i, j], 0)
        T.copy(c, C[by * TILE_M, bx * TILE_N])


def main() -> None:
    backend = sys.argv[1] if len(sys.argv) > 1 else None
    kernel = tilecore.compile(matmul_relu, backend)
    rng = np.random.default_rng(0)
    a = rng.standard_normal((M, K)).astype(np.float32)
    b = rng.standard_normal((K, N)).astype(np.float32)
    c = np.empty((M, N), np.float32)
    kernel(a, b, c)

    wanted = np.maximum(a.astype(np.float64) @ b.astype(np.float64), 0)
    error = np.abs(c - wanted).max()
    print(f"compiled for {kernel.target}; largest error {error:.2e}")
    assert error < 1e-3
    print(f"the scheduled program has {len(kernel.ir('scheduled').splitlines())} lines,")
    print(f"the generated source {len(kernel.source.splitlines())}")


if __name__ == "__main__":
    main()
