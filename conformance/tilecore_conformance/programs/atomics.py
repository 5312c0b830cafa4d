"""Atomic updates of global and shared memory, by elements and by tiles, and their old values."""

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


START = {"and": -1, "add": 3, "sub": 3, "max": -3, "min": 3, "or": 1, "xor": 5}
"""What memory holds before: nothing that an operation would leave as it is."""
HOST = {
    "add": np.add, "sub": np.subtract, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "exchange": lambda old, new: new, "store": lambda old, new: new,
}  # fmt: skip


def _operands(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, op: str) -> np.ndarray:
    """Whole numbers of which sums are exact in any dtype, or patterns of bits."""
    kind = output((0,), dtype).dtype
    if op in ("and", "or", "xor"):
        bits = [1 << int(k) for k in rng.integers(0, 8 * kind.itemsize - 1, int(np.prod(shape)))]
        values = np.array(bits, np.uint64).astype(kind).reshape(shape)
        return np.invert(values) if op == "and" else values
    low = 0 if kind.kind == "u" else -4
    return rng.integers(low, 5, shape).astype(kind)


def _start(shape: tuple[int, ...], dtype: str, op: str) -> np.ndarray:
    kind = output((0,), dtype).dtype
    value = START.get(op, 7)
    if kind.kind == "u":
        value = {"sub": 1000, "max": 1}.get(op, value)
    return np.full(shape, value, np.int64).astype(kind)


def atomic_elements(
    rng: np.random.Generator, op: str, dtype: str, place: str, size: int = 193, threads: int = 64
) -> Experiment:
    """Many iterations meet on few elements, of all blocks or of one block's own memory."""
    bins, tile = 7, 64
    update = getattr(T, f"atomic_{op}")

    @T.prim_func
    def in_global(X: T.Tensor((size,), dtype), Y: T.Tensor((bins,), dtype)):
        with T.Kernel(T.ceildiv(size, tile), threads=threads) as bx:
            for i in T.Parallel(tile):
                if bx * tile + i < size:
                    update(Y[(bx * tile + i) % bins], X[bx * tile + i])

    @T.prim_func
    def in_shared(X: T.Tensor((size,), dtype), Y: T.Tensor((bins,), dtype)):
        with T.Kernel(1, threads=threads) as _:
            own = T.alloc_shared((bins,), dtype)
            T.copy(Y, own)
            for i in T.Parallel(size):
                update(own[i % bins], X[i])
            T.copy(own, Y)

    x, start = _operands(rng, (size,), dtype, op), _start((bins,), dtype, op)

    def expected() -> tuple[Expected, ...]:
        value = start.copy()
        for i, one in enumerate(x):
            value[i % bins] = HOST[op](value[i % bins], one)
        return (Expected(value),)

    function = {"global": in_global, "shared": in_shared}[place]
    return Experiment(function, (x,), (start,), expected)


def atomic_previous(
    rng: np.random.Generator, op: str, dtype: str, place: str, size: int = 65, threads: int = 64
) -> Experiment:
    """Old values: each round finds what the one before it left in its element."""
    rounds = 3
    update = getattr(T, f"atomic_{op}")

    @T.prim_func
    def atomic_previous(
        X: T.Tensor((rounds, size), dtype),
        Y: T.Tensor((size,), dtype),
        Old: T.Tensor((rounds, size), dtype),
    ):
        with T.Kernel(1, threads=threads) as _:
            own = T.alloc_shared((size,), dtype)
            T.copy(Y, own)
            for k in T.serial(rounds):
                for i in T.Parallel(size):
                    if place == "shared":
                        Old[k, i] = update(own[size - 1 - i], X[k, i], return_prev=True)
                    else:
                        Old[k, i] = update(Y[size - 1 - i], X[k, i], return_prev=True)
            if place == "shared":
                T.copy(own, Y)

    x, start = _operands(rng, (rounds, size), dtype, op), _start((size,), dtype, op)

    def expected() -> tuple[Expected, ...]:
        value, old = start[::-1].copy(), []
        for row in x:
            old.append(value)
            value = HOST[op](value, row).astype(value.dtype)
        return Expected(value[::-1].copy()), Expected(np.stack(old))

    return Experiment(atomic_previous, (x,), (start, output((rounds, size), dtype)), expected)


def atomic_tiles(
    rng: np.random.Generator, op: str, dtype: str, place: str, cols: int = 37, threads: int = 64
) -> Experiment:
    """Tiles of several blocks, or of several rounds, meet on one; columns behind the end fall off.

    At last every second row takes one number in all its elements.
    """
    tile, steps, number = 16, 3, 2
    rows = tile * steps
    update = getattr(T, f"atomic_{op}")

    @T.prim_func
    def in_global(X: T.Tensor((rows, cols), dtype), Y: T.Tensor((tile, cols), dtype)):
        with T.Kernel(T.ceildiv(cols, tile), steps, threads=threads) as (bx, by):
            x = T.alloc_fragment((tile, tile), dtype)
            T.copy(X[by * tile, bx * tile], x)
            update(Y[0, bx * tile], x)
        with T.Kernel(tile // 2, threads=threads) as row:
            update(Y[row * 2, :], number)

    @T.prim_func
    def in_shared(X: T.Tensor((rows, cols), dtype), Y: T.Tensor((tile, cols), dtype)):
        with T.Kernel(T.ceildiv(cols, tile), threads=threads) as bx:
            x = T.alloc_fragment((tile, tile), dtype)
            own = T.alloc_shared((tile, tile), dtype)
            T.copy(Y[0, bx * tile], own)
            for k in T.serial(steps):
                T.copy(X[k * tile, bx * tile], x)
                update(own, x)
            for k in T.serial(tile // 2):
                update(own[k * 2 : k * 2 + 1, :], number)
            T.copy(own, Y[0, bx * tile])

    x, start = _operands(rng, (rows, cols), dtype, op), _start((tile, cols), dtype, op)

    def expected() -> tuple[Expected, ...]:
        value = start.copy()
        for k in range(steps):
            value = HOST[op](value, x[k * tile : (k + 1) * tile]).astype(start.dtype)
        value[::2] = HOST[op](value[::2], np.array(number, start.dtype))
        return (Expected(value),)

    function = {"global": in_global, "shared": in_shared}[place]
    return Experiment(function, (x,), (start,), expected)


def atomic_mailboxes(rng: np.random.Generator, dtype: str, place: str, size: int) -> Experiment:
    """What is stored atomically is what is loaded atomically, by others."""

    @T.prim_func
    def in_global(
        X: T.Tensor((size,), dtype), Box: T.Tensor((size,), dtype), Y: T.Tensor((size,), dtype)
    ):
        with T.Kernel(size, threads=32) as bx:
            T.atomic_store(Box[bx], X[bx])
        with T.Kernel(size, threads=32) as bx:
            Y[bx] = T.atomic_load(Box[size - 1 - bx])

    @T.prim_func
    def in_shared(
        X: T.Tensor((size,), dtype), Box: T.Tensor((size,), dtype), Y: T.Tensor((size,), dtype)
    ):
        with T.Kernel(1, threads=64) as _:
            own = T.alloc_shared((size,), dtype)
            T.copy(Box, own)
            for i in T.Parallel(size):
                T.atomic_store(own[i], X[i])
            for i in T.Parallel(size):
                Y[i] = T.atomic_load(own[size - 1 - i])
            T.copy(own, Box)

    x = _operands(rng, (size,), dtype, "add")
    function = {"global": in_global, "shared": in_shared}[place]
    outputs = (output((size,), dtype, 9), output((size,), dtype))
    return Experiment(
        function, (x,), outputs, lambda: (Expected(x), Expected(np.ascontiguousarray(x[::-1])))
    )


BUILDERS: tuple[Any, ...] = (
    histogram, split_sum, extremes, tickets, atomic_elements, atomic_previous, atomic_tiles,
    atomic_mailboxes,
)  # fmt: skip
