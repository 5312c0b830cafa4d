"""Division, square root and conversions are correctly rounded: no reciprocal stands in for them."""

# Annotations are values of the tile language here, so they are not postponed.

import ml_dtypes
import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.ir.dtypes import dtype_of, numpy_dtype

N = 1 << 15
NARROW = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


def values(dtype: str, seed: int) -> np.ndarray:
    """All magnitudes: normal, subnormal, zero, infinite, not a number."""
    bits = np.dtype(dtype).itemsize * 8
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 2**bits, N, dtype=f"u{bits // 8}").view(dtype)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 3.0], dtype)
    raw[: len(special)] = rng.permutation(special)
    return raw


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal bits, any NaN for NaN."""
    is_nan = np.isnan(want.astype(np.float64))
    assert (np.isnan(got.astype(np.float64)) == is_nan).all()
    unsigned = f"u{got.dtype.itemsize}"
    different = (got.view(unsigned) != want.view(unsigned)) & ~is_nan
    assert not different.any(), f"{different.sum()} differ, first {np.argmax(different)}"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_division_and_square_root(dtype: str) -> None:
    @T.prim_func
    def quotients(
        A: T.Tensor((N,), dtype),
        B: T.Tensor((N,), dtype),
        Q: T.Tensor((N,), dtype),
        Third: T.Tensor((N,), dtype),
        Root: T.Tensor((N,), dtype),
    ):
        with T.Kernel(N // 1024, threads=128) as bx:
            for i in T.Parallel(1024):
                Q[bx * 1024 + i] = A[bx * 1024 + i] / B[bx * 1024 + i]
                Third[bx * 1024 + i] = A[bx * 1024 + i] / 3.0
                Root[bx * 1024 + i] = T.sqrt(A[bx * 1024 + i])

    a, b = values(dtype, 1), values(dtype, 2)
    quotient, third, root = (np.empty_like(a) for _ in range(3))
    tilecore.compile(quotients, "cpu_llvm")(a, b, quotient, third, root)
    with np.errstate(all="ignore"):
        same(quotient, a / b)
        same(third, a / a.dtype.type(3))
        same(root, np.sqrt(a))


@pytest.mark.parametrize("name", NARROW)
def test_quotients_rounded_to_eight_bits(name: str) -> None:
    """As quantisation does it: a quotient, kept within the type's range, rounded once more."""
    limit = float(ml_dtypes.finfo(numpy_dtype(dtype_of(name))).max)

    @T.prim_func
    def quantise(
        A: T.Tensor((N,), "float32"), S: T.Tensor((N,), "float32"), Q: T.Tensor((N,), name)
    ):
        with T.Kernel(N // 1024, threads=128) as bx:
            for i in T.Parallel(1024):
                Q[bx * 1024 + i] = T.clamp(A[bx * 1024 + i] / S[bx * 1024 + i], -limit, limit)

    rng = np.random.default_rng(5)
    # Few mantissa bits over few: quotients that are exact ties are common.
    a = rng.standard_normal(N).astype(ml_dtypes.bfloat16).astype(np.float32)
    s = (rng.integers(1, 64, N) * 2.0 ** rng.integers(-16, 4, N)).astype(np.float32)
    got = np.empty(N, numpy_dtype(dtype_of(name)))
    tilecore.compile(quantise, "cpu_llvm")(a, s, got)
    same(got, np.clip(a / s, -limit, limit).astype(got.dtype))


@pytest.mark.parametrize("name", NARROW)
def test_every_code_and_its_neighbourhood(name: str) -> None:
    """Each code widens exactly; it, the ties beside it and what is next to them round to nearest
    even."""
    kind = numpy_dtype(dtype_of(name))
    codes = np.arange(256, dtype=np.uint8).view(kind)
    wide = codes.astype(np.float32)
    finite = np.unique(wide[np.isfinite(wide)])
    ties = (finite[1:] + finite[:-1]) / 2
    points = np.concatenate([finite, ties])
    near = [np.nextafter(points, np.float32(side)) for side in (-np.inf, np.inf)]
    inputs = np.concatenate([points, *near, [0.0, -0.0, np.nan]]).astype(np.float32)
    limit = float(ml_dtypes.finfo(kind).max)
    inputs = inputs[~(np.abs(inputs) > limit)]
    count = len(inputs)

    @T.prim_func
    def round_trip(
        C: T.Tensor((256,), name),
        W: T.Tensor((256,), "float32"),
        X: T.Tensor((count,), "float32"),
        Y: T.Tensor((count,), name),
    ):
        with T.Kernel(1, threads=128) as _:
            for i in T.Parallel(256):
                W[i] = C[i]
            for i in T.Parallel(count):
                Y[i] = X[i]

    widened, rounded = np.empty(256, np.float32), np.empty(count, kind)
    tilecore.compile(round_trip, "cpu_llvm")(codes, widened, inputs, rounded)
    same(widened, wide)
    same(rounded, inputs.astype(kind))
