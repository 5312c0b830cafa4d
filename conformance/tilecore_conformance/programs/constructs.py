"""Constructs that other constructs stand for: nests, blocks, schedulers, directed rounding."""

# Annotations are values of the tile language here, so they are not postponed.

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore_conformance.experiment import Expected, Experiment, normal, output


def persistent_scheduler(
    rng: np.random.Generator, rows: int, cols: int, workers: int, swizzle: int, column_major: bool
) -> Experiment:
    """Every tile is visited once, by the worker whose turn it is, in the order of panels."""

    @T.prim_func
    def persistent_scheduler(Y: T.Tensor((rows, cols, 2), "int32")):
        with T.Kernel(workers, threads=32) as bx:
            tiles = T.PersistentTileScheduler(
                rows, cols, workers, swizzle_size=swizzle, column_major=column_major
            )
            tiles.init(bx)
            while tiles.valid():
                Y[tiles.m_idx, tiles.n_idx, 0] = tiles.linear_idx
                Y[tiles.m_idx, tiles.n_idx, 1] = tiles.current_iter
                tiles.next_tile()

    def expected() -> tuple[Expected, ...]:
        value = np.zeros((rows, cols, 2), np.int32)
        fast, slow = (rows, cols) if column_major else (cols, rows)
        number = 0
        for base in range(0, slow, swizzle):
            for step in range(fast):
                for inner in range(base, min(base + swizzle, slow)):
                    place = (step, inner) if column_major else (inner, step)
                    value[place] = number, number // workers
                    number += 1
        return (Expected(value),)

    return Experiment(persistent_scheduler, (), (output((rows, cols, 2), "int32"),), expected)


def nested_parallel(
    rng: np.random.Generator, rows: int, cols: int, kind: str, threads: int
) -> Experiment:
    """T.Parallel in T.Parallel: all of the outer body, or one statement of several."""

    @T.prim_func
    def joined(X: T.Tensor((rows, cols), "float32"), Y: T.Tensor((rows, cols), "float32")):
        with T.Kernel(1, threads=threads):
            for i in T.Parallel(rows):
                for j in T.Parallel(cols):
                    Y[i, j] = X[i, j] * 2

    @T.prim_func
    def rounds(X: T.Tensor((rows, cols), "float32"), Y: T.Tensor((rows, cols), "float32")):
        with T.Kernel(1, threads=threads):
            for i in T.Parallel(rows):
                total = T.alloc_var("float32")
                for j in T.Parallel(cols):
                    total += X[i, j]
                for j in T.Parallel(cols):
                    Y[i, j] = X[i, j] + total

    x = rng.integers(-8, 9, (rows, cols)).astype(np.float32)

    def expected() -> tuple[Expected, ...]:
        value = x * 2 if kind == "joined" else x + x.sum(axis=1, keepdims=True)
        return (Expected(value.astype(np.float64)),)

    function = {"joined": joined, "rounds": rounds}[kind]
    return Experiment(function, (x,), (output((rows, cols), "float32"),), expected)


def while_block(rng: np.random.Generator, blocks: int) -> Experiment:
    """T.While as a block: halvings of a number until it is odd."""

    @T.prim_func
    def while_block(X: T.Tensor((blocks,), "int32"), Y: T.Tensor((blocks,), "int32")):
        with T.Kernel(blocks, threads=32) as bx:
            value = T.alloc_var("int32", init=X[bx])
            count = T.alloc_var("int32")
            with T.While(value % 2 == 0):
                value = value // 2
                count += 1
            Y[bx] = count

    x = (rng.integers(0, 20, blocks) * 2 + 1).astype(np.int32) << rng.integers(0, 12, blocks)
    x = x.astype(np.int32)

    def expected() -> tuple[Expected, ...]:
        low = x & -x
        return (Expected(np.log2(low).astype(np.int32)),)

    return Experiment(while_block, (x,), (output((blocks,), "int32"),), expected)


def transpose_stack(
    rng: np.random.Generator, shape: list[int], dtype: str, threads: int
) -> Experiment:
    """T.transpose changes the last two axes of tiles of any rank."""
    turned = (*shape[:-2], shape[-1], shape[-2])

    @T.prim_func
    def transpose_stack(X: T.Tensor(tuple(shape), dtype), Y: T.Tensor(turned, dtype)):
        with T.Kernel(1, threads=threads):
            x = T.alloc_shared(tuple(shape), dtype)
            y = T.alloc_shared(turned, dtype)
            T.copy(X, x)
            T.transpose(x, y)
            T.copy(y, Y)

    x = normal(rng, tuple(shape), dtype)

    def expected() -> tuple[Expected, ...]:
        value = np.swapaxes(x, -1, -2)
        return (Expected(value.astype(np.float64) if value.dtype.kind == "f" else value),)

    return Experiment(transpose_stack, (x,), (output(turned, dtype),), expected)


_EXACT: dict[str, Callable[..., Fraction]] = {
    "ieee_add": lambda a, b, c: a + b,
    "ieee_sub": lambda a, b, c: a - b,
    "ieee_mul": lambda a, b, c: a * b,
    "ieee_fdiv": lambda a, b, c: a / b,
    "ieee_fmaf": lambda a, b, c: a * b + c,
}


def _directed(exact: Fraction, mode: str, kind: Any) -> Any:
    """`exact` as a float of `kind`, rounded in a direction."""
    nearest = kind(float(exact))
    sign = (exact > 0) - (exact < 0)
    up = mode == "ru" or (mode == "rz" and sign < 0)
    while up and Fraction(float(nearest)) < exact:
        nearest = np.nextafter(nearest, kind(np.inf))
    while not up and Fraction(float(nearest)) > exact:
        nearest = np.nextafter(nearest, kind(-np.inf))
    below = np.nextafter(nearest, kind(-np.inf)) if up else np.nextafter(nearest, kind(np.inf))
    while up and Fraction(float(below)) >= exact:
        nearest, below = below, np.nextafter(below, kind(-np.inf))
    while not up and Fraction(float(below)) <= exact:
        nearest, below = below, np.nextafter(below, kind(np.inf))
    return nearest


def directed_rounding(
    rng: np.random.Generator, op: str, mode: str, dtype: str = "float32"
) -> Experiment:
    """T.ieee_* rounds as it is told, to the last bit."""
    size = 96
    function = getattr(T, op)
    fused = op == "ieee_fmaf"

    @T.prim_func
    def directed_rounding(X: T.Tensor((3, size), dtype), Y: T.Tensor((size,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(size):
                if fused:
                    Y[i] = function(X[0, i], X[1, i], X[2, i], mode)
                else:
                    Y[i] = function(X[0, i], X[1, i], mode)

    kind = np.dtype(dtype).type
    scale = 10.0 ** rng.integers(-3, 4, (3, size))
    x = (rng.standard_normal((3, size)) * scale).astype(kind)

    def expected() -> tuple[Expected, ...]:
        columns = [tuple(Fraction(float(value)) for value in column) for column in x.T]
        value = [_directed(_EXACT[op](*column), mode, kind) for column in columns]
        return (Expected(np.array(value, np.float64)),)

    return Experiment(directed_rounding, (x,), (output((size,), dtype),), expected)


def turned_reducer(rng: np.random.Generator, op: str, shape: list[int], threads: int) -> Experiment:
    """A reducer whose axes are not in the loop's order."""
    rows, cols, depth = shape
    combine = {
        "sum": np.add, "max": np.maximum, "bitand": np.bitwise_and, "bitor": np.bitwise_or,
        "bitxor": np.bitwise_xor,
    }[op]  # fmt: skip

    @T.prim_func
    def turned_reducer(X: T.Tensor(tuple(shape), "int32"), Y: T.Tensor((cols, rows), "int32")):
        with T.Kernel(1, threads=threads):
            x = T.alloc_fragment(tuple(shape), "int32")
            y = T.alloc_reducer((cols, rows), "int32", op=op)
            T.copy(X, x)
            T.reducer_init(y)
            for i, j, k in T.Parallel(rows, cols, depth):
                T.reducer_update(y[j, i], x[i, j, k])
            T.finalize_reducer(y, Y)

    x = rng.integers(-100, 100, shape).astype(np.int32)

    def expected() -> tuple[Expected, ...]:
        return (Expected(combine.reduce(x, axis=2, dtype=np.int32).T),)

    return Experiment(turned_reducer, (x,), (output((cols, rows), "int32"),), expected)


def packed_previous(rng: np.random.Generator, width: int, dtype: str, threads: int) -> Experiment:
    """Packed additions that give the old values, one lane after the other."""
    size = 8

    @T.prim_func
    def packed_previous(
        X: T.Tensor((size, width), dtype),
        Y: T.Tensor((width,), dtype),
        Z: T.Tensor((size, width), dtype),
    ):
        with T.Kernel(1, threads=threads):
            for k in T.serial(size):
                if width == 2:
                    Z[k, 0:2] = T.atomic_addx2(Y[0], X[k, 0], return_prev=True)
                else:
                    Z[k, 0:4] = T.atomic_addx4(Y[0], X[k, 0], return_prev=True)

    x = rng.integers(-4, 5, (size, width)).astype(dtype)

    def expected() -> tuple[Expected, ...]:
        after = np.cumsum(x.astype(np.float64), axis=0) + 1
        before = np.concatenate([np.ones((1, width)), after[:-1]])
        return Expected(after[-1]), Expected(before)

    start = output((width,), dtype, 1)
    return Experiment(packed_previous, (x,), (start, output((size, width), dtype)), expected)


def rounded_cast(
    rng: np.random.Generator, target: str, mode: str, sat: bool | None = None
) -> Experiment:
    """T.cast in a rounding direction: the neighbour on that side, or the value itself."""
    size = 192

    @T.prim_func
    def rounded_cast(X: T.Tensor((size,), "float32"), Y: T.Tensor((size,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(size):
                Y[i] = T.cast(T.cast(X[i], target, round=mode, sat=sat), "float32")

    kind = numpy_dtype(dtype_of(target))
    bits = np.arange(1 << (8 * kind.itemsize), dtype=np.uint32).astype(f"u{kind.itemsize}")
    table = bits.view(kind).astype(np.float64)
    table = np.unique(table[np.isfinite(table)])
    scale = 10.0 ** rng.integers(-6, 3, size)
    x = (rng.standard_normal(size) * scale).astype(np.float32)
    x[:3] = 0.0, -0.0, float(table[-1])
    x = np.clip(x, float(table[0]), float(table[-1]))

    def expected() -> tuple[Expected, ...]:
        wide = x.astype(np.float64)
        low = table[np.searchsorted(table, wide, "right") - 1]
        high = table[np.searchsorted(table, wide, "left")]
        value = {"rm": low, "rp": high, "rz": np.where(wide > 0, low, high)}[mode]
        return (Expected(np.where(value == 0, np.copysign(0.0, wide), value)),)

    return Experiment(rounded_cast, (x,), (output((size,), "float32"),), expected)


def one_block(rng: np.random.Generator, size: int) -> Experiment:
    """A program without a launch is one block."""

    @T.prim_func
    def one_block(X: T.Tensor((size,), "float32"), Y: T.Tensor((size,), "float32")):
        for i in T.Parallel(size):
            Y[i] = X[i] * 2
        for i in range(size // 2):
            Y[i] = Y[i] + Y[size - 1 - i]

    x = rng.integers(-9, 9, size).astype(np.float32)

    def expected() -> tuple[Expected, ...]:
        value = x.astype(np.float64) * 2
        for i in range(size // 2):
            value[i] += value[size - 1 - i]
        return (Expected(value),)

    return Experiment(one_block, (x,), (output((size,), "float32"),), expected)


def private_product(
    rng: np.random.Generator, shape: list[int], turned: list[bool], threads: int
) -> Experiment:
    """T.gemm and T.atomic_max on local arrays."""
    m, n, k = shape
    a_shape = (k, m) if turned[0] else (m, k)
    b_shape = (n, k) if turned[1] else (k, n)

    @T.prim_func
    def private_product(
        A: T.Tensor(a_shape, "float32"),
        B: T.Tensor(b_shape, "float32"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            a = T.alloc_local(a_shape, "float32")
            b = T.alloc_local((b_shape[0] + 1, b_shape[1]), "float32")
            c = T.alloc_local((m, n), "float32")
            T.copy(A, a)
            T.copy(B[0, 0], b)  # one row too many: it is zero
            T.clear(c)
            T.gemm(a, b[0 : b_shape[0], :], c, transpose_A=turned[0], transpose_B=turned[1])
            T.atomic_max(c, 1)
            T.atomic_add(c[0, 0], b[b_shape[0], 0])
            T.copy(c, C)

    a, b = (rng.integers(-4, 5, one).astype(np.float32) for one in (a_shape, b_shape))

    def expected() -> tuple[Expected, ...]:
        left = a.astype(np.float64).T if turned[0] else a.astype(np.float64)
        right = b.astype(np.float64).T if turned[1] else b.astype(np.float64)
        return (Expected(np.maximum(left @ right, 1)),)

    return Experiment(private_product, (a, b), (output((m, n), "float32"),), expected)


BUILDERS = (
    persistent_scheduler, nested_parallel, while_block, transpose_stack, directed_rounding,
    turned_reducer, packed_previous, rounded_cast, one_block, private_product,
)  # fmt: skip
