"""tc::convert and the arithmetic of narrow types, against ml_dtypes and NumPy."""

from __future__ import annotations

from math import erf

import ml_dtypes
import numpy as np
import pytest

NARROW = {
    "tc::half": np.float16,
    "tc::bfloat16": ml_dtypes.bfloat16,
    "tc::e4m3": ml_dtypes.float8_e4m3fn,
    "tc::e5m2": ml_dtypes.float8_e5m2,
    "tc::e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "tc::e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}
CONVERT = """
TC_KERNEL(32, 1) k(const FROM* A, TO* B, int n) {
  for (int i = tc::lane_in_block(); i < n; i += 32)
    tc::store_global(B + i, tc::convert<TO>(tc::load_global(A + i)));
}
"""


def convert(run_text, a: np.ndarray, source: str, target: str, dtype) -> np.ndarray:
    out = np.zeros(a.shape, dtype)
    text = CONVERT.replace("FROM", source).replace("TO", target)
    run_text(text, [np.ascontiguousarray(a), out, np.int32(a.size)], 32)
    return out


def interesting_floats(rng: np.random.Generator) -> np.ndarray:
    bits = rng.integers(0, 2**32, 4000, dtype=np.uint32).view(np.float32)
    scales = (rng.normal(size=4000) * 2.0 ** rng.integers(-30, 20, 4000)).astype(np.float32)
    edges = [
        0.0,
        -0.0,
        1.0,
        65504,
        65519,
        65520,
        448,
        464,
        465,
        480,
        57344,
        61440,
        240,
        248,
        2**-24,
    ]
    edges += [2**-25, 1.5 * 2**-25, 3 * 2**-11, 2**-10, 2**-9, np.inf, np.nan, 3.3895e38, 3.4e38]
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)[::7]
    with np.errstate(invalid="ignore"):
        ties = (halves * np.float32(1 + 2**-11)).astype(np.float32)
    both = np.concatenate([bits, scales, np.array(edges, np.float32), halves, ties])
    return np.concatenate([both, -both])


def rounded(a: np.ndarray, dtype) -> np.ndarray:
    """`a` in `dtype`; types without infinity saturate, where ml_dtypes gives nan."""
    with np.errstate(all="ignore"):
        if np.dtype(dtype).itemsize == 1 and dtype is not ml_dtypes.float8_e5m2:
            largest = float(ml_dtypes.finfo(dtype).max)
            a = np.where(np.isnan(a), a, np.clip(a, -largest, largest))
        return a.astype(dtype)


@pytest.mark.parametrize("target", NARROW)
@pytest.mark.parametrize(("source", "wide"), [("float", np.float32), ("double", np.float64)])
def test_from_floats(run_text, rng, target, source, wide):
    with np.errstate(invalid="ignore"):
        a = interesting_floats(rng).astype(wide)
    if wide is np.float64:  # neighbours of ties: rounding twice would go wrong
        a = np.concatenate([a, a * (1 + 2.0**-40), a * (1 - 2.0**-40)])
    got = convert(run_text, a, source, target, NARROW[target])
    with np.errstate(all="ignore"):
        # ml_dtypes may round double through float; NumPy itself is exact for half
        expected = rounded(a if target == "tc::half" else to_odd(a), NARROW[target])
    equal = got.astype(np.float32).view(np.uint32) == expected.astype(np.float32).view(np.uint32)
    nan = np.isnan(got.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    wrong = ~(equal | nan)
    assert not wrong.any(), (a[wrong][:5], got[wrong][:5], expected[wrong][:5])


def test_packs(run_text, rng):
    text = """
TC_KERNEL(32, 1) k(const float* A, uint32_t* R) {
  const int i = tc::lane_in_block();
  float a[4];
  tc::load_global<4>(a, A + i * 4);
  const uint32_t r[4] = {tc::pack<tc::half>(a[0], a[1]), tc::pack<tc::bfloat16>(a[2], a[3]),
                         tc::pack4<tc::e4m3>(a[0], a[1], a[2], a[3]),
                         tc::pack4<tc::e5m2fnuz>(a[0], a[1], a[2], a[3])};
  tc::store_global<4>(R + i * 4, r);
}
"""
    a = rng.normal(size=(32, 4)).astype(np.float32)
    r = np.zeros((32, 4), np.uint32)
    run_text(text, [a, r], 32)
    expected = [
        a[:, :2].astype(np.float16).view(np.uint32),
        a[:, 2:].astype(ml_dtypes.bfloat16).view(np.uint32),
        a.astype(ml_dtypes.float8_e4m3fn).view(np.uint32),
        a.astype(ml_dtypes.float8_e5m2fnuz).view(np.uint32),
    ]
    np.testing.assert_array_equal(r, np.concatenate(expected, axis=1))


def to_odd(a: np.ndarray) -> np.ndarray:
    """float64 to float32, rounding to odd, so that a second rounding is the only one."""
    if a.dtype == np.float32:
        return a
    with np.errstate(all="ignore"):
        near = a.astype(np.float32)
    inexact = (near.astype(np.float64) != a) & ~np.isnan(a)
    bits = near.view(np.uint32).copy()
    bits[inexact & (np.abs(near.astype(np.float64)) > np.abs(a))] -= 1
    bits[inexact] |= 1
    return bits.view(np.float32)


@pytest.mark.parametrize("source", NARROW)
def test_to_float_of_every_code(run_text, source):
    dtype = np.dtype(NARROW[source])
    unsigned = np.uint8 if dtype.itemsize == 1 else np.uint16
    a = np.arange(2 ** (8 * dtype.itemsize), dtype=np.uint32).astype(unsigned).view(dtype)
    got = convert(run_text, a, source, "float", np.float32)
    np.testing.assert_array_equal(got, a.astype(np.float32))
    zero = got == 0
    np.testing.assert_array_equal(np.signbit(got)[zero], np.signbit(a.astype(np.float32))[zero])


@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        ("int8_t", np.int8),
        ("uint8_t", np.uint8),
        ("int32_t", np.int32),
        ("uint32_t", np.uint32),
        ("int64_t", np.int64),
        ("uint64_t", np.uint64),
    ],
)
@pytest.mark.parametrize(("source", "wide"), [("float", np.float32), ("double", np.float64)])
def test_to_integers_truncates_and_saturates(run_text, rng, target, dtype, source, wide):
    with np.errstate(invalid="ignore"):
        a = interesting_floats(rng).astype(wide)
    a = np.concatenate([a, np.array([127.5, 128, -128.9, 255.9, 2**31, 2**63, -(2.0**63)], wide)])
    got = convert(run_text, a, source, target, dtype)
    limits = np.iinfo(dtype)

    def truncated(v: float) -> int:
        if np.isnan(v):
            return 0
        return limits.max if v >= limits.max else limits.min if v <= limits.min else int(v)

    expected = [truncated(float(v)) for v in a]
    np.testing.assert_array_equal(got, np.array(expected, dtype))


@pytest.mark.parametrize("target", ["tc::half", "tc::bfloat16", "float", "bool"])
def test_from_integers(run_text, rng, target):
    dtype = NARROW.get(target, np.float32 if target == "float" else np.bool_)
    a = np.concatenate([np.arange(-70000, 70000, 37), rng.integers(-(2**31), 2**31, 500), [0]])
    a = a.astype(np.int32)
    got = convert(run_text, a, "int32_t", target, dtype)
    with np.errstate(over="ignore"):
        narrow = target in NARROW
        expected = (to_odd(a.astype(np.float64)) if narrow else a).astype(dtype)
    np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("name", ["tc::half", "tc::bfloat16"])
def test_arithmetic_rounds_once(run_text, rng, name):
    text = (
        """
TC_KERNEL(32, 1) k(const T* A, const T* B, T* R, int* C, int n) {
  for (int i = tc::lane_in_block(); i < n; i += 32) {
    const T a = tc::load_global(A + i), b = tc::load_global(B + i);
    T r[7] = {a + b, a - b, a * b, a / b, -a, tc::max(a, b), tc::min_nan(a, b)};
    for (int j = 0; j < 7; ++j) tc::store_global(R + i * 7 + j, r[j]);
    tc::store_global(C + i, (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > b));
  }
}
""".replace("T*", name + "*")
        .replace("const T ", f"const {name} ")
        .replace("    T r", f"    {name} r")
    )
    dtype = NARROW[name]
    a = rng.integers(0, 2**16, 3000, dtype=np.uint16).view(dtype)
    b = rng.integers(0, 2**16, 3000, dtype=np.uint16).view(dtype)
    b[::10] = a[::10]
    r, c = np.zeros((3000, 7), dtype), np.zeros(3000, np.int32)
    run_text(text, [a, b, r, c, np.int32(3000)], 32)
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    with np.errstate(all="ignore"):
        expected = [
            (wide_a + wide_b).astype(dtype),
            (wide_a - wide_b).astype(dtype),
            (wide_a * wide_b).astype(dtype),
            (wide_a / wide_b).astype(dtype),
            -a,
            np.fmax(wide_a, wide_b).astype(dtype),
            np.minimum(wide_a, wide_b).astype(dtype),
        ]
    np.testing.assert_array_equal(
        r.astype(np.float32), np.stack(expected, axis=1).astype(np.float32)
    )
    less, equal = wide_a < wide_b, wide_a == wide_b
    expected_c = less + 2 * (less | equal) + 4 * equal + 8 * ~equal + 16 * (wide_a > wide_b)
    np.testing.assert_array_equal(c, expected_c)


def test_integers_and_math(run_text, rng):
    text = """
TC_KERNEL(32, 1) k(const int* A, const int* B, int* R, const float* X, float* Y) {
  const int i = tc::lane_in_block();
  const int a = tc::load_global(A + i), b = tc::load_global(B + i);
  int r[6] = {tc::floor_div(a, b), tc::floor_mod(a, b), tc::popcount(a), tc::count_leading_zeros(a),
              tc::max(a, b), tc::abs(a)};
  for (int j = 0; j < 6; ++j) tc::store_global(R + i * 6 + j, r[j]);
  const float x = tc::load_global(X + i);
  float y[8] = {tc::exp2(x), tc::fast_log2(x), tc::rsqrt(x), tc::tanh(x), tc::round(x * 2),
                tc::fma(x, x, 1.0f), tc::pow(x, 1.5f), tc::erf(x)};
  for (int j = 0; j < 8; ++j) tc::store_global(Y + i * 8 + j, y[j]);
}
"""
    a = rng.integers(-100, 100, 32).astype(np.int32)
    b = rng.choice([-7, -2, 3, 5], 32).astype(np.int32)
    x = rng.uniform(0.25, 4, 32).astype(np.float32)
    r, y = np.zeros((32, 6), np.int32), np.zeros((32, 8), np.float32)
    run_text(text, [a, b, r, x, y], 32)
    unsigned = a.astype(np.uint32)
    bits = [bin(v)[2:] for v in unsigned]
    zeros = [32 - len(s.lstrip("0")) for s in bits]
    expected = [a // b, a % b, [s.count("1") for s in bits], zeros]
    expected += [np.maximum(a, b), np.abs(a)]
    np.testing.assert_array_equal(r, np.stack(expected, axis=1))
    floats = [
        np.exp2(x),
        np.log2(x),
        1 / np.sqrt(x),
        np.tanh(x),
        np.round(x * 2),
        x * x + 1,
        x**1.5,
    ]
    floats.append(np.array([erf(v) for v in x]))
    np.testing.assert_allclose(y, np.stack(floats, axis=1), rtol=1e-6)
