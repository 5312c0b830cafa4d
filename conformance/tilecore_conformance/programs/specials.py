"""Special values: nan, infinities, zeros of both signs, subnormals, empty sums, masked rows."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np

import tilecore.language as T
from tilecore_conformance import bounds
from tilecore_conformance.experiment import Expected, Experiment, normal, output, special
from tilecore_conformance.programs.elementwise import BINARY, EXACT, UNARY
from tilecore_conformance.programs.families import experiment_of
from tilecore_kernels import FAMILIES
from tilecore_kernels.attention_problem import AttentionConfig, AttentionProblem
from tilecore_kernels.softmax import SoftmaxProblem
from tilecore_kernels.tiles import RowConfig


def special_unary(rng: np.random.Generator, op: str, dtype: str = "float32") -> Experiment:
    """Functions at special values: limits, poles, and nan where there is no answer."""
    size, tile = 193, 64
    function = getattr(T, op)

    @T.prim_func
    def special_unary(X: T.Tensor((size,), dtype), Y: T.Tensor((size,), dtype)):
        with T.Kernel(T.ceildiv(size, tile), threads=64) as bx:
            for i in T.Parallel(tile):
                if bx * tile + i < size:
                    Y[bx * tile + i] = function(X[bx * tile + i])

    x = special(rng, (size,), dtype)
    if op in ("sin", "cos", "tan"):  # argument reduction of large values is not asked for
        x = np.where(np.abs(x) > 100, np.asarray(0.5, x.dtype), x)

    def expected() -> tuple[Expected, ...]:
        with np.errstate(all="ignore"):
            value = UNARY[op](x.astype(np.float64))
            stored = value.astype(x.dtype).astype(np.float64)
        value = np.where(np.isinf(stored), stored, value)
        if op in EXACT:
            return (Expected(value),)
        return (Expected(value, bounds.function(value, dtype)),)

    return Experiment(special_unary, (x,), (output((size,), dtype),), expected)


def special_binary(rng: np.random.Generator, op: str, dtype: str = "float32") -> Experiment:
    """All pairs of special values: signs of zeros, inf - inf, nan on either side of max."""
    function, oracle = BINARY[op]
    values = special(np.random.default_rng(1), (40,), dtype)
    x, y = np.repeat(values, values.size), np.tile(values, values.size)
    size, tile = x.size, 64

    @T.prim_func
    def special_binary(
        X: T.Tensor((size,), dtype), Y: T.Tensor((size,), dtype), Z: T.Tensor((size,), dtype)
    ):
        with T.Kernel(T.ceildiv(size, tile), threads=64) as bx:
            for i in T.Parallel(tile):
                if bx * tile + i < size:
                    Z[bx * tile + i] = function(X[bx * tile + i], Y[bx * tile + i])

    def expected() -> tuple[Expected, ...]:
        with np.errstate(all="ignore"):
            value = oracle(x.astype(np.float64), y.astype(np.float64))
            stored = value.astype(x.dtype).astype(np.float64)
        value = np.where(np.isinf(stored), stored, value)
        if op in ("min", "max"):  # of zeros of both signs either may be returned
            return (Expected(value, bounds.nothing(value)),)
        return (Expected(value, bounds.rounding(value, dtype)),)

    return Experiment(special_binary, (x, y), (output((size,), dtype),), expected)


def predicates(rng: np.random.Generator, dtype: str = "float32") -> Experiment:
    """isnan, isinf and isfinite."""
    size = 193

    @T.prim_func
    def predicates(X: T.Tensor((size,), dtype), Y: T.Tensor((3, size), "int32")):
        with T.Kernel(T.ceildiv(size, 64), threads=64) as bx:
            for i in T.Parallel(64):
                if bx * 64 + i < size:
                    Y[0, bx * 64 + i] = T.if_then_else(T.isnan(X[bx * 64 + i]), 1, 0)
                    Y[1, bx * 64 + i] = T.if_then_else(T.isinf(X[bx * 64 + i]), 1, 0)
                    Y[2, bx * 64 + i] = T.if_then_else(T.isfinite(X[bx * 64 + i]), 1, 0)

    x = special(rng, (size,), dtype)

    def expected() -> tuple[Expected, ...]:
        wide = x.astype(np.float64)
        rows = [np.isnan(wide), np.isinf(wide), np.isfinite(wide)]
        return (Expected(np.stack(rows).astype(np.int32)),)

    return Experiment(predicates, (x,), (output((3, size), "int32"),), expected)


def nan_reduce(rng: np.random.Generator, op: str, nan_propagate: bool = False) -> Experiment:
    """Maxima and minima of rows with some nans, only nans, and infinities."""
    rows, cols = 16, 33
    reduction = getattr(T, f"reduce_{op}")

    @T.prim_func
    def nan_reduce(X: T.Tensor((rows, cols), "float32"), Y: T.Tensor((rows,), "float32")):
        with T.Kernel(1, threads=128) as _:
            x = T.alloc_fragment((rows, cols), "float32")
            y = T.alloc_fragment((rows,), "float32")
            T.copy(X, x)
            reduction(x, y, dim=1, nan_propagate=nan_propagate)
            T.copy(y, Y)

    x = normal(rng, (rows, cols), "float32")
    x[0, 3] = x[1, 0] = x[1, 32] = np.nan
    x[2, 5], x[3, 5], x[4, 1] = np.inf, -np.inf, np.nan
    x[4, 2] = np.inf
    x[5] = -np.inf
    x[6] = np.inf
    x[7] = np.nan

    def expected() -> tuple[Expected, ...]:
        table = {
            ("max", False): np.fmax, ("min", False): np.fmin,
            ("max", True): np.maximum, ("min", True): np.minimum,
        }  # fmt: skip
        empty = -np.inf if op == "max" else np.inf
        value = table[op, nan_propagate].reduce(x.astype(np.float64), axis=1, initial=empty)
        return (Expected(value, bounds.nothing(value)),)

    return Experiment(nan_reduce, (x,), (output((rows,), "float32"),), expected)


def nan_scan(
    rng: np.random.Generator, dtype: str, dim: int = 1, reverse: bool = False, threads: int = 128
) -> Experiment:
    """Running maxima that begin with nans, hold some, or have nothing else."""
    rows, cols = 17, 33

    @T.prim_func
    def nan_scan(X: T.Tensor((rows, cols), dtype), Y: T.Tensor((rows, cols), dtype)):
        with T.Kernel(1, threads=threads) as _:
            x = T.alloc_shared((rows, cols), dtype)
            T.copy(X, x)
            T.cummax(x, dim=dim, reverse=reverse)
            T.copy(x, Y)

    x = normal(rng, (rows, cols), dtype)
    x[3] = x[4, 5] = x[7, ::2] = x[9, :3] = x[10, -3:] = x[:, 8] = np.nan
    x[5, 0], x[6, -1], x[8] = np.inf, -np.inf, -np.inf

    def expected() -> tuple[Expected, ...]:
        source = np.flip(x, dim) if reverse else x
        most = np.fmax.accumulate(source.astype(np.float64), axis=dim)
        value = np.where(np.isnan(most), -np.inf, most)
        value = np.flip(value, dim) if reverse else value
        return (Expected(value, bounds.nothing(value)),)

    return Experiment(nan_scan, (x,), (output((rows, cols), dtype),), expected)


def subnormal_sum(rng: np.random.Generator, dtype: str) -> Experiment:
    """Subnormals are numbers: they are kept by copies and survive additions."""
    size = 96

    @T.prim_func
    def subnormal_sum(X: T.Tensor((size,), dtype), Y: T.Tensor((size,), dtype)):
        with T.Kernel(1, threads=32) as _:
            x = T.alloc_shared((size,), dtype)
            T.copy(X, x)
            for i in T.Parallel(size):
                Y[i] = x[i] + x[i]

    smallest = float(np.finfo(np.float16).smallest_subnormal) if dtype == "float16" else 1e-42
    x = (rng.integers(1, 9, size) * smallest).astype(output((0,), dtype).dtype)

    def expected() -> tuple[Expected, ...]:
        return (Expected((x.astype(np.float64) * 2).astype(x.dtype).astype(np.float64)),)

    return Experiment(subnormal_sum, (x,), (output((size,), dtype),), expected)


def masked_attention(
    rng: np.random.Generator, q_len: int, kv_len: int, dtype: str = "float32", **mask: Any
) -> Experiment:
    """Rows that see no key: zeros, and a log-sum-exp of -inf."""
    problem = AttentionProblem(2, 2, q_len, 32, dtype, kv_len=kv_len, has_lse=True, **mask)
    arrays = FAMILIES["flash_attention"].inputs(problem, rng)
    if problem.padded:
        arrays = (*arrays[:3], np.array([0, kv_len // 2], np.int32))
    config = AttentionConfig(32, 32, 1, 64)
    return experiment_of(
        "flash_attention",
        problem,
        config,
        arrays,
        lambda a, values: bounds.attention(problem, a, values),
    )


def extreme_softmax(rng: np.random.Generator, cols: int, online: bool) -> Experiment:
    """Logits of 1e4, rows with one finite element, with +inf (nan), with only -inf (nan)."""
    rows = 8
    problem = SoftmaxProblem(rows, cols)
    x = normal(rng, (rows, cols), "float32")
    x[0] *= 1e4
    x[1] = -np.inf
    x[1, cols // 2] = 3.0
    x[2, 0] = np.inf
    x[3] = -np.inf
    x[4] = 1e38
    x[5, -1] = np.nan
    config = RowConfig(4, 32 if online else 256, 128)
    with np.errstate(invalid="ignore"):
        return experiment_of(
            "softmax",
            problem,
            config,
            (x,),
            lambda _, values: [bounds.function(values[0], "float32", terms=cols)],
        )


BUILDERS: tuple[Any, ...] = (
    special_unary, special_binary, predicates, nan_reduce, nan_scan, subnormal_sum,
    masked_attention, extreme_softmax,
)  # fmt: skip
