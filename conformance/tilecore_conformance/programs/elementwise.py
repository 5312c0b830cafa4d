"""Elementwise programs: one operation over tensors of one to three axes."""

# Annotations are values of the tile language here, so they are not postponed.

import operator
from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.ir.dtypes import dtype_of
from tilecore_conformance import bounds
from tilecore_conformance.experiment import Expected, Experiment, normal, output


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def _erf(x: np.ndarray) -> np.ndarray:
    from math import erf

    return np.vectorize(erf, otypes=[np.float64])(x)


UNARY = {
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: 10.0**x,
    "log": np.log, "log2": np.log2, "log10": np.log10, "rcp": lambda x: 1.0 / x,
    "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: 1.0 / np.sqrt(x), "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "sigmoid": _sigmoid, "erf": _erf,
    "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc,
}  # fmt: skip
"""Functions of one float: name in the language -> float64 oracle."""

POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "rcp")
EXACT = ("abs", "floor", "ceil", "round", "trunc")

BINARY = {
    "add": (operator.add, np.add),
    "sub": (operator.sub, np.subtract),
    "mul": (operator.mul, np.multiply),
    "div": (operator.truediv, np.divide),
    "floordiv": (operator.floordiv, np.floor_divide),
    "floormod": (operator.mod, np.mod),
    "bitand": (operator.and_, np.bitwise_and),
    "bitor": (operator.or_, np.bitwise_or),
    "bitxor": (operator.xor, np.bitwise_xor),
    "shl": (operator.lshift, np.left_shift),
    "shr": (operator.rshift, np.right_shift),
    "min": (lambda a, b: T.min(a, b), np.fmin),
    "max": (lambda a, b: T.max(a, b), np.fmax),
    "pow": (lambda a, b: T.pow(a, b), np.power),
    "atan2": (lambda a, b: T.atan2(a, b), np.arctan2),
    "fmod": (lambda a, b: T.fmod(a, b), np.fmod),
}
"""Operations of two operands: name -> (in the language, oracle)."""

COMPARISONS = {
    "eq": (operator.eq, np.equal), "ne": (operator.ne, np.not_equal),
    "lt": (operator.lt, np.less), "le": (operator.le, np.less_equal),
    "gt": (operator.gt, np.greater), "ge": (operator.ge, np.greater_equal),
}  # fmt: skip


def unary(
    rng: np.random.Generator, op: str, dtype: str, size: int, tile: int = 128, threads: int = 128
) -> Experiment:
    """``Y = op(X)`` on floats."""
    function = getattr(T, op)

    @T.prim_func
    def unary(X: T.Tensor((size,), dtype), Y: T.Tensor((size,), dtype)):
        with T.Kernel(T.ceildiv(size, tile), threads=threads) as bx:
            x = T.alloc_fragment((tile,), dtype)
            T.copy(X[bx * tile], x)
            for i in T.Parallel(tile):
                x[i] = function(x[i])
            T.copy(x, Y[bx * tile])

    x = normal(rng, (size,), dtype)
    if op in POSITIVE:
        x = np.abs(x) + np.asarray(0.01, x.dtype)

    def expected() -> tuple[Expected, ...]:
        value = UNARY[op](x.astype(np.float64))
        if op in EXACT:
            return (Expected(value),)
        return (Expected(value, bounds.function(value, dtype)),)

    return Experiment(unary, (x,), (output((size,), dtype),), expected)


def _operands(
    rng: np.random.Generator, op: str, dtype: str, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    a, b = normal(rng, shape, dtype), normal(rng, shape, dtype)
    if op in ("shl", "shr"):
        b = rng.integers(0, 7, shape).astype(a.dtype)
    elif op in ("floordiv", "floormod", "div", "fmod"):
        b = np.where(b == 0, np.asarray(3, b.dtype), b)
    elif op == "pow":
        a = np.abs(a)
    return a, b


def binary(
    rng: np.random.Generator, op: str, dtype: str, rows: int, cols: int, threads: int = 128
) -> Experiment:
    """``Z = X op Y`` in the operands' own dtype; integers wrap."""
    function, oracle = BINARY[op]
    tile = 32

    @T.prim_func
    def binary(
        X: T.Tensor((rows, cols), dtype),
        Y: T.Tensor((rows, cols), dtype),
        Z: T.Tensor((rows, cols), dtype),
    ):
        with T.Kernel(T.ceildiv(cols, tile), T.ceildiv(rows, tile), threads=threads) as (bx, by):
            x = T.alloc_fragment((tile, tile), dtype)
            y = T.alloc_fragment((tile, tile), dtype)
            T.fill(y, 1)  # what lies behind the edge must not divide by zero
            T.copy(X[by * tile, bx * tile], x)
            for i, j in T.Parallel(tile, tile):
                if by * tile + i < rows and bx * tile + j < cols:
                    y[i, j] = Y[by * tile + i, bx * tile + j]
            for i, j in T.Parallel(tile, tile):
                x[i, j] = function(x[i, j], y[i, j])
            T.copy(x, Z[by * tile, bx * tile])

    x, y = _operands(rng, op, dtype, (rows, cols))

    def expected() -> tuple[Expected, ...]:
        if not dtype_of(dtype).is_float:
            return (Expected(oracle(x, y).astype(x.dtype)),)
        value = oracle(x.astype(np.float64), y.astype(np.float64))
        if op in ("min", "max"):
            return (Expected(value, bounds.nothing(value)),)
        inexact = bounds.function if op in ("pow", "atan2", "fmod") else bounds.rounding
        return (Expected(value, inexact(value, dtype)),)

    return Experiment(binary, (x, y), (output((rows, cols), dtype),), expected)


def _patterns(x: np.ndarray) -> list[int]:
    """The bits of each element as a number that is not negative."""
    return [int(value) & ((1 << 8 * x.dtype.itemsize) - 1) for value in x]


def _leading_zeros(x: np.ndarray) -> np.ndarray:
    return 8 * x.dtype.itemsize - np.array([bits.bit_length() for bits in _patterns(x)])


BITS = {
    "popcount": (T.popcount, lambda x: np.array([bits.bit_count() for bits in _patterns(x)])),
    "clz": (T.clz, _leading_zeros),
    "invert": (operator.invert, np.invert),
    "neg": (operator.neg, np.negative),
    "abs": (T.abs, np.abs),
}
"""Functions of one integer: name -> (in the language, oracle)."""


def integer(rng: np.random.Generator, op: str, dtype: str, size: int) -> Experiment:
    """``Y = op(X)`` on integers, in their own width."""
    function, oracle = BITS[op]

    @T.prim_func
    def integer(X: T.Tensor((size,), dtype), Y: T.Tensor((size,), dtype)):
        with T.Kernel(T.ceildiv(size, 64), threads=64) as bx:
            for i in T.Parallel(64):
                if bx * 64 + i < size:
                    Y[bx * 64 + i] = function(X[bx * 64 + i])

    kind = output((0,), dtype).dtype
    limits = np.iinfo(kind)
    x = rng.integers(limits.min, limits.max, size, kind, endpoint=True)
    x[:4] = (limits.min, limits.max, 0, 1)
    return Experiment(
        integer, (x,), (output((size,), dtype),), lambda: (Expected(oracle(x).astype(kind)),)
    )


def comparison(rng: np.random.Generator, op: str, dtype: str, size: int) -> Experiment:
    """``Z = X if X op Y else Y``, with the comparison itself as a second output."""
    function, oracle = COMPARISONS[op]
    tile = 64

    @T.prim_func
    def comparison(
        X: T.Tensor((size,), dtype),
        Y: T.Tensor((size,), dtype),
        Z: T.Tensor((size,), dtype),
        Flag: T.Tensor((size,), "bool"),
    ):
        with T.Kernel(T.ceildiv(size, tile), threads=64) as bx:
            for i in T.Parallel(tile):
                if bx * tile + i < size:
                    holds = function(X[bx * tile + i], Y[bx * tile + i])
                    Z[bx * tile + i] = T.if_then_else(holds, X[bx * tile + i], Y[bx * tile + i])
                    Flag[bx * tile + i] = holds

    x, y = normal(rng, (size,), dtype), normal(rng, (size,), dtype)
    y = np.where(rng.integers(0, 3, size) == 0, x, y)  # equal pairs are what tells lt from le

    def expected() -> tuple[Expected, ...]:
        holds = oracle(x, y)
        return Expected(np.where(holds, x, y)), Expected(holds)

    outputs = (output((size,), dtype), output((size,), "bool", 0))
    return Experiment(comparison, (x, y), outputs, expected)


def logic(rng: np.random.Generator, op: str, size: int) -> Experiment:
    """Two conditions joined, or one turned: as a branch, and as a value."""

    def joined(x: Any, y: Any) -> Any:
        return T.Not(x) if op == "not" else x & y if op == "and" else x | y

    @T.prim_func
    def logic(
        X: T.Tensor((size,), "bool"), Y: T.Tensor((size,), "bool"), Z: T.Tensor((size, 2), "int32")
    ):
        with T.Kernel(T.ceildiv(size, 64), threads=64) as bx:
            for i in T.Parallel(64):
                if bx * 64 + i < size:
                    x, y = X[bx * 64 + i], Y[bx * 64 + i]
                    Z[bx * 64 + i, 0] = 0
                    if joined(x, y):
                        Z[bx * 64 + i, 0] = 1
                    Z[bx * 64 + i, 1] = T.cast(joined(x, y), "int32")

    x, y = normal(rng, (size,), "bool"), normal(rng, (size,), "bool")

    def expected() -> tuple[Expected, ...]:
        value = {"and": x & y, "or": x | y, "not": ~x}[op]
        return (Expected(np.stack([value] * 2, axis=1).astype(np.int32)),)

    return Experiment(logic, (x, y), (output((size, 2), "int32"),), expected)


def broadcast(
    rng: np.random.Generator, shape: list[int], dtype: str, threads: int = 128
) -> Experiment:
    """Three axes, with a vector along each: ``Y = (X + a) * b - c``."""
    d0, d1, d2 = shape
    t0, t1, t2 = 2, 8, 32

    @T.prim_func
    def broadcast(
        X: T.Tensor((d0, d1, d2), dtype),
        A: T.Tensor((d0,), dtype),
        B: T.Tensor((d1,), dtype),
        C: T.Tensor((d2,), dtype),
        Y: T.Tensor((d0, d1, d2), dtype),
    ):
        with T.Kernel(T.ceildiv(d2, t2), T.ceildiv(d1, t1), T.ceildiv(d0, t0), threads=threads) as (
            bx,
            by,
            bz,
        ):
            x = T.alloc_fragment((t0, t1, t2), dtype)
            a = T.alloc_fragment((t0,), dtype)
            b = T.alloc_fragment((t1,), dtype)
            c = T.alloc_fragment((t2,), dtype)
            T.copy(X[bz * t0, by * t1, bx * t2], x)
            T.copy(A[bz * t0], a)
            T.copy(B[by * t1], b)
            T.copy(C[bx * t2], c)
            for i, j, k in T.Parallel(t0, t1, t2):
                x[i, j, k] = (x[i, j, k] + a[i]) * b[j] - c[k]
            T.copy(x, Y[bz * t0, by * t1, bx * t2])

    arrays = [normal(rng, extents, dtype) for extents in ((d0, d1, d2), (d0,), (d1,), (d2,))]

    def expected() -> tuple[Expected, ...]:
        x, a, b, c = (array.astype(np.float64) for array in arrays)
        total, factor = x + a[:, None, None], b[None, :, None]
        magnitude = (np.abs(x) + np.abs(a)[:, None, None]) * np.abs(factor) + np.abs(c)
        return (Expected(total * factor - c, bounds.rounding(magnitude, dtype, steps=3)),)

    return Experiment(broadcast, tuple(arrays), (output((d0, d1, d2), dtype),), expected)


def scalars(rng: np.random.Generator, size: int, dtype: str = "float32") -> Experiment:
    """Scalar parameters of the kernel: ``Y[i] = X[i] * factor + (i < count)``."""
    tile = 64

    @T.prim_func
    def scalars(
        X: T.Tensor((size,), dtype), factor: T.float32, count: T.int32, Y: T.Tensor((size,), dtype)
    ):
        with T.Kernel(T.ceildiv(size, tile), threads=64) as bx:
            for i in T.Parallel(tile):
                if bx * tile + i < size:
                    bonus = T.if_then_else(bx * tile + i < count, 1.0, 0.0)
                    Y[bx * tile + i] = X[bx * tile + i] * factor + bonus

    x, factor, count = normal(rng, (size,), dtype), 1.5, size // 3

    def expected() -> tuple[Expected, ...]:
        value = x.astype(np.float64) * factor + (np.arange(size) < count)
        return (Expected(value, bounds.rounding(np.abs(value) + 1.0, dtype, steps=2)),)

    return Experiment(scalars, (x, factor, count), (output((size,), dtype),), expected)


BUILDERS: tuple[Any, ...] = (unary, binary, integer, comparison, logic, broadcast, scalars)
