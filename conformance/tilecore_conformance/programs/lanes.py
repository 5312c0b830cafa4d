"""Programs written per lane: the lane's index, a lane's variables, barriers set by the author."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np

import tilecore.language as T
from tilecore_conformance import bounds
from tilecore_conformance.experiment import Expected, Experiment, normal, output


def lane_reverse(rng: np.random.Generator, threads: int, size: int, dtype: str) -> Experiment:
    """Every lane hands its element to another one, by shared memory."""

    @T.prim_func
    def lane_reverse(X: T.Tensor((size,), dtype), Y: T.Tensor((size,), dtype)):
        with T.Kernel(T.ceildiv(size, threads), threads=threads) as bx:
            lane = T.get_thread_binding(0)
            box = T.alloc_shared((threads,), dtype)
            if bx * threads + lane < size:
                box[lane] = X[bx * threads + lane]
            else:
                box[lane] = 0
            T.sync_threads()
            if bx * threads + lane < size:
                Y[bx * threads + lane] = box[threads - 1 - lane]

    x = normal(rng, (size,), dtype)

    def expected() -> tuple[Expected, ...]:
        whole = np.zeros(-(-size // threads) * threads, x.dtype)
        whole[:size] = x
        turned = whole.reshape(-1, threads)[:, ::-1].reshape(-1)[:size]
        return (Expected(turned.astype(np.float64) if x.dtype.kind == "f" else turned),)

    return Experiment(lane_reverse, (x,), (output((size,), dtype),), expected)


def lane_tree(rng: np.random.Generator, threads: int, dtype: str = "int32") -> Experiment:
    """A tree of sums with a barrier in every round of a loop over a variable."""

    @T.prim_func
    def lane_tree(X: T.Tensor((3, threads), dtype), Y: T.Tensor((3,), dtype)):
        with T.Kernel(3, threads=threads) as bx:
            lane = T.get_thread_binding(0)
            part = T.alloc_shared((threads,), dtype)
            half = T.alloc_var("int32", init=threads // 2)
            part[lane] = X[bx, lane]
            T.sync_threads()
            while half > 0:
                if lane < half:
                    part[lane] += part[lane + half]
                T.sync_threads()
                half = half // 2
            if lane == 0:
                Y[bx] = part[0]

    x = normal(rng, (3, threads), dtype)
    return Experiment(
        lane_tree, (x,), (output((3,), dtype),), lambda: (Expected(x.sum(axis=1, dtype=x.dtype)),)
    )


def lane_scan(rng: np.random.Generator, threads: int) -> Experiment:
    """A scan in which every lane keeps a value across the barriers of a loop."""
    steps = threads.bit_length() - 1

    @T.prim_func
    def lane_scan(X: T.Tensor((threads,), "int32"), Y: T.Tensor((threads,), "int32")):
        with T.Kernel(1, threads=threads):
            lane = T.get_thread_binding(0)
            line = T.alloc_shared((threads,), "int32")
            own = T.alloc_var("int32")
            line[lane] = X[lane]
            T.sync_threads()
            for step in T.serial(steps):
                own = line[lane]
                if lane >= (1 << step):
                    own = own + line[lane - (1 << step)]
                T.sync_threads()
                line[lane] = own
                T.sync_threads()
            Y[lane] = own

    x = normal(rng, (threads,), "int32")
    return Experiment(
        lane_scan,
        (x,),
        (output((threads,), "int32"),),
        lambda: (Expected(np.cumsum(x, dtype=np.int32)),),
    )


def lane_gemv(
    rng: np.random.Generator, rows: int, cols: int, across: int, along: int, dtype: str
) -> Experiment:
    """Rows and pieces of a row on two axes of lanes; arrays of a lane's own; a shared sum."""
    width = 4

    @T.prim_func
    def lane_gemv(
        A: T.Tensor((rows, cols), dtype),
        x: T.Tensor((cols,), dtype),
        y: T.Tensor((rows,), "float32"),
    ):
        with T.Kernel(T.ceildiv(rows, across), threads=(across, along)) as bx:
            row = T.get_thread_binding(0)
            piece = T.get_thread_binding(1)
            a = T.alloc_local((width,), dtype)
            b = T.alloc_local((width,), dtype)
            own = T.alloc_local((1,), "float32")
            parts = T.alloc_shared((across, along), "float32")
            T.clear(own)
            for block in T.serial(T.ceildiv(cols, along * width)):
                for j in T.vectorized(width):
                    at = block * along * width + piece * width + j
                    if bx * across + row < rows and at < cols:
                        a[j] = A[bx * across + row, at]
                        b[j] = x[at]
                    else:
                        a[j] = 0
                        b[j] = 0
                for j in T.serial(width):
                    own[0] += a[j].astype("float32") * b[j].astype("float32")
            parts[row, piece] = own[0]
            T.sync_threads()
            if piece == 0 and bx * across + row < rows:
                total = T.alloc_var("float32", init=0)
                for j in T.serial(along):
                    total += parts[row, j]
                y[bx * across + row] = total

    a, x = normal(rng, (rows, cols), dtype), normal(rng, (cols,), dtype)

    def expected() -> tuple[Expected, ...]:
        wide, vector = a.astype(np.float64), x.astype(np.float64)
        return (
            Expected(wide @ vector, bounds.sum(np.abs(wide) @ np.abs(vector), "float32", cols)),
        )

    return Experiment(lane_gemv, (a, x), (output((rows,), "float32"),), expected)


def lane_matmul(rng: np.random.Generator, m: int, n: int, k: int, dtype: str) -> Experiment:
    """A product by lanes: shared tiles, a square of results in each lane's own array."""
    bm, bn, bk, tm, tn = 16, 32, 8, 2, 4
    across, down = bn // tn, bm // tm

    @T.prim_func
    def lane_matmul(
        A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), dtype)
    ):
        with T.Kernel(n // bn, m // bm, threads=(across, down)) as (bx, by):
            tx = T.get_thread_binding(0)
            ty = T.get_thread_binding(1)
            a = T.alloc_shared((bm, bk), dtype)
            b = T.alloc_shared((bk, bn), dtype)
            own_a = T.alloc_local((tm,), dtype)
            own_b = T.alloc_local((tn,), dtype)
            own_c = T.alloc_local((tm, tn), dtype)
            T.clear(own_c)
            for ko in T.serial(k // bk):
                T.copy(A[by * bm, ko * bk], a)
                T.copy(B[ko * bk, bx * bn], b)
                T.sync_threads()
                for ki in T.serial(bk):
                    for i in T.serial(tm):
                        own_a[i] = a[ty * tm + i, ki]
                    for j in T.serial(tn):
                        own_b[j] = b[ki, tx * tn + j]
                    for i in T.serial(tm):
                        for j in T.serial(tn):
                            own_c[i, j] += own_a[i] * own_b[j]
                T.sync_threads()
            for i in T.serial(tm):
                for j in T.serial(tn):
                    C[by * bm + ty * tm + i, bx * bn + tx * tn + j] = own_c[i, j]

    a, b = normal(rng, (m, k), dtype), normal(rng, (k, n), dtype)
    out = output((m, n), dtype)

    def expected() -> tuple[Expected, ...]:
        wide = a.astype(np.int64) @ b.astype(np.int64)
        return (Expected(wide.astype(out.dtype)),)

    return Experiment(lane_matmul, (a, b), (out,), expected)


def lane_counts(rng: np.random.Generator, size: int, bins: int, threads: int) -> Experiment:
    """Counters in shared memory that lanes draw numbers from; lanes walk strides of the input."""

    @T.prim_func
    def lane_counts(
        X: T.Tensor((size,), "int32"),
        Counts: T.Tensor((bins,), "int32"),
        Seen: T.Tensor((size,), "int32"),
    ):
        with T.Kernel(1, threads=threads):
            lane = T.get_thread_binding(0)
            counts = T.alloc_shared((bins,), "int32")
            T.fill(counts, 0)
            for step in T.serial(T.ceildiv(size, threads)):
                at = step * threads + lane
                if at < size:
                    drawn = T.atomic_add(counts[X[at]], 1, return_prev=True)
                    Seen[X[at] * (size // bins) + drawn] = 1
            T.sync_threads()
            if lane < bins:
                Counts[lane] = counts[lane]

    each = size // bins
    x = rng.permutation(np.repeat(np.arange(bins, dtype=np.int32), each))
    outputs = (output((bins,), "int32"), output((size,), "int32", 0))
    return Experiment(
        lane_counts,
        (x,),
        outputs,
        lambda: (
            Expected(np.full(bins, each, np.int32)),
            Expected(np.ones(size, np.int32)),
        ),
    )


def lane_collatz(rng: np.random.Generator, size: int, threads: int) -> Experiment:
    """Loops of different length in every lane, left by break, rounds skipped by continue."""

    @T.prim_func
    def lane_collatz(X: T.Tensor((size,), "int32"), Y: T.Tensor((2, size), "int32")):
        with T.Kernel(T.ceildiv(size, threads), threads=threads) as bx:
            lane = T.get_thread_binding(0)
            at = bx * threads + lane
            if at < size:
                value = T.alloc_var("int32", init=X[at])
                steps = T.alloc_var("int32")
                odd = T.alloc_var("int32")
                while value != 1:
                    steps += 1
                    if value % 2 == 0:
                        value = value // 2
                        continue
                    odd += 1
                    value = 3 * value + 1
                Y[0, at] = steps
                for k in T.serial(100):
                    if k * k > X[at]:
                        break
                    odd += 1
                Y[1, at] = odd

    x = rng.integers(1, 300, size).astype(np.int32)

    def expected() -> tuple[Expected, ...]:
        rows = np.zeros((2, size), np.int32)
        for column, start in enumerate(x.tolist()):
            value = start
            while value != 1:
                rows[0, column] += 1
                rows[1, column] += value % 2
                value = value // 2 if value % 2 == 0 else 3 * value + 1
            rows[1, column] += sum(1 for k in range(100) if k * k <= start)
        return (Expected(rows),)

    return Experiment(lane_collatz, (x,), (output((2, size), "int32"),), expected)


def lane_and_tiles(rng: np.random.Generator, rows: int, cols: int, threads: int) -> Experiment:
    """Tile statements and a lane's own in turn; no barrier is written between them."""

    @T.prim_func
    def lane_and_tiles(X: T.Tensor((rows, cols), "int32"), Y: T.Tensor((rows, cols), "int32")):
        with T.Kernel(1, threads=threads):
            lane = T.get_thread_binding(0)
            tile = T.alloc_shared((rows, cols), "int32")
            f = T.alloc_fragment((rows, cols), "int32")
            total = T.alloc_fragment((rows,), "int32")
            sums = T.alloc_shared((rows,), "int32")
            T.copy(X, tile)
            for r in T.serial(rows):
                if lane < cols:
                    tile[r, lane] = tile[r, lane] * 2 + r
            T.copy(tile, f)
            T.reduce_sum(f, total, dim=1)
            T.copy(total, sums)
            for r in T.serial(rows):
                if lane < cols:
                    tile[r, lane] += sums[r]
            for i, j in T.Parallel(rows, cols):
                Y[i, j] = tile[i, j] + 1

    x = normal(rng, (rows, cols), "int32")

    def expected() -> tuple[Expected, ...]:
        twice = x * 2 + np.arange(rows, dtype=np.int32)[:, None]
        return (Expected((twice + twice.sum(axis=1, keepdims=True) + 1).astype(np.int32)),)

    return Experiment(lane_and_tiles, (x,), (output((rows, cols), "int32"),), expected)


def lane_copies(rng: np.random.Generator, blocks: int, threads: int, width: int) -> Experiment:
    """Tile copies to and from a lane's own array, and fills of it."""
    size = blocks * threads * width - 3

    @T.prim_func
    def lane_copies(X: T.Tensor((size,), "int32"), Y: T.Tensor((size,), "int32")):
        with T.Kernel(blocks, threads=threads) as bx:
            lane = T.get_thread_binding(0)
            own = T.alloc_local((width,), "int32")
            more = T.alloc_local((width,), "int32")
            T.fill(more, lane)
            first = (bx * threads + lane) * width
            T.copy(X[first : first + width], own)
            for j in T.serial(width):
                own[j] = own[j] + more[j]
            T.copy(own, Y[first : first + width])

    x = normal(rng, (size,), "int32")

    def expected() -> tuple[Expected, ...]:
        lanes = np.arange(size) // width % threads
        return (Expected((x + lanes).astype(np.int32)),)

    return Experiment(lane_copies, (x,), (output((size,), "int32"),), expected)


BUILDERS: tuple[Any, ...] = (
    lane_reverse, lane_tree, lane_scan, lane_gemv, lane_matmul, lane_counts, lane_collatz,
    lane_and_tiles, lane_copies,
)  # fmt: skip
