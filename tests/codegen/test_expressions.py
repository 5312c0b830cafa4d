"""Expressions as C++ text: values, precedence, and what each dtype needs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilecore.codegen.simt.dialect import Dialect
from tilecore.codegen.simt.expressions import ExpressionPrinter
from tilecore.errors import LoweringError, UnsupportedError
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import (
    DType,
    bfloat16,
    boolean,
    float8_e4m3fn,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint32,
)
from tilecore.ir.expr import Binary, Call, Cast, Expr, Load, Select, Unary, Var, const

PRINTER = ExpressionPrinter(Dialect(), {}, fast_math=False)
VALUES = {"a": 13, "b": 5, "c": 2}


def integers() -> st.SearchStrategy[Expr]:
    leaves = st.one_of(st.sampled_from([Var(n) for n in VALUES]), st.integers(0, 9).map(const))

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        ops = st.sampled_from(["add", "sub", "mul", "bitand", "bitor", "bitxor"])
        plain = st.tuples(ops, inner, inner).map(lambda t: Binary(*t, int32))
        divided = st.tuples(inner, st.integers(1, 9).map(const)).map(
            lambda t: Call("lane.div", t, int32)
        )
        negated = inner.map(lambda e: Unary("neg", e, int32))
        return st.one_of(plain, divided, negated)

    return st.recursive(leaves, grow, max_leaves=10)


def value(expr: Expr) -> int:
    """What the expression means."""
    match expr:
        case Var(name=name):
            return VALUES[name]
        case Binary(op=op, a=a, b=b):
            left, right = value(a), value(b)
            return {
                "add": left + right, "sub": left - right, "mul": left * right,
                "bitand": left & right, "bitor": left | right, "bitxor": left ^ right,
            }[op]  # fmt: skip
        case Call(args=(a, b)):
            return value(a) // value(b)
        case Unary(a=a):
            return -value(a)
        case _:
            return int(expr.value)


@settings(max_examples=300, deadline=None)
@given(integers())
def test_printed_text_has_the_expressions_value(expr):
    text = PRINTER.text(expr)
    assert eval(text.replace("/", "//"), {}, dict(VALUES)) == value(expr)


def test_conditionals_inside_arithmetic_are_in_parentheses():
    choice = Select(Binary("lt", Var("a"), Var("b"), boolean), Var("a"), Var("b"), int32)
    assert PRINTER.text(Binary("add", choice, const(1), int32)) == "(a < b ? a : b) + 1"


@pytest.mark.parametrize(
    ("number", "dtype", "text"),
    [
        (1, int32, "1"),
        (-(2**31), int32, "(-2147483647 - 1)"),
        (2**40, int64, "int64_t(1099511627776ll)"),
        (7, uint32, "7u"),
        (7, int8, "int8_t(7)"),
        (True, boolean, "true"),
        (0.1, float32, "0.1f"),
        (1.0, float32, "1.0f"),
        (1e30, float32, "1e+30f"),
        (0.1, float64, "0.1"),
        (float("inf"), float32, "tc::bit_cast<float>(0x7f800000u)"),
        (float("-inf"), float64, "tc::bit_cast<double>(0xfff0000000000000ull)"),
        (0.5, float16, "tc::convert<tc::half>(0.5f)"),
    ],
)
def test_literals(number, dtype: DType, text: str):
    assert PRINTER.text(const(number, dtype)) == text


@settings(max_examples=200, deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float_literals_are_exact(number: float):
    text = PRINTER.text(const(number, float32))
    assert text.endswith("f")
    assert np.float32(text.removesuffix("f")) == np.float32(number)


def test_narrow_floats_compute_in_float():
    x = Var("x", bfloat16)
    assert PRINTER.text(Call("exp", (x,), bfloat16)) == (
        "tc::convert<tc::bfloat16>(tc::exp(tc::convert<float>(x)))"
    )
    y = Var("y", float8_e4m3fn)
    assert PRINTER.text(Binary("add", y, y, float8_e4m3fn)) == (
        "tc::convert<tc::e4m3>(tc::convert<float>(y) + tc::convert<float>(y))"
    )


def test_small_integers_come_back_from_promotion():
    x = Var("x", int8)
    assert PRINTER.text(Binary("add", x, x, int8)) == "int8_t(x + x)"


def test_floor_division_of_sums_keeps_its_parentheses():
    x, y = Var("x", float32), Var("y", float32)
    total = Binary("add", x, y, float32)
    assert PRINTER.text(Binary("floordiv", total, y, float32)) == "tc::floor((x + y) / y)"


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        (float32, int32, "tc::convert<int>(x)"),
        (int32, float32, "float(x)"),
        (int32, float16, "tc::convert<tc::half>(x)"),
        (boolean, float16, "tc::convert<tc::half>(float(x))"),
        (int32, int64, "int64_t(x)"),
        (float32, boolean, "x != 0"),
        (float16, boolean, "tc::convert<float>(x) != 0.0f"),
    ],
)
def test_casts(source: DType, target: DType, text: str):
    assert PRINTER.text(Cast(Var("x", source), target)) == text


def test_loads_go_through_the_checked_accessors():
    buffer = Buffer("A", (const(16),), float32, Scope.GLOBAL)
    load = Load(buffer, (Binary("add", Var("a"), const(1), int32),))
    assert PRINTER.text(load) == "tc::load_global(A + a + 1)"


def test_a_dtype_without_a_type_is_refused():
    with pytest.raises(UnsupportedError, match="float8_e8m0fnu"):
        PRINTER.text(Cast(Var("x", float32), float8_e8m0fnu))


def test_an_access_with_several_indices_was_not_lowered():
    table = Buffer("Table", (const(4), const(8)), int32, Scope.GLOBAL)
    with pytest.raises(LoweringError, match="Table was not lowered"):
        PRINTER.text(Load(table, (Var("a"), const(1))))
