"""Atomic updates of global memory, by elements and by tiles."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np

import tilecore.language as T
from tilecore_conformance import bounds
from tilecore_conformance.experiment import Expected, Experiment, normal, output


def histogram(
    rng: np.random.Generator, size: int, bins: int, dtype: str = "int32", threads: int = 128
) -> Experiment:
    """Many blocks count into few bins."""
    tile = 64

    @T.prim_func
    def histogram(X: T.Tensor((size,), "int32"), Y: T.Tensor((bins,), dtype)):
        with T.Kernel(T.ceildiv(size, tile), threads=threads) as bx:
            for i in T.Parallel(tile):
                if bx * tile + i < size:
                    T.atomic_add(Y[X[bx * tile + i]], T.cast(1, dtype))

    x = rng.integers(0, bins, size).astype(np.int32)

    def expected() -> tuple[Expected, ...]:
        counts = np.bincount(x, minlength=bins)
        return (Expected(counts.astype(output((0,), dtype).dtype)),)

    return Experiment(histogram, (x,), (output((bins,), dtype, 0),), expected)


def split_sum(
    rng: np.random.Generator, rows: int, cols: int, dtype: str = "float32", threads: int = 128
) -> Experiment:
    """Column sums by tiles added atomically: the split-k pattern."""
    tile = 32

    @T.prim_func
    def split_sum(X: T.Tensor((rows, cols), dtype), Y: T.Tensor((cols,), dtype)):
        with T.Kernel(T.ceildiv(cols, tile), T.ceildiv(rows, tile), threads=threads) as (bx, by):
            x = T.alloc_fragment((tile, tile), dtype)
            y = T.alloc_fragment((tile,), dtype)
            T.copy(X[by * tile, bx * tile], x)
            T.reduce_sum(x, y, dim=0)
            T.atomic_add(Y[bx * tile : (bx + 1) * tile], y)

    x = normal(rng, (rows, cols), dtype)

    def expected() -> tuple[Expected, ...]:
        wide = x.astype(np.float64)
        return (Expected(wide.sum(axis=0), bounds.sum(np.abs(wide).sum(axis=0), dtype, rows + 1)),)

    return Experiment(split_sum, (x,), (output((cols,), dtype, 0),), expected)


def extremes(rng: np.random.Generator, size: int, dtype: str = "int32") -> Experiment:
    """Largest and smallest element of a tensor, found by all blocks together."""
    tile = 32

    @T.prim_func
    def extremes(
        X: T.Tensor((size,), dtype), High: T.Tensor((1,), dtype), Low: T.Tensor((1,), dtype)
    ):
        with T.Kernel(T.ceildiv(size, tile), threads=32) as bx:
            for i in T.Parallel(tile):
                if bx * tile + i < size:
                    T.atomic_max(High[0], X[bx * tile + i])
                    T.atomic_min(Low[0], X[bx * tile + i])

    x = rng.integers(-1000, 1000, size).astype(output((0,), dtype).dtype)
    outputs = (output((1,), dtype, -2000), output((1,), dtype, 2000))
    return Experiment(
        extremes,
        (x,),
        outputs,
        lambda: (Expected(x.max(keepdims=True)), Expected(x.min(keepdims=True))),
    )


def tickets(rng: np.random.Generator, blocks: int) -> Experiment:
    """The previous value of an atomic add: every block draws a ticket, no two the same."""

    @T.prim_func
    def tickets(Counter: T.Tensor((1,), "int32"), Drawn: T.Tensor((blocks,), "int32")):
        with T.Kernel(blocks, threads=32) as _:
            ticket = T.atomic_add(Counter[0], 1, return_prev=True)
            Drawn[ticket] = ticket + 1

    outputs = (output((1,), "int32", 0), output((blocks,), "int32", 0))
    return Experiment(
        tickets,
        (),
        outputs,
        lambda: (
            Expected(np.array([blocks], np.int32)),
            Expected(np.arange(1, blocks + 1, dtype=np.int32)),
        ),
    )


BUILDERS: tuple[Any, ...] = (histogram, split_sum, extremes, tickets)
