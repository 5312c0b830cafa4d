"""Size expressions: the compiled function agrees with the IR's own constant folding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilecore.errors import LaunchError, UnsupportedError
from tilecore.ir.dtypes import float32, int32
from tilecore.ir.expr import Call, Const, Expr, Select, Var, binary, const, substitute
from tilecore.runtime.sizes import compile_sizes

M, N = Var("M"), Var("N")

expressions = st.recursive(
    st.sampled_from([M, N]) | st.integers(1, 64).map(const),
    lambda inner: (
        st.tuples(st.sampled_from(["add", "sub", "mul", "min", "max"]), inner, inner)
        | st.tuples(st.sampled_from(["floordiv", "floormod"]), inner, st.integers(1, 16).map(const))
    ).map(lambda parts: binary(*parts)),
    max_leaves=5,
)


@given(st.lists(expressions, min_size=1, max_size=3), st.integers(0, 500), st.integers(0, 500))
def test_agrees_with_constant_folding(exprs: list[Expr], m: int, n: int) -> None:
    folded = [substitute(expr, {M: const(m), N: const(n)}) for expr in exprs]
    values = compile_sizes(exprs, (M, N))((m, n))
    for value, expected in zip(values, folded, strict=True):
        assert isinstance(expected, Const)
        if abs(value) < 2**31:  # folding wraps in int32; the host does not, and checks ranges
            assert value == expected.value


def test_select_and_no_symbols() -> None:
    choice = Select(binary("lt", M, const(10)), const(1), binary("floordiv", M, const(4)), int32)
    assert [compile_sizes((choice,), (M,))((m,)) for m in (3, 10, 40)] == [(1,), (2,), (10,)]
    assert compile_sizes((const(7), const(8)), ())(()) == (7, 8)
    assert compile_sizes((), (M,))((1,)) == ()


def test_what_the_host_cannot_know_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="K is not a dynamic size"):
        compile_sizes((Var("K"),), (M, N))
    with pytest.raises(UnsupportedError, match="Call"):
        compile_sizes((Call("exp", (M,), float32),), (M, N))


def test_division_by_zero_names_the_sizes() -> None:
    with pytest.raises(LaunchError, match=r"divides by zero.*sizes \(0, 3\)"):
        compile_sizes((binary("floordiv", N, M),), (M, N))((0, 3))
