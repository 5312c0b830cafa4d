"""Writing a kernel of one's own: top-1 of each row, from idea to checked kernel.

Shows the interpreter (``device="reference"``) as a debugger, the tile program under two
configurations, and the IR that the compiler made of it.

    python examples/own_kernel.py [backend]
"""

import sys
from typing import Any

import numpy as np

import tilecore
import tilecore.language as T


def argmax_rows(rows: int, cols: int, tile_rows: int, tile_cols: int) -> Any:
    """Value and first position of the largest element of each row.

    Each row is walked tile by tile. Of each tile only its maximum is taken, and where that beats
    the best so far, the first column that holds it.
    """
    steps = -(-cols // tile_cols)

    @T.prim_func
    def argmax_rows(
        X: T.Tensor((rows, cols), "float32"),
        Value: T.Tensor((rows,), "float32"),
        Position: T.Tensor((rows,), "int32"),
    ):
        with T.Kernel(T.ceildiv(rows, tile_rows), threads=128) as bx:
            x = T.alloc_fragment((tile_rows, tile_cols), "float32")
            column = T.alloc_fragment((tile_rows, tile_cols), "int32")
            peak = T.alloc_fragment((tile_rows,), "float32")
            first = T.alloc_fragment((tile_rows,), "int32")
            best = T.alloc_fragment((tile_rows,), "float32")
            where = T.alloc_fragment((tile_rows,), "int32")
            T.fill(best, -T.infinity("float32"))
            T.clear(where)
            for step in T.serial(steps):
                T.copy(X[bx * tile_rows, step * tile_cols], x)
                for i, j in T.Parallel(tile_rows, tile_cols):
                    inside = step * tile_cols + j < cols
                    x[i, j] = T.if_then_else(inside, x[i, j], -T.infinity("float32"))
                T.reduce_max(x, peak, dim=1)
                for i, j in T.Parallel(tile_rows, tile_cols):
                    column[i, j] = T.if_then_else(x[i, j] == peak[i], step * tile_cols + j, cols)
                T.reduce_min(column, first, dim=1)
                for i in T.Parallel(tile_rows):
                    where[i] = T.if_then_else(peak[i] > best[i], first[i], where[i])
                    best[i] = T.max(best[i], peak[i])
            T.copy(best, Value[bx * tile_rows])
            T.copy(where, Position[bx * tile_rows])

    return argmax_rows


def check(kernel: Any, x: np.ndarray) -> None:
    value = np.empty(x.shape[0], np.float32)
    position = np.empty(x.shape[0], np.int32)
    kernel(x, value, position)
    assert (position == x.argmax(axis=1)).all()
    assert (value == x.max(axis=1)).all()


def main() -> None:
    backend = sys.argv[1] if len(sys.argv) > 1 else None
    x = np.random.default_rng(0).standard_normal((37, 1001)).astype(np.float32)

    # 1. Is the idea right? The interpreter runs the tile program itself, without any backend.
    program = argmax_rows(*x.shape, tile_rows=4, tile_cols=256)
    check(tilecore.compile(program, device="reference"), x)
    print("the interpreter agrees with NumPy")

    # 2. The same on a real backend; another tile must not change the answer.
    for tile_rows, tile_cols in ((4, 256), (1, 1024), (8, 64)):
        program = argmax_rows(*x.shape, tile_rows=tile_rows, tile_cols=tile_cols)
        kernel = tilecore.compile(program, backend)
        check(kernel, x)
        print(f"tiles of {tile_rows} x {tile_cols}: right on {kernel.target}")

    # 3. What the compiler was given.
    print("\n".join(kernel.ir("tile").splitlines()[:12]))


if __name__ == "__main__":
    main()
