"""The model must hold for honest arithmetic, and must not hold for wrong answers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.testing import Tolerance, assert_close, contraction, function, reduction, rounding
from tilecore.testing.tolerances import smallest_normal, smallest_positive, unit_roundoff

FLOATS = ["float64", "float32", "float16", "bfloat16", "float8_e5m2"]


@pytest.mark.parametrize("name", FLOATS)
def test_constants_of_the_formats(name):
    limits = ml_dtypes.finfo(numpy_dtype(dtype_of(name)))
    assert unit_roundoff(name) == float(limits.eps) / 2
    assert smallest_normal(name) == float(limits.smallest_normal)
    assert smallest_positive(name) == float(limits.smallest_subnormal)


@given(st.floats(-60000, 60000), st.sampled_from(FLOATS[1:4]))
def test_a_rounding_is_within_the_tolerance_of_one(value, name):
    rounded = np.asarray(value).astype(numpy_dtype(dtype_of(name))).astype(float)
    assert_close(rounded, value, rounding(name))


@pytest.mark.parametrize("name", FLOATS[1:4])
def test_two_units_off_is_noticed(name):
    off = 1.5 * (1 + 3 * unit_roundoff(name))
    with pytest.raises(AssertionError):
        assert_close(off, 1.5, rounding(name))


@pytest.mark.parametrize("k", [1, 7, 64, 1000])
@pytest.mark.parametrize("out", ["float16", "float32"])
def test_contractions_in_float32(k, out):
    rng = np.random.default_rng(k)
    a = rng.standard_normal((16, k)).astype(np.float16)
    b = rng.standard_normal((k, 16)).astype(np.float16)
    exact, size = a.astype(float) @ b.astype(float), abs(a.astype(float)) @ abs(b.astype(float))
    total = np.zeros((16, 16), np.float32)
    for step in range(k):  # the worst order for rounding errors: one term after the other
        total += a[:, step : step + 1].astype(np.float32) * b[step : step + 1].astype(np.float32)
    for truncates in (True, False):
        allowed = contraction(out, k, "float32", "float16", truncates=truncates)
        assert_close(total.astype(out), exact, allowed, magnitude=size)
        if k > 1:
            missing = exact - a[:, :1].astype(float) @ b[:1].astype(float)
            with pytest.raises(AssertionError):
                assert_close(missing, exact, allowed, magnitude=size)


@pytest.mark.parametrize("terms", [1, 100, 5000])
def test_sums_in_float32(terms):
    rng = np.random.default_rng(terms)
    x = rng.standard_normal((8, terms)).astype(np.float32)
    total = np.zeros(8, np.float32)
    for step in range(terms):
        total += x[:, step]
    allowed = reduction("float32", terms)
    assert_close(total, x.astype(float).sum(1), allowed, magnitude=abs(x).sum(1, dtype=float))
    wrong = x.astype(np.float16).astype(float).sum(1) + (x.sum(1, dtype=float) * 1e-2)
    with pytest.raises(AssertionError):
        assert_close(wrong, x.astype(float).sum(1), allowed, magnitude=abs(x).sum(1, dtype=float))


def test_functions():
    x = np.linspace(-5, 5, 1001)
    assert_close(np.exp(x.astype(np.float32)), np.exp(x.astype(np.float32).astype(float)),
                 function("float32"))  # fmt: skip
    with pytest.raises(AssertionError):
        assert_close(np.exp(x) * (1 + 1e-5), np.exp(x), function("float32"))


def test_narrow_inputs_and_integers():
    wide = contraction("float32", 64, "float32", "float16")
    assert contraction("float32", 64, "float32", "float8_e4m3fn").of_magnitude > wide.of_magnitude
    assert contraction("float32", 64, "float32", "tfloat32").of_magnitude > wide.of_magnitude
    assert contraction("int32", 64, "int32", "int8") == Tolerance()
    assert reduction("int32", 5) == rounding("int8") == Tolerance()


def test_sums_need_their_magnitude():
    with pytest.raises(ValueError, match="magnitude"):
        assert_close([1.0], [1.0], reduction("float32", 3))


def test_nans_and_infinities_are_values():
    special = np.array([np.nan, np.inf, -np.inf, 1.0])
    assert_close(special, special)
    for k in range(3):
        changed = special.copy()
        changed[k] = 0.0
        with pytest.raises(AssertionError, match="1 of 4 elements are wrong"):
            assert_close(changed, special, 1e9)
        with pytest.raises(AssertionError):
            assert_close(special, changed, 1e9)
    with pytest.raises(AssertionError):
        assert_close([np.inf], [-np.inf], 1e9)


def test_the_message_says_what_where_and_how_much():
    wanted = np.zeros((4, 6))
    got = wanted.copy()
    got[1, 2], got[2, 4], got[2, 5] = 0.5, 3.0, np.nan
    with pytest.raises(AssertionError) as caught:
        assert_close(got, wanted, 0.25, name="C")
    text = str(caught.value)
    assert "C: 3 of 24 elements are wrong (12.5 %)" in text
    assert "worst at (2, 5): got nan, expected 0, difference inf, allowed 0.25" in text
    assert "first at (1, 2): got 0.5, expected 0, difference 0.5, allowed 0.25" in text
    assert "within 1..2, 2..5" in text
    assert "nan 1 (expected 0)" in text
    with pytest.raises(AssertionError, match="shape"):
        assert_close(got, wanted[0])


def test_torch_tensors_are_read():
    torch = pytest.importorskip("torch")
    assert_close(torch.ones(3, dtype=torch.bfloat16), np.ones(3))
