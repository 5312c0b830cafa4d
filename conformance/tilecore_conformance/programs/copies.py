"""Copies between every pair of scopes, whole, sliced and ragged, and fills."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np

import tilecore.language as T
from tilecore_conformance.experiment import Expected, Experiment, normal, output


def copy_route(
    rng: np.random.Generator,
    route: str,
    rows: int,
    cols: int,
    dtype: str = "float32",
    tile: list[int] | None = None,
    threads: int = 128,
) -> Experiment:
    """Global to global by way of the scopes in `route`, s shared, f a fragment: ``sf``, "" none."""
    tile_rows, tile_cols = tile or [32, 32]

    @T.prim_func
    def copy_route(X: T.Tensor((rows, cols), dtype), Y: T.Tensor((rows, cols), dtype)):
        with T.Kernel(T.ceildiv(cols, tile_cols), T.ceildiv(rows, tile_rows), threads=threads) as (
            bx,
            by,
        ):
            first = T.alloc_shared((tile_rows, tile_cols), dtype)
            second = T.alloc_fragment((tile_rows, tile_cols), dtype)
            third = T.alloc_shared((tile_rows, tile_cols), dtype)
            fourth = T.alloc_fragment((tile_rows, tile_cols), dtype)
            if route == "":
                T.copy(
                    X[by * tile_rows : (by + 1) * tile_rows, bx * tile_cols : (bx + 1) * tile_cols],
                    Y[by * tile_rows, bx * tile_cols],
                )
            elif route == "s":
                T.copy(X[by * tile_rows, bx * tile_cols], first)
                T.copy(first, Y[by * tile_rows, bx * tile_cols])
            elif route == "f":
                T.copy(X[by * tile_rows, bx * tile_cols], second)
                T.copy(second, Y[by * tile_rows, bx * tile_cols])
            elif route == "sf":
                T.copy(X[by * tile_rows, bx * tile_cols], first)
                T.copy(first, second)
                T.copy(second, Y[by * tile_rows, bx * tile_cols])
            elif route == "fs":
                T.copy(X[by * tile_rows, bx * tile_cols], second)
                T.copy(second, first)
                T.copy(first, Y[by * tile_rows, bx * tile_cols])
            elif route == "ss":
                T.copy(X[by * tile_rows, bx * tile_cols], first)
                T.copy(first, third)
                T.copy(third, Y[by * tile_rows, bx * tile_cols])
            elif route == "ff":
                T.copy(X[by * tile_rows, bx * tile_cols], second)
                T.copy(second, fourth)
                T.copy(fourth, Y[by * tile_rows, bx * tile_cols])
            else:
                T.copy(X[by * tile_rows, bx * tile_cols], first)
                T.copy(first, second)
                T.copy(second, third)
                T.copy(third, Y[by * tile_rows, bx * tile_cols])

    x = normal(rng, (rows, cols), dtype)
    return Experiment(copy_route, (x,), (output((rows, cols), dtype),), lambda: (Expected(x),))


def copy_slices(
    rng: np.random.Generator, shape: list[int], dtype: str = "float32", threads: int = 128
) -> Experiment:
    """Points and slices of a tensor with four axes: ``Y[h, b] = X[b, :, h, :]``."""
    b, s, h, d = shape
    tile = 32

    @T.prim_func
    def copy_slices(X: T.Tensor((b, s, h, d), dtype), Y: T.Tensor((h, b, s, d), dtype)):
        with T.Kernel(T.ceildiv(s, tile), h, b, threads=threads) as (bx, head, batch):
            x = T.alloc_shared((tile, d), dtype)
            T.copy(X[batch, bx * tile : (bx + 1) * tile, head, :], x)
            T.copy(x, Y[head, batch, bx * tile : (bx + 1) * tile, :])

    x = normal(rng, (b, s, h, d), dtype)
    return Experiment(
        copy_slices,
        (x,),
        (output((h, b, s, d), dtype),),
        lambda: (Expected(np.ascontiguousarray(x.transpose(2, 0, 1, 3))),),
    )


def copy_part(
    rng: np.random.Generator, start: int, extent: int, dtype: str = "float32"
) -> Experiment:
    """A part of a shared tile is overwritten, the rest must stay as it was."""
    size = 64

    @T.prim_func
    def copy_part(
        X: T.Tensor((size, size), dtype),
        P: T.Tensor((extent, size), dtype),
        Y: T.Tensor((size, size), dtype),
    ):
        with T.Kernel(1, threads=128) as _:
            x = T.alloc_shared((size, size), dtype)
            T.copy(X, x)
            T.copy(P, x[start : start + extent, 0:size])
            T.copy(x, Y)

    x, part = normal(rng, (size, size), dtype), normal(rng, (extent, size), dtype)

    def expected() -> tuple[Expected, ...]:
        value = x.copy()
        value[start : start + extent] = part
        return (Expected(value),)

    return Experiment(copy_part, (x, part), (output((size, size), dtype),), expected)


def copy_row(rng: np.random.Generator, rows: int, cols: int, dtype: str = "float32") -> Experiment:
    """One row at a time, as a point and a slice; and one column as a slice and a point."""
    tile = 64

    @T.prim_func
    def copy_row(
        X: T.Tensor((rows, cols), dtype),
        Y: T.Tensor((rows, cols), dtype),
        Z: T.Tensor((cols, rows), dtype),
    ):
        with T.Kernel(T.ceildiv(cols, tile), rows, threads=64) as (bx, row):
            x = T.alloc_fragment((tile,), dtype)
            T.copy(X[row, bx * tile : (bx + 1) * tile], x)
            T.copy(x, Y[row, bx * tile : (bx + 1) * tile])
            T.copy(x, Z[bx * tile : (bx + 1) * tile, row])

    x = normal(rng, (rows, cols), dtype)
    outputs = (output((rows, cols), dtype), output((cols, rows), dtype))
    return Experiment(
        copy_row, (x,), outputs, lambda: (Expected(x), Expected(np.ascontiguousarray(x.T)))
    )


def fill_tile(
    rng: np.random.Generator,
    rows: int,
    cols: int,
    value: float,
    dtype: str,
    scope: str = "fragment",
) -> Experiment:
    """A tile filled with a constant, a part of it cleared."""
    tile, half = 32, 16
    allocate = T.alloc_shared if scope == "shared" else T.alloc_fragment

    @T.prim_func
    def fill_tile(Y: T.Tensor((rows, cols), dtype)):
        with T.Kernel(T.ceildiv(cols, tile), T.ceildiv(rows, tile), threads=128) as (bx, by):
            x = allocate((tile, tile), dtype)
            T.fill(x, value)
            if scope == "shared":
                T.clear(x[0:half, 0:tile])
            else:
                for i, j in T.Parallel(tile, tile):
                    x[i, j] = T.if_then_else(i < half, T.cast(0, dtype), x[i, j])
            T.copy(x, Y[by * tile, bx * tile])

    def expected() -> tuple[Expected, ...]:
        full = output((rows, cols), dtype, value)
        full[np.arange(rows) % tile < half] = 0
        return (Expected(full),)

    return Experiment(fill_tile, (), (output((rows, cols), dtype),), expected)


def fill_places(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> Experiment:
    """Rows of global memory filled by blocks, and a part of each cleared after that."""

    @T.prim_func
    def fill_places(Y: T.Tensor((rows, cols), dtype)):
        with T.Kernel(rows, threads=64) as row:
            T.fill(Y[row, :], 3)
            T.clear(Y[row, cols // 3 : cols - 1])

    def expected() -> tuple[Expected, ...]:
        full = output((rows, cols), dtype, 3)
        full[:, cols // 3 : cols - 1] = 0
        return (Expected(full),)

    return Experiment(fill_places, (), (output((rows, cols), dtype),), expected)


def copy_in_groups(rng: np.random.Generator, tiles: int, threads: int = 64) -> Experiment:
    """The author's own asynchronous copies: two tiles under way, each added up when it is there."""
    size = 48

    @T.prim_func
    def copy_in_groups(X: T.Tensor((tiles, size), "float32"), Y: T.Tensor((size,), "float32")):
        with T.Kernel(1, threads=threads) as _:
            ring = T.alloc_shared((2, size), "float32")
            total = T.alloc_fragment((size,), "float32")
            T.clear(total)
            T.async_copy(X[0, :], ring[0, :])
            T.async_commit()
            for k in T.serial(tiles):
                if k + 1 < tiles:
                    T.async_copy(X[k + 1, :], ring[(k + 1) % 2, :])
                T.async_commit()
                T.async_wait(1)
                for i in T.Parallel(size):
                    total[i] = total[i] + ring[k % 2, i]
            T.copy(total, Y)

    x = rng.integers(-8, 9, (tiles, size)).astype(np.float32)
    return Experiment(
        copy_in_groups,
        (x,),
        (output((size,), "float32"),),
        lambda: (Expected(x.sum(axis=0, dtype=np.float64)),),
    )


def copy_exchange(
    rng: np.random.Generator, rows: int, cols: int, shift: int, threads: int = 128
) -> Experiment:
    """Lanes read from global memory what other lanes wrote over what they wrote themselves."""

    @T.prim_func
    def copy_exchange(X: T.Tensor((rows, cols), "float32"), Y: T.Tensor((rows, cols), "float32")):
        with T.Kernel(1, threads=threads) as _:
            tile = T.alloc_fragment((rows, cols), "float32")
            T.copy(X, tile)
            T.copy(tile, Y)
            T.copy(tile[shift:rows, :], Y[0 : rows - shift, :])
            for i, j in T.Parallel(rows, cols):
                Y[i, j] = Y[i, j] + tile[i, j]

    x = normal(rng, (rows, cols), "float32")
    moved = np.concatenate((x[shift:], x[rows - shift :]))
    return Experiment(
        copy_exchange, (x,), (output((rows, cols), "float32"),), lambda: (Expected(moved + x),)
    )


BUILDERS: tuple[Any, ...] = (
    copy_route, copy_slices, copy_part, copy_row, fill_tile, fill_places, copy_in_groups,
    copy_exchange,
)  # fmt: skip
