"""An author's stages on warp roles: followed, and never a different result."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.compiler import lower

ROWS, KEYS, DIM, TILE = 128, 256, 64, 64
# Of the loop's statements: copy, copy, gemm, exponentials, sum, total, weights, gemm.
AT_ONCE = (0, 0, 1, 1, 1, 1, 1, 1)
LATE = (0, 0, 1, 1, 1, 1, 1, 2)
IN_TURN = (0, 0, 0, 0, 0, 0, 0, 0)  # nothing runs ahead


def chained(stage: tuple[int, ...] | None) -> Any:
    """Out = exp2(Q K^T) V and its row sums, with the given stages of the loop."""
    order = None if stage is None else list(range(len(stage)))
    stages = None if stage is None else list(stage)

    @T.prim_func
    def chained(
        Q: T.Tensor((ROWS, DIM), "float16"),
        K: T.Tensor((KEYS, DIM), "float16"),
        V: T.Tensor((KEYS, DIM), "float16"),
        Out: T.Tensor((ROWS, DIM), "float32"),
        S: T.Tensor((ROWS,), "float32"),
    ):
        with T.Kernel(1, threads=256):
            q = T.alloc_shared((ROWS, DIM), "float16")
            k = T.alloc_shared((TILE, DIM), "float16")
            v = T.alloc_shared((TILE, DIM), "float16")
            scores = T.alloc_fragment((ROWS, TILE), "float32")
            weights = T.alloc_fragment((ROWS, TILE), "float16")
            out = T.alloc_fragment((ROWS, DIM), "float32")
            part = T.alloc_fragment((ROWS,), "float32")
            total = T.alloc_fragment((ROWS,), "float32")
            T.copy(Q, q)
            T.clear(out)
            T.clear(total)
            for step in T.Pipelined(KEYS // TILE, num_stages=2, order=order, stage=stages):
                T.copy(K[step * TILE, 0], k)
                T.copy(V[step * TILE, 0], v)
                T.gemm(
                    q, k, scores, transpose_B=True, clear_accum=True,
                    policy=T.GemmWarpPolicy.FullRow,
                )  # fmt: skip
                for i, j in T.Parallel(ROWS, TILE):
                    scores[i, j] = T.exp2(scores[i, j] * 0.125)
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(ROWS):
                    total[i] = total[i] + part[i]
                T.copy(scores, weights)
                T.gemm(weights, v, out, policy=T.GemmWarpPolicy.FullRow)
            T.copy(out, Out)
            T.copy(total, S)

    return chained


def text_of(stage: tuple[int, ...] | None) -> str:
    return lower(chained(stage), backend="cuda_hopper").source.text


def test_stages_decide_whether_the_last_gemm_is_late() -> None:
    assert "hopper::wgmma_wait<1>" in text_of(LATE)
    assert "hopper::wgmma_wait<1>" not in text_of(AT_ONCE)
    for stage in (LATE, AT_ONCE):
        assert "hopper::bulk_load(" in text_of(stage)  # producer warps in either case


@pytest.mark.parametrize("stage", [None, AT_ONCE, LATE, IN_TURN])
def test_results_do_not_depend_on_stages(stage: tuple[int, ...] | None) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((rows, DIM)).astype(np.float16) for rows in (ROWS, KEYS, KEYS))
    out, sums = np.zeros((ROWS, DIM), np.float32), np.zeros(ROWS, np.float32)
    kernel = tilecore.compile(chained(stage), backend="cuda_hopper", device="emulator")
    kernel(q, k, v, out, sums)
    weights = np.exp2(q.astype(np.float64) @ k.astype(np.float64).T * 0.125)
    np.testing.assert_allclose(sums, weights.sum(1), rtol=1e-3)
    want = weights @ v.astype(np.float64)
    np.testing.assert_allclose(out, want, rtol=2e-3, atol=2e-3 * np.abs(want).max())


@pytest.mark.parametrize("moves", [False, True])
def test_neighbours_share_loads_only_where_their_steps_begin_alike(moves: bool) -> None:
    @T.prim_func
    def window(
        Q: T.Tensor((1024, 64), "float16"),
        K: T.Tensor((2048, 64), "float16"),
        Out: T.Tensor((1024, 64), "float32"),
    ):
        with T.Kernel(8, 4, threads=256) as (bx, _):
            q = T.alloc_shared((128, 64), "float16")
            k = T.alloc_shared((64, 64), "float16")
            v = T.alloc_shared((64, 64), "float16")
            scores = T.alloc_fragment((128, 64), "float32")
            weights = T.alloc_fragment((128, 64), "float16")
            out = T.alloc_fragment((128, 64), "float32")
            first = bx if moves else 0
            T.copy(Q[bx * 128, 0], q)
            T.clear(out)
            for step in T.Pipelined(first, first + 20, num_stages=2):
                T.copy(K[step * 64, 0], k)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(128, 64):
                    scores[i, j] = T.exp2(scores[i, j] * 0.125)
                T.copy(scores, weights)
                T.copy(K[step * 64, 0], v)
                T.gemm(weights, v, out)
            T.copy(out, Out[bx * 128, 0])

    (kernel,) = dict(lower(window, "cuda_hopper").stages)["scheduled"].kernels
    assert kernel.cluster == ((1, 1, 1) if moves else (2, 1, 1))


def test_a_tile_that_stays_for_the_loop_may_be_read_by_lanes_too() -> None:
    """The engine overwrites it for the block's next tile: lanes order their reads before that."""
    tiles = 160

    @T.prim_func
    def resident(
        A: T.Tensor((64 * tiles, 64), "float16"),
        X: T.Tensor((128, 64), "float16"),
        Out: T.Tensor((64 * tiles, 64), "float32"),
    ):
        with T.Kernel(tiles, threads=128) as bx:
            a = T.alloc_shared((64, 64), "float16")
            x = T.alloc_shared((64, 64), "float16")
            first = T.alloc_fragment((64, 64), "float32")
            second = T.alloc_fragment((64, 64), "float32")
            weights = T.alloc_fragment((64, 64), "float16")
            out = T.alloc_fragment((64, 64), "float32")
            T.copy(A[bx * 64, 0], a)
            T.clear(out)
            for step in T.Pipelined(2, num_stages=2):
                T.copy(X[step * 64, 0], x)
                T.gemm(a, x, first, transpose_B=True, clear_accum=True)
                T.gemm(a, x, second, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(64, 64):
                    weights[i, j] = (first[i, j] + second[i, j]) * a[i, j]
                T.gemm(weights, x, out)
            T.copy(out, Out[bx * 64, 0])

    rng = np.random.default_rng(0)
    a, x = (rng.standard_normal((n, 64)).astype(np.float16) / 4 for n in (64 * tiles, 128))
    out = np.zeros((64 * tiles, 64), np.float32)
    kernel = tilecore.compile(resident, backend="cuda_hopper", device="emulator")
    assert "a_empty" in kernel.source  # blocks stay, and the tile is loaded anew
    kernel(a, x, out)
    a, x = a.astype(np.float64), x.astype(np.float64)
    want = sum(2 * (a @ part.T) * a @ part for part in np.split(x, 2))
    np.testing.assert_allclose(out, want, rtol=4e-3, atol=4e-3 * np.abs(want).max())
