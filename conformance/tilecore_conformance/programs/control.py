"""Control flow on runtime values: loops, branches, breaks, variables, block order."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np

import tilecore.language as T
from tilecore_conformance import bounds
from tilecore_conformance.experiment import Expected, Experiment, normal, output


def triangular(rng: np.random.Generator, rows: int, cols: int, loop: str = "serial") -> Experiment:
    """A loop whose bound depends on the block: each block row sums a different number of tiles."""
    tile = 16
    make_range = {"serial": T.serial, "pipelined": T.Pipelined}[loop]

    @T.prim_func
    def triangular(X: T.Tensor((rows, cols), "float32"), Y: T.Tensor((rows, tile), "float32")):
        with T.Kernel(T.ceildiv(rows, tile), threads=128) as bx:
            x = T.alloc_shared((tile, tile), "float32")
            y = T.alloc_fragment((tile, tile), "float32")
            T.clear(y)
            for step in make_range(T.min(bx + 1, T.ceildiv(cols, tile))):
                T.copy(X[bx * tile, step * tile], x)
                for i, j in T.Parallel(tile, tile):
                    y[i, j] += x[i, j]
            T.copy(y, Y[bx * tile, 0])

    x = normal(rng, (rows, cols), "float32")

    def expected() -> tuple[Expected, ...]:
        steps = -(-cols // tile)
        padded = np.zeros((rows, steps * tile))
        padded[:, :cols] = x
        tiles = padded.reshape(rows, steps, tile)
        used = np.arange(steps)[None, :] < np.arange(rows)[:, None] // tile + 1
        value = (tiles * used[:, :, None]).sum(axis=1)
        size = (np.abs(tiles) * used[:, :, None]).sum(axis=1)
        return (Expected(value, bounds.sum(size, "float32", steps)),)

    return Experiment(triangular, (x,), (output((rows, tile), "float32"),), expected)


def branches(rng: np.random.Generator, size: int, threads: int = 64) -> Experiment:
    """if / elif / else on the block's index, and nested branches inside a Parallel."""
    tile = 16

    @T.prim_func
    def branches(X: T.Tensor((size,), "int32"), Y: T.Tensor((size,), "int32")):
        with T.Kernel(T.ceildiv(size, tile), threads=threads) as bx:
            x = T.alloc_fragment((tile,), "int32")
            T.copy(X[bx * tile], x)
            if bx % 3 == 0:
                for i in T.Parallel(tile):
                    x[i] = x[i] * 2
            elif bx % 3 == 1:
                for i in T.Parallel(tile):
                    if x[i] > 0:
                        x[i] = x[i] + 100
                    else:
                        if i % 2 == 0:
                            x[i] = x[i] - 100
            else:
                T.fill(x, -7)
            T.copy(x, Y[bx * tile])

    x = normal(rng, (size,), "int32")

    def expected() -> tuple[Expected, ...]:
        index = np.arange(size)
        block, lane = index // tile, index % tile
        second = np.where(x > 0, x + 100, np.where(lane % 2 == 0, x - 100, x))
        value = np.select([block % 3 == 0, block % 3 == 1], [x * 2, second], -7)
        return (Expected(value.astype(np.int32)),)

    return Experiment(branches, (x,), (output((size,), "int32"),), expected)


def while_collatz(rng: np.random.Generator, blocks: int) -> Experiment:
    """A while loop with variables: steps of the Collatz sequence from block + 1 down to 1."""

    @T.prim_func
    def while_collatz(Y: T.Tensor((blocks,), "int32")):
        with T.Kernel(blocks, threads=32) as bx:
            value = T.alloc_var("int32", init=bx + 1)
            count = T.alloc_var("int32", init=0)
            while value != 1:
                if value % 2 == 0:  # noqa: SIM108 - the branch is what is tested
                    value = value // 2
                else:
                    value = 3 * value + 1
                count = count + 1
            Y[bx] = count

    def expected() -> tuple[Expected, ...]:
        counts = []
        for number in range(1, blocks + 1):
            steps = 0
            while number != 1:
                number = number // 2 if number % 2 == 0 else 3 * number + 1
                steps += 1
            counts.append(steps)
        return (Expected(np.array(counts, np.int32)),)

    return Experiment(while_collatz, (), (output((blocks,), "int32"),), expected)


def break_continue(rng: np.random.Generator, size: int, limit: int) -> Experiment:
    """Sums the odd ones of the first elements until the running sum passes a limit."""

    @T.prim_func
    def break_continue(X: T.Tensor((size,), "int32"), Y: T.Tensor((2,), "int32")):
        with T.Kernel(1, threads=32) as _:
            total = T.alloc_var("int32", init=0)
            seen = T.alloc_var("int32", init=0)
            for i in range(size):
                if X[i] % 2 == 0:
                    continue
                total = total + X[i]
                seen = i + 1
                if total > limit:
                    break
            Y[0] = total
            Y[1] = seen

    x = np.abs(normal(rng, (size,), "int32"))

    def expected() -> tuple[Expected, ...]:
        total = seen = 0
        for i, value in enumerate(x.tolist()):
            if value % 2 == 0:
                continue
            total, seen = total + value, i + 1
            if total > limit:
                break
        return (Expected(np.array([total, seen], np.int32)),)

    return Experiment(break_continue, (x,), (output((2,), "int32"),), expected)


def unrolled(rng: np.random.Generator, kind: str, extent: int) -> Experiment:
    """Serial, unrolled and vectorised loops inside a Parallel mean the same."""
    rows = 48
    make_range = {"serial": T.serial, "unroll": T.unroll, "vectorized": T.vectorized}[kind]

    @T.prim_func
    def unrolled(X: T.Tensor((rows, extent), "float32"), Y: T.Tensor((rows, extent), "float32")):
        with T.Kernel(1, threads=64) as _:
            for i in T.Parallel(rows):
                for j in make_range(extent):
                    Y[i, j] = X[i, j] * 2.0 + 1.0

    x = normal(rng, (rows, extent), "float32")

    def expected() -> tuple[Expected, ...]:
        value = x.astype(np.float64) * 2.0 + 1.0
        return (Expected(value, bounds.rounding(np.abs(value) + 1.0, "float32")),)

    return Experiment(unrolled, (x,), (output((rows, extent), "float32"),), expected)


def local_array(rng: np.random.Generator, size: int, taps: int) -> Experiment:
    """A local array in each iteration of a Parallel: a small polynomial by its coefficients."""

    @T.prim_func
    def local_array(X: T.Tensor((size,), "float32"), Y: T.Tensor((size,), "float32")):
        with T.Kernel(T.ceildiv(size, 32), threads=32) as bx:
            for i in T.Parallel(32):
                if bx * 32 + i < size:
                    powers = T.alloc_local((taps,), "float32")
                    powers[0] = 1.0
                    for j in T.serial(taps - 1):
                        powers[j + 1] = powers[j] * X[bx * 32 + i]
                    total = T.alloc_var("float32", init=0.0)
                    for j in T.serial(taps):
                        total = total + powers[j]
                    Y[bx * 32 + i] = total

    x = (normal(rng, (size,), "float32") * 0.5).astype(np.float32)

    def expected() -> tuple[Expected, ...]:
        wide = x.astype(np.float64)
        terms = np.stack([wide**power for power in range(taps)])
        return (
            Expected(terms.sum(axis=0), bounds.sum(np.abs(terms).sum(axis=0), "float32", 2 * taps)),
        )

    return Experiment(local_array, (x,), (output((size,), "float32"),), expected)


def block_order(
    rng: np.random.Generator, rows: int, cols: int, panel: int, order: str = "row"
) -> Experiment:
    """Whatever the order of the blocks, each is visited exactly once."""
    tile = 8

    @T.prim_func
    def block_order(Y: T.Tensor((rows, cols), "int32")):
        with T.Kernel(T.ceildiv(cols, tile), T.ceildiv(rows, tile), threads=32) as (bx, by):
            T.use_swizzle(panel, order=order)
            for i, j in T.Parallel(tile, tile):
                if by * tile + i < rows and bx * tile + j < cols:
                    T.atomic_add(Y[by * tile + i, bx * tile + j], by * 1000 + bx + 1)

    def expected() -> tuple[Expected, ...]:
        row, col = np.ogrid[:rows, :cols]
        return (Expected((row // tile * 1000 + col // tile + 1).astype(np.int32)),)

    return Experiment(block_order, (), (output((rows, cols), "int32", 0),), expected)


BUILDERS: tuple[Any, ...] = (
    triangular, branches, while_collatz, break_continue, unrolled, local_array, block_order,
)  # fmt: skip
