"""Conversions and scalar operations against independent definitions."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilecore.ir.dtypes import (
    bfloat16,
    boolean,
    dtype_of,
    float8_e4m3fn,
    float16,
    float32,
    float64,
    int4,
    int8,
    int16,
    int32,
    int64,
    tfloat32,
    uint4,
    uint8,
    uint32,
)
from tilecore.ir.expr import Bitcast, Call, Cast, const
from tilecore.ir.fold import wrap_int
from tilecore.reference.evaluate import Frame, evaluate
from tilecore.reference.operations import apply_binary, apply_unary
from tilecore.reference.values import bitcast, cast, int_range, round_float, wrap

INTS = [int4, uint4, int8, uint8, int16, int32, uint32, int64]
ON = np.asarray(True)


@given(st.sampled_from(INTS), st.integers(-(2**70), 2**70))
def test_wrapping(dtype, value):
    low = wrap_int(value, int64)
    assert int(wrap(np.asarray(low), dtype)) == wrap_int(value, dtype)


@given(
    st.sampled_from(INTS),
    st.sampled_from(["add", "sub", "mul", "floordiv", "floormod", "min", "max"]),
    st.integers(),
    st.integers(),
)
def test_integer_arithmetic(dtype, op, a, b):
    a, b = wrap_int(a, dtype), wrap_int(b, dtype)
    if b == 0 and "floor" in op:
        return
    meaning = {
        "add": a + b, "sub": a - b, "mul": a * b, "min": min(a, b), "max": max(a, b),
        "floordiv": a // b if b else 0, "floormod": a % b if b else 0,
    }[op]  # fmt: skip
    with np.errstate(all="ignore"):
        result = apply_binary(op, wrap(np.asarray(a), dtype), wrap(np.asarray(b), dtype), dtype)
    assert int(result) == wrap_int(meaning, dtype)


@given(st.sampled_from(INTS), st.integers(), st.integers())
def test_integer_division_and_power(dtype, a, b):
    a, b = wrap_int(a, dtype), wrap_int(b, dtype)
    x, y = wrap(np.asarray(a), dtype), wrap(np.asarray(b), dtype)
    with np.errstate(all="ignore"):
        if b:
            quotient = int(apply_binary("div", x, y, dtype))
            assert quotient == wrap_int(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1), dtype)
        if 0 <= b < 200:
            assert int(apply_binary("pow", x, y, dtype)) == wrap_int(a**b, dtype)


@given(st.floats(width=64), st.sampled_from([int8, uint8, int32, uint32, int64]))
def test_float_to_int_truncates_and_saturates(value, dtype):
    low, high = int_range(dtype)
    if math.isnan(value):
        expected = 0
    elif math.isinf(value):
        expected = low if value < 0 else high
    else:
        expected = min(max(math.trunc(value), low), high)
    with np.errstate(all="ignore"):
        assert int(cast(np.asarray(value), float64, dtype, exact=False)) == expected


@given(st.floats(width=32))
def test_tfloat32_keeps_ten_fraction_bits(value):
    result = float(round_float(np.asarray(value), tfloat32))
    if math.isnan(value):
        assert math.isnan(result)
    elif math.isinf(value) or value == 0:
        assert result == value
    else:
        unit = 2.0 ** (max(math.frexp(value)[1] - 1, -126) - 10)
        scaled = value / unit
        with np.errstate(over="ignore"):
            assert result == np.float32(round(scaled) * unit)


def test_rounding_to_narrow_floats():
    wide = np.array([448.0, 464.1, 1e9, -1e9, np.inf, np.nan, 0.0019])
    with np.errstate(all="ignore"):
        e4m3 = round_float(wide, float8_e4m3fn)
        half = round_float(np.array([65519.9, 65520.0, 2049.0]), float16)
    np.testing.assert_array_equal(e4m3, [448, 448, 448, -448, 448, np.nan, 2.0**-9])
    np.testing.assert_array_equal(half, [65504, np.inf, 2048])


def test_to_bool_is_not_equal_zero():
    result = cast(np.array([0.0, -0.0, np.nan, 0.1]), float32, boolean, exact=True)
    assert result.tolist() == [False, False, True, True]


def test_bitcasts():
    assert int(bitcast(np.asarray(1.0), float32, uint32)) == 0x3F800000
    assert float(bitcast(np.asarray(0x3F80), dtype_of("uint16"), bfloat16)) == 1.0
    expr = Bitcast(const(-1), uint32)
    assert int(evaluate(expr, Frame(()), ON)) == 2**32 - 1


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("rsqrt", [4.0], 0.5), ("rcp", [4.0], 0.25), ("sigmoid", [0.0], 0.5), ("erf", [0.0], 0.0),
        ("round", [2.5], 2.0), ("round", [-1.5], -2.0), ("trunc", [-1.7], -1.0),
        ("fma", [2.0, 3.0, 4.0], 10.0), ("fmod", [-5.0, 3.0], -2.0), ("exp10", [2.0], 100.0),
        ("atan2", [1.0, 1.0], math.pi / 4), ("log1p", [0.0], 0.0), ("abs", [-2.0], 2.0),
    ],
)  # fmt: skip
def test_math(op, args, expected):
    expr = Call(op, tuple(const(a, float64) for a in args), float64)
    assert float(evaluate(expr, Frame(()), ON)) == pytest.approx(expected, rel=1e-15)


@given(st.sampled_from(INTS), st.integers())
def test_bit_counts(dtype, value):
    value = wrap_int(value, dtype)
    pattern = value & ((1 << dtype.bits) - 1)
    for op, expected in (
        ("popcount", pattern.bit_count()),
        ("clz", dtype.bits - pattern.bit_length()),
    ):
        expr = Call(op, (const(value, dtype),), int32)
        assert int(evaluate(expr, Frame(()), ON)) == expected


def test_nans_in_min_max_and_comparisons():
    nan, one = np.asarray(np.nan), np.asarray(1.0)
    assert float(apply_binary("max", nan, one, float32)) == 1
    assert float(apply_binary("min", one, nan, float32)) == 1
    assert np.isnan(apply_binary("min", nan, nan, float32))
    assert not bool(apply_binary("eq", nan, nan, float32))
    assert bool(apply_binary("ne", nan, nan, float32))


def test_negation_and_not():
    with np.errstate(all="ignore"):
        assert int(apply_unary("neg", np.asarray(-128, np.int8), int8)) == -128
    assert int(apply_unary("bitnot", np.asarray(5, np.uint8), uint4)) == 10
    assert not bool(apply_unary("not", np.asarray(True), boolean))


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_casts_round_only_when_exact(values):
    expr = Cast(const(0.1, float32), bfloat16)
    assert float(evaluate(expr, Frame(()), ON)) == 0.1
    exact = float(evaluate(expr, Frame((), is_exact=True), ON))
    assert exact == float(np.float32(0.1).astype(ml_dtypes.bfloat16))
    wide = np.array(values, np.float64)
    with np.errstate(all="ignore"):
        expected = wide.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)
        np.testing.assert_array_equal(cast(wide, float32, bfloat16, exact=True), expected)
