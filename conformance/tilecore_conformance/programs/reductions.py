"""Reductions and scans of fragments and shared tiles."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.ir.dtypes import dtype_of
from tilecore_conformance import bounds
from tilecore_conformance.experiment import Expected, Experiment, normal, output

ORACLES = {
    "sum": lambda x, axis: x.sum(axis=axis),
    "max": lambda x, axis: np.fmax.reduce(x, axis=axis),
    "min": lambda x, axis: np.fmin.reduce(x, axis=axis),
    "abssum": lambda x, axis: np.abs(x).sum(axis=axis),
    "absmax": lambda x, axis: np.fmax.reduce(np.abs(x), axis=axis),
    "bitand": lambda x, axis: np.bitwise_and.reduce(x, axis=axis),
    "bitor": lambda x, axis: np.bitwise_or.reduce(x, axis=axis),
    "bitxor": lambda x, axis: np.bitwise_xor.reduce(x, axis=axis),
}


def _expected(op: str, x: np.ndarray, axis: int, dtype: str, start: np.ndarray) -> Expected:
    if not dtype_of(dtype).is_float:
        value = ORACLES[op](np.concatenate([start, x], axis=axis), axis)
        return Expected(value.astype(x.dtype))
    wide = np.concatenate([start, x], axis=axis).astype(np.float64)
    value = ORACLES[op](wide, axis)
    if "sum" not in op:
        return Expected(value, bounds.nothing(value))
    return Expected(value, bounds.sum(np.abs(wide).sum(axis=axis), dtype, wide.shape[axis]))


def reduce_tile(
    rng: np.random.Generator,
    op: str,
    shape: list[int],
    axis: int,
    dtype: str = "float32",
    scope: str = "fragment",
    clear: bool = True,
    threads: int = 128,
) -> Experiment:
    """One tile reduced along one axis; without `clear` into a result that holds something."""
    rows, cols = shape
    kept = rows if axis == 1 else cols
    allocate = T.alloc_shared if scope == "shared" else T.alloc_fragment
    reduction = getattr(T, f"reduce_{op}")
    start_value = {"bitand": -1 if dtype_of(dtype).is_signed else 255}.get(op, 2)

    @T.prim_func
    def reduce_tile(X: T.Tensor((rows, cols), dtype), Y: T.Tensor((kept,), dtype)):
        with T.Kernel(1, threads=threads) as _:
            x = allocate((rows, cols), dtype)
            y = T.alloc_fragment((kept,), dtype)
            T.copy(X, x)
            T.fill(y, start_value)
            if op == "abssum":
                reduction(x, y, dim=axis)
            else:
                reduction(x, y, dim=axis, clear=clear)
            T.copy(y, Y)

    x = normal(rng, (rows, cols), dtype)
    start_shape = (rows, 1) if axis == 1 else (1, cols)
    start = np.full(start_shape, start_value).astype(x.dtype)
    if clear:
        start = start[:, :0] if axis == 1 else start[:0]
    return Experiment(
        reduce_tile,
        (x,),
        (output((kept,), dtype),),
        lambda: (_expected(op, x, axis, dtype, start),),
    )


def reduce_middle(
    rng: np.random.Generator, shape: list[int], axis: int, keep: bool, threads: int = 128
) -> Experiment:
    """Three axes; the reduced one dropped or kept with extent 1."""
    extents = tuple(shape)
    dropped = extents[:axis] + extents[axis + 1 :]
    kept = (*extents[:axis], 1, *extents[axis + 1 :])
    target = kept if keep else dropped

    @T.prim_func
    def reduce_middle(X: T.Tensor(extents, "float32"), Y: T.Tensor(target, "float32")):
        with T.Kernel(1, threads=threads) as _:
            x = T.alloc_fragment(extents, "float32")
            y = T.alloc_fragment(target, "float32")
            T.copy(X, x)
            T.reduce_sum(x, y, dim=axis)
            T.copy(y, Y)

    x = normal(rng, extents, "float32")

    def expected() -> tuple[Expected, ...]:
        wide = x.astype(np.float64)
        value = wide.sum(axis=axis).reshape(target)
        size = np.abs(wide).sum(axis=axis).reshape(target)
        return (Expected(value, bounds.sum(size, "float32", extents[axis])),)

    return Experiment(reduce_middle, (x,), (output(target, "float32"),), expected)


def scan_tile(
    rng: np.random.Generator,
    op: str,
    shape: list[int],
    axis: int,
    reverse: bool = False,
    scope: str = "shared",
    dtype: str = "float32",
    threads: int = 128,
) -> Experiment:
    """Inclusive prefix sums or maxima of one tile."""
    rows, cols = shape
    allocate = T.alloc_shared if scope == "shared" else T.alloc_fragment
    scan = T.cumsum if op == "sum" else T.cummax

    @T.prim_func
    def scan_tile(X: T.Tensor((rows, cols), dtype), Y: T.Tensor((rows, cols), dtype)):
        with T.Kernel(1, threads=threads) as _:
            x = allocate((rows, cols), dtype)
            y = allocate((rows, cols), dtype)
            T.copy(X, x)
            if op == "sum":
                scan(x, y, dim=axis, reverse=reverse)
            else:
                scan(x, y, dim=axis)
            T.copy(y, Y)

    x = normal(rng, (rows, cols), dtype)

    def expected() -> tuple[Expected, ...]:
        wide = x.astype(np.float64) if dtype_of(dtype).is_float else x
        ordered = np.flip(wide, axis) if reverse else wide
        if op == "max":
            return (Expected(np.fmax.accumulate(ordered, axis=axis)),)
        value, size = np.cumsum(ordered, axis=axis), np.cumsum(np.abs(ordered), axis=axis)
        if reverse:
            value, size = np.flip(value, axis), np.flip(size, axis)
        if not dtype_of(dtype).is_float:
            return (Expected(value.astype(x.dtype)),)
        return (Expected(value, bounds.sum(size, dtype, wide.shape[axis])),)

    return Experiment(scan_tile, (x,), (output((rows, cols), dtype),), expected)


def truths(
    rng: np.random.Generator, op: str, dtype: str, axis: int, scope: str, threads: int = 64
) -> Experiment:
    """Whether one or all of a row's (column's) elements are not zero, and of the whole tile's."""
    shape = (13, 21)
    kept = shape[1 - axis]
    allocate = T.alloc_shared if scope == "shared" else T.alloc_fragment
    of_all = T.any_of if op == "any" else T.all_of

    @T.prim_func
    def truths(X: T.Tensor(shape, dtype), Y: T.Tensor((kept,), "bool"), Z: T.Tensor((2,), "int32")):
        with T.Kernel(1, threads=threads) as _:
            x = allocate(shape, dtype)
            y = T.alloc_fragment((kept,), "bool")
            T.copy(X, x)
            T.reduce(x, y, op, dim=axis)
            T.copy(y, Y)
            Z[0] = 0
            Z[1] = 0
            if of_all(x):
                Z[0] = 1
            if of_all(x[2:4, 3:9]):
                Z[1] = 1

    x = (rng.integers(0, 3, shape) == 0).astype(output((0,), dtype).dtype)
    x[1], x[:, 1], x[0], x[:, 0] = 1, 1, 0, 0
    if op == "all":
        x[2:4, 3:9] = 1
    else:
        x[2:4, 3:9] = 0

    def expected() -> tuple[Expected, ...]:
        whole = getattr(np, op)
        flags = np.array([whole(x != 0), whole(x[2:4, 3:9] != 0)], np.int32)
        return Expected(whole(x != 0, axis=axis)), Expected(flags)

    outputs = (output((kept,), "bool", 0), output((2,), "int32"))
    return Experiment(truths, (x,), outputs, expected)


BUILDERS: tuple[Any, ...] = (reduce_tile, reduce_middle, scan_tile, truths)
