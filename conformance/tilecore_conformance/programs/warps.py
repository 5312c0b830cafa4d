"""Exchange between lanes of a warp, and statements of the block under conditions on the lane."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np

import tilecore.language as T
from tilecore_conformance import bounds
from tilecore_conformance.experiment import Expected, Experiment, normal, output


def _source(op: str, lanes: np.ndarray, operand: int, width: int) -> np.ndarray:
    rank = lanes % width
    other = {
        "sync": np.full_like(rank, operand % width),
        "xor": rank ^ (operand % width),
        "up": rank - operand,
        "down": rank + operand,
    }[op]
    return np.where((other >= 0) & (other < width), lanes - rank + other, lanes)


def shuffles(
    rng: np.random.Generator, op: str, dtype: str, width: int = 32, threads: int = 96
) -> Experiment:
    """Every shuffle with several operands, the last one different in each lane."""
    function = getattr(T, f"shfl_{op}")
    operands = (0, 1, 5, 31)

    @T.prim_func
    def shuffles(X: T.Tensor((threads,), dtype), Y: T.Tensor((5, threads), dtype)):
        with T.Kernel(1, threads=threads):
            at = T.get_thread_binding(0)
            own = X[at]
            for k, operand in enumerate(operands):
                Y[k, at] = function(own, operand, width=width)
            Y[4, at] = T.shfl_sync(own, at * 3 + 1)

    x = normal(rng, (threads,), dtype)

    def expected() -> tuple[Expected, ...]:
        lanes = np.arange(threads)
        rows = [x[_source(op, lanes, operand, width)] for operand in operands]
        rows.append(x[lanes - lanes % 32 + (lanes * 3 + 1) % 32])
        value = np.stack(rows)
        return (Expected(value.astype(np.float64) if value.dtype.kind == "f" else value),)

    return Experiment(shuffles, (x,), (output((5, threads), dtype),), expected)


def votes(rng: np.random.Generator, threads: int) -> Experiment:
    """Ballots, any and all; the last warp may be a part of one."""

    @T.prim_func
    def votes(X: T.Tensor((threads,), "int32"), Y: T.Tensor((3, threads), "uint32")):
        with T.Kernel(1, threads=threads):
            at = T.get_thread_binding(0)
            Y[0, at] = T.ballot_sync(X[at] % 2 == 0)
            Y[1, at] = T.if_then_else(T.any_sync(X[at] > 7), 1, 0)
            Y[2, at] = T.if_then_else(T.all_sync(X[at] > -8), 1, 0)

    x = normal(rng, (threads,), "int32")

    def expected() -> tuple[Expected, ...]:
        rows = np.zeros((3, threads), np.uint32)
        for first in range(0, threads, 32):
            part = slice(first, first + 32)
            warp = x[part]
            rows[0, part] = sum(1 << k for k, value in enumerate(warp.tolist()) if value % 2 == 0)
            rows[1, part] = (warp > 7).any()
            rows[2, part] = (warp > -8).all()
        return (Expected(rows),)

    return Experiment(votes, (x,), (output((3, threads), "uint32"),), expected)


REDUCTIONS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "bitand": np.bitwise_and,
              "bitor": np.bitwise_or}  # fmt: skip


def warp_reductions(rng: np.random.Generator, op: str, dtype: str) -> Experiment:
    """A reduction over each warp, of which every lane gets the result."""
    threads = 96
    function = getattr(T, f"warp_reduce_{op}")

    @T.prim_func
    def warp_reductions(X: T.Tensor((threads,), dtype), Y: T.Tensor((threads,), dtype)):
        with T.Kernel(1, threads=threads):
            at = T.get_thread_binding(0)
            own = T.alloc_local((1,), dtype)
            own[0] = X[at]
            own[0] = function(own[0])
            Y[at] = own[0]

    x = normal(rng, (threads,), dtype)

    def expected() -> tuple[Expected, ...]:
        wide = x.astype(np.float64) if x.dtype.kind == "f" else x
        rows = REDUCTIONS[op].reduce(wide.reshape(-1, 32), axis=1)
        value = np.repeat(rows, 32).astype(wide.dtype)
        if op != "sum" or x.dtype.kind != "f":
            return (Expected(value),)
        size = np.repeat(np.abs(wide).reshape(-1, 32).sum(axis=1), 32)
        return (Expected(value, bounds.sum(size, dtype, 32)),)

    return Experiment(warp_reductions, (x,), (output((threads,), dtype),), expected)


def warp_rows(rng: np.random.Generator, rows: int, cols: int, threads: int) -> Experiment:
    """Each warp walks rows of its own: loops of different length around exchanges."""

    @T.prim_func
    def warp_rows(X: T.Tensor((rows, cols), "int32"), Y: T.Tensor((rows,), "int32")):
        with T.Kernel(1, threads=threads):
            row = T.alloc_var("int32", init=T.get_warp_idx())
            while row < rows:
                total = T.alloc_var("int32", init=0)
                at = T.alloc_var("int32", init=T.get_lane_idx())
                while at < cols:
                    total += X[row, at]
                    at += 32
                summed = T.warp_reduce_sum(total)
                if T.get_lane_idx() == 0:
                    Y[row] = summed
                row += threads // 32

    x = normal(rng, (rows, cols), "int32")
    return Experiment(
        warp_rows,
        (x,),
        (output((rows,), "int32"),),
        lambda: (Expected(x.sum(axis=1, dtype=np.int32)),),
    )


def lane_branch(rng: np.random.Generator, rows: int, cols: int, threads: int) -> Experiment:
    """Tiles copied, reduced and stored under conditions on the lane, with lanes' own stores."""

    @T.prim_func
    def lane_branch(X: T.Tensor((rows, cols), "int32"), Y: T.Tensor((rows, cols), "int32")):
        with T.Kernel(1, threads=threads):
            lane = T.get_thread_binding(0)
            tile = T.alloc_shared((rows, cols), "int32")
            marks = T.alloc_shared((threads,), "int32")
            if lane < 32:
                f = T.alloc_fragment((rows, cols), "int32")
                total = T.alloc_fragment((rows,), "int32")
                T.copy(X, f)
                T.reduce_sum(f, total, dim=1)
                marks[lane] = 2
                for step in T.serial(2):
                    for i, j in T.Parallel(rows, cols):
                        f[i, j] += total[i] + step
                T.copy(f, tile)
            else:
                marks[lane] = 3
            T.sync_threads()
            if lane >= 32 and lane < 64:
                for i, j in T.Parallel(rows, cols):
                    Y[i, j] = tile[i, j] + marks[31] + marks[threads - 1]
            if lane < 0:
                T.fill(tile, 1)

    x = normal(rng, (rows, cols), "int32")

    def expected() -> tuple[Expected, ...]:
        marks = 2 + (3 if threads > 32 else 2)
        if threads == 32:
            return (Expected(np.full((rows, cols), -7, np.int32)),)
        return (Expected((x + 2 * x.sum(axis=1, keepdims=True) + 1 + marks).astype(np.int32)),)

    return Experiment(lane_branch, (x,), (output((rows, cols), "int32", -7),), expected)


def warp_roles(rng: np.random.Generator, m: int, n: int, k: int) -> Experiment:
    """Two warpgroups with tiles of their own, and one that both use."""
    rows, cols, depth = 32, 32, 16

    @T.prim_func
    def warp_roles(
        A: T.Tensor((m, k), "float32"),
        B: T.Tensor((k, n), "float32"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, 2 * cols), T.ceildiv(m, rows), threads=256) as (bx, by):
            a = T.alloc_shared((rows, depth), "float32")
            b = T.alloc_shared((2, depth, cols), "float32")
            left = T.alloc_fragment((rows, cols), "float32")
            right = T.alloc_fragment((rows, cols), "float32")
            with T.ws(0):
                T.clear(left)
            with T.ws(1):
                T.clear(right)
            for ko in T.serial(T.ceildiv(k, depth)):
                T.copy(A[by * rows, ko * depth], a)
                with T.ws(0):
                    T.copy(B[ko * depth, bx * 2 * cols], b[0, :, :])
                    T.gemm(a, b[0, :, :], left)
                with T.ws(1):
                    T.copy(B[ko * depth, bx * 2 * cols + cols], b[1, :, :])
                    T.gemm(a, b[1, :, :], right)
            with T.ws(0):
                T.copy(left, C[by * rows, bx * 2 * cols])
            with T.ws(1):
                T.copy(right, C[by * rows, bx * 2 * cols + cols])

    a = rng.integers(-4, 5, (m, k)).astype(np.float32)
    b = rng.integers(-4, 5, (k, n)).astype(np.float32)
    return Experiment(
        warp_roles,
        (a, b),
        (output((m, n), "float32"),),
        lambda: (Expected(a.astype(np.float64) @ b.astype(np.float64)),),
    )


BUILDERS: tuple[Any, ...] = (
    shuffles, votes, warp_reductions, warp_rows, lane_branch, warp_roles,
)  # fmt: skip
