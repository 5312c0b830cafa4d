"""One compiled kernel for every length: sizes that are known only at the call.

python examples/dynamic_shapes.py [backend]
"""

import sys

import numpy as np

import tilecore
import tilecore.language as T

TILE = 256
n = T.dynamic("n")


@T.prim_func
def running_mean(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
    """``Y[i]`` is the mean of ``X[i - 1]``, ``X[i]`` and ``X[i + 1]``, fewer at the ends."""
    with T.Kernel(T.ceildiv(n, TILE), threads=128) as bx:
        for i in T.Parallel(TILE):
            at = bx * TILE + i
            if at < n:
                # The branch that is not taken is not loaded.
                left = T.if_then_else(at > 0, X[at - 1], 0.0)
                right = T.if_then_else(at + 1 < n, X[at + 1], 0.0)
                count = 1.0 + T.if_then_else(at > 0, 1.0, 0.0)
                count = count + T.if_then_else(at + 1 < n, 1.0, 0.0)
                Y[at] = (left + X[at] + right) / count


def reference(x: np.ndarray) -> np.ndarray:
    padded = np.pad(x.astype(np.float64), 1)
    at = np.arange(x.size)
    counts = 1.0 + (at > 0) + (at + 1 < x.size)
    return (padded[:-2] + padded[1:-1] + padded[2:]) / counts


def main() -> None:
    backend = sys.argv[1] if len(sys.argv) > 1 else None
    kernel = tilecore.compile(running_mean, backend)
    for size in (0, 1, 2, 255, 256, 257, 100_003):
        x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
        y = np.empty_like(x)
        kernel(x, y)
        error = np.abs(y - reference(x)).max(initial=0.0)
        print(f"n = {size:6d}: largest error {error:.1e}")
        assert error < 1e-6


if __name__ == "__main__":
    main()
