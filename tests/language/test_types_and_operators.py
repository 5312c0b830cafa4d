"""Typing rules of scalars, checked structurally and against NumPy."""

import language_support as support
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilecore.language as T
from tilecore.errors import LanguageError
from tilecore.ir import dtypes as ir
from tilecore.ir.expr import Cast, Const


def scalar(dtype):
    return T.dynamic("x").astype(dtype)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("int32", 1, "int32"),
        ("int32", 1.5, "float32"),
        ("float16", 1, "float16"),
        ("float16", 1.5, "float16"),
        ("bool", 1, "int32"),
        ("bool", True, "bool"),
        ("int8", "int32", "int32"),
        ("int32", "uint32", "uint32"),
        ("float16", "bfloat16", "float32"),
        ("int64", "float16", "float16"),
        ("float8_e4m3fn", "float16", "float16"),
        ("float64", 0.1, "float64"),
    ],
)
def test_promotion(a, b, expected):
    left = scalar(a)
    right = scalar(b) if isinstance(b, str) else b
    assert T.if_then_else(left > 0, left, right).dtype == expected
    if expected != "bool":  # arithmetic of two bools is int32
        assert T.max(left, right).dtype == T.min(right, left).dtype == expected
        assert (left + right).dtype == expected
        assert (right * left).dtype == expected
    assert (left < right).dtype == "bool"


def test_division():
    n = T.dynamic("n")
    assert (n / 2).dtype == "float32"
    assert (n // 2).dtype == "int32"
    assert (n % 2).dtype == "int32"
    assert (n.astype("float16") / 2).dtype == "float16"
    assert (1 / n.astype("float64")).dtype == "float64"
    with pytest.raises(LanguageError, match="division by zero"):
        n // 0


def test_literals_must_fit():
    byte = scalar("uint8")
    assert (byte + 255).dtype == "uint8"
    with pytest.raises(LanguageError, match="literal does not fit"):
        byte + 256
    with pytest.raises(LanguageError, match="literal does not fit"):
        T.dynamic("n") + 2**31
    assert (T.dynamic("n") + T.int64(2**31)).dtype == "int64"


def test_bitwise_needs_integers_and_bools_are_logical():
    with pytest.raises(LanguageError, match="needs integers"):
        scalar("float32") & 1
    a, b = scalar("int32") > 0, scalar("int32") < 9
    assert (a & b).expr.op == "and"
    assert (a | b).expr.op == "or"
    assert (~a).expr.op == "not"
    assert (scalar("int32") << 3).dtype == "int32"
    with pytest.raises(LanguageError, match="shift"):
        scalar("float32") << 1


def test_runtime_values_have_no_python_value():
    n = T.dynamic("n")
    for misuse in (bool, int, float, lambda v: [1, 2][v], list, max, lambda v: range(v)):
        with pytest.raises((LanguageError,)):
            misuse(n)
    assert int(T.int32(4)) == 4
    assert [10, 20][T.int32(1)] == 20


def test_comparison_of_names_is_not_python_equality():
    n = T.dynamic("n")
    assert (n == 3).dtype == "bool"
    assert (n != n).dtype == "bool"


def test_conversions():
    n = T.dynamic("n")
    assert T.float16(n).dtype == T.cast(n, "float16").dtype == T.Cast("float16", n).dtype
    assert T.float32(2).expr == Const(2.0, ir.float32)
    assert T.cast("float32", n).dtype == "float32"
    assert isinstance(T.cast(n, T.int64).expr, Cast)
    assert T.cast(n, "int32").expr is n.expr
    assert T.reinterpret(n, "float32").dtype == "float32"
    with pytest.raises(LanguageError, match="keeps the width"):
        T.reinterpret(n, "float16")
    with pytest.raises(LanguageError, match="unknown dtype"):
        T.cast(n, "float20")


def test_limits():
    assert T.infinity("float32").expr.value == float("inf")
    assert (-T.infinity("bfloat16")).expr.value == float("-inf")
    assert T.infinity("float8_e4m3fn").expr.value == 448.0
    assert T.infinity("float8_e5m2").expr.value == float("inf")
    assert T.max_value("int8").expr.value == 127
    assert T.min_value("int8").expr.value == -128
    assert T.max_value("uint32").expr.value == 2**32 - 1
    assert T.min_value("float16").expr.value == -65504
    with pytest.raises(LanguageError, match="float dtype"):
        T.infinity("int32")


def test_math_functions_take_integers_as_float32():
    n = T.dynamic("n")
    assert T.exp(n).dtype == "float32"
    assert T.sqrt(scalar("float16")).dtype == "float16"
    assert T.abs(n).dtype == "int32"
    assert T.floor(n).expr is n.expr
    assert T.isnan(n).expr == Const(False, ir.boolean)
    assert T.isnan(scalar("float16")).dtype == "bool"
    assert T.fma(n, 2.0, scalar("float16")).dtype == "float16"
    assert T.atan2(1.0, scalar("float64")).dtype == "float64"
    assert T.popcount(scalar("uint32")).dtype == "int32"
    with pytest.raises(LanguageError, match="takes 1 argument"):
        T.exp(n, n)
    with pytest.raises(LanguageError, match="needs an integer"):
        T.clz(scalar("float32"))


def test_dtypes_are_names():
    assert T.float16 == "float16" == T.dtype(np.float16)
    assert T.dtype(T.float16) is T.float16
    assert T.bool == "bool" and T.float == "float32" and T.int == "int32"
    assert T.float16 == ir.float16
    assert T.float16.bits == 16 and T.int4.bits == 4
    assert {"float16": 1}[T.float16] == 1
    assert np.dtype(T.int8) == np.int8
    assert repr(T.bfloat16) == "T.bfloat16"


SMALL = st.integers(-20, 20)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(SMALL, SMALL), min_size=1, max_size=6))
def test_integer_arithmetic_is_pythons(pairs):
    rows = len(pairs)

    @T.prim_func
    def main(A: T.Tensor((rows, 2), "int32"), R: T.Tensor((rows, 9), "int32")):
        with T.Kernel(rows) as b:
            x, y = A[b, 0], A[b, 1]
            d = T.if_then_else(y == 0, 1, y)
            R[b, 0] = x + y * 3 - 1
            R[b, 1] = x // d
            R[b, 2] = x % d
            R[b, 3] = T.truncdiv(x, d)
            R[b, 4] = T.ceildiv(x, T.abs(d))
            R[b, 5] = (x & y) | (x ^ 5)
            R[b, 6] = -(x**3)
            R[b, 7] = T.clamp(x, -3, 7)
            R[b, 8] = T.max(x, y, 4) - T.min(x, y)

    expected = []
    for x, y in pairs:
        d = y or 1
        expected.append([
            x + y * 3 - 1, x // d, x % d, int(x / d), -(-x // abs(d)), (x & y) | (x ^ 5), -(x**3),
            min(max(x, -3), 7), max(x, y, 4) - min(x, y),
        ])  # fmt: skip
    a = np.array(pairs, np.int32)
    out = support.result(main, "R", A=a, R=np.zeros((rows, 9), np.int32))
    np.testing.assert_array_equal(out, expected)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 40), st.integers(1, 9), st.integers(-9, 9), st.booleans(), st.integers(0, 3))
def test_differences_of_linear_expressions_cancel(offset, factor, other, named, extra):
    from tilecore.language.linear import difference, is_equal

    n, m = T.dynamic("n m")
    start = n * factor + m * other + offset
    stop = (n + 1) * factor + m * other + offset + extra * m
    got = difference(stop.expr, start.expr)
    if extra == 0:
        assert got == Const(factor, ir.int32)
    assert is_equal((stop - start).expr, (factor + extra * m if extra else T.int32(factor)).expr)
    assert not is_equal(stop.expr, start.expr)


def test_sinh_and_cosh_are_accurate():
    xs = np.array([-5, -0.6, -0.4, -1e-3, 0.0, 1e-4, 0.49, 0.51, 3.0], np.float32)

    @T.prim_func
    def main(A: T.Tensor((9,), "float32"), R: T.Tensor((9, 3), "float32")):
        with T.Kernel(9) as b:
            R[b, 0] = T.sinh(A[b])
            R[b, 1] = T.cosh(A[b])
            R[b, 2] = T.atan(A[b])

    out = support.result(main, "R", A=xs, R=np.zeros((9, 3), np.float32))
    x = xs.astype(float)
    np.testing.assert_allclose(out, np.stack([np.sinh(x), np.cosh(x), np.arctan(x)], 1), rtol=2e-6)
