"""Conversions between dtypes, and reading bits as another dtype."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore_conformance.experiment import Expected, Experiment, output, special


def converted(x: np.ndarray, dtype: str) -> np.ndarray:
    """`x` as another dtype by the language's rules, which NumPy's casts do not all follow.

    Floats round to nearest even and overflow to inf, or saturate where there is none; floats to
    integers truncate and saturate, nan gives 0; integers wrap; bool is ``!= 0``.
    """
    target = dtype_of(dtype)
    host = numpy_dtype(target)
    with np.errstate(over="ignore", invalid="ignore"):
        if target.is_bool:
            return x.astype(np.float64) != 0
        if target.is_float:
            return _to_float(x, host, dtype)
        if x.dtype.kind in "biu":
            return x.astype(host)
        limits = np.iinfo(host)
        wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0)
        result = np.where(wide <= float(limits.min), limits.min, 0).astype(host)
        inside = (wide > float(limits.min)) & (wide < float(limits.max))
        result[inside] = wide[inside].astype(host)
        result[wide >= float(limits.max)] = limits.max
        return result


def _to_float(x: np.ndarray, host: np.dtype[Any], dtype: str) -> np.ndarray:
    result = x.astype(np.float64 if x.dtype.kind in "iu" else x.dtype).astype(host)
    if dtype != "float8_e4m3fn":
        return result
    # No infinity: what is out of range, infinities included, becomes the largest value.
    wide = x.astype(np.float64)
    largest = np.asarray(448.0)
    over = np.abs(wide) > largest
    return np.where(over, np.copysign(largest, wide), result.astype(np.float64)).astype(host)


def cast(
    rng: np.random.Generator, source: str, target: str, size: int = 257, threads: int = 128
) -> Experiment:
    """``Y = cast(X)`` by T.cast, and by a copy between tiles of different dtypes."""
    tile = 64

    @T.prim_func
    def cast(
        X: T.Tensor((size,), source), Y: T.Tensor((size,), target), Z: T.Tensor((size,), target)
    ):
        with T.Kernel(T.ceildiv(size, tile), threads=threads) as bx:
            x = T.alloc_fragment((tile,), source)
            y = T.alloc_fragment((tile,), target)
            T.copy(X[bx * tile], x)
            for i in T.Parallel(tile):
                y[i] = T.cast(x[i], target)
            T.copy(y, Y[bx * tile])
            T.copy(x, Z[bx * tile])

    kind = dtype_of(source)
    if kind.is_float:
        x = special(rng, (size,), source)
    elif kind.is_bool:
        x = rng.integers(0, 2, size).astype(bool)
    else:
        limits = np.iinfo(numpy_dtype(kind))
        x = rng.integers(limits.min, limits.max, size, endpoint=True, dtype=limits.dtype)
        x[:4] = (limits.min, limits.max, 0, 1)
    outputs = (output((size,), target), output((size,), target))

    def expected() -> tuple[Expected, ...]:
        value = converted(x, target)
        return Expected(value), Expected(value)

    return Experiment(cast, (x,), outputs, expected)


def bitcast(rng: np.random.Generator, source: str, target: str, size: int = 129) -> Experiment:
    """``Y`` holds the bits of X."""

    @T.prim_func
    def bitcast(X: T.Tensor((size,), source), Y: T.Tensor((size,), target)):
        with T.Kernel(T.ceildiv(size, 64), threads=64) as bx:
            for i in T.Parallel(64):
                if bx * 64 + i < size:
                    Y[bx * 64 + i] = T.reinterpret(X[bx * 64 + i], target)

    x = special(rng, (size,), source) if dtype_of(source).is_float else None
    if x is None:
        host = numpy_dtype(dtype_of(source))
        # Not the patterns of signalling nans, whose quiet bit a float move may set.
        x = special(rng, (size,), target).view(host)
    return Experiment(
        bitcast,
        (x,),
        (output((size,), target),),
        lambda: (Expected(x.view(numpy_dtype(dtype_of(target)))),),
    )


BUILDERS: tuple[Any, ...] = (cast, bitcast)
