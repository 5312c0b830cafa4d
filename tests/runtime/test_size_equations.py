"""Sizes that no axis gives directly are solved from linear extents, or refused with the place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.programs import RecordingLauncher, program, tensor
from tilecore.errors import ArgumentError, UnsupportedError
from tilecore.ir.dtypes import int4
from tilecore.ir.expr import Expr, Var, binary, const
from tilecore.runtime.caller import KernelCaller
from tilecore.runtime.size_equations import size_equations

M, N, K = Var("M"), Var("N"), Var("K")


def times(a: Expr, b: Expr | int) -> Expr:
    return binary("mul", a, const(b) if isinstance(b, int) else b)


def plus(a: Expr, b: Expr | int) -> Expr:
    return binary("add", a, const(b) if isinstance(b, int) else b)


def f32(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 200))
def test_linear_extents_are_solved(factor: int, offset: int, size: int) -> None:
    extent = plus(times(M, factor), offset)
    call = KernelCaller(program(tensor("A", extent), tensor("C", M), symbols=(M,), outputs=(1,)),
                        RecordingLauncher())  # fmt: skip
    assert call(f32(factor * size + offset)).shape == (size,)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))
def test_products_of_sizes_are_solved_in_turn(m: int, n: int, k: int) -> None:
    prog = program(
        tensor("A", plus(times(N, M), K), 2), tensor("B", times(M, 3)), tensor("C", K, N, M),
        tensor("D", plus(K, 1)), symbols=(M, N, K), outputs=(2,),
    )  # fmt: skip
    call = KernelCaller(prog, RecordingLauncher())
    assert call(f32(n * m + k, 2), f32(3 * m), f32(k + 1)).shape == (k, n, m)


def test_an_extent_that_no_size_has_is_an_error() -> None:
    prog = program(tensor("A", times(M, 4)), tensor("C", M), symbols=(M,), outputs=(1,))
    call = KernelCaller(prog, RecordingLauncher())
    with pytest.raises(ArgumentError, match=r"no single size M fits A\.shape\[0\].*got 10"):
        call(f32(10))
    prog = program(tensor("A", plus(M, 4)), tensor("C", M), symbols=(M,), outputs=(1,))
    with pytest.raises(ArgumentError, match=r"no single size M.*got 3"):
        KernelCaller(prog, RecordingLauncher())(f32(3))


def test_a_size_behind_a_factor_of_zero_is_an_error() -> None:
    prog = program(tensor("A", times(M, N)), tensor("B", N), tensor("C", M, 2), symbols=(M, N),
                   outputs=(2,))  # fmt: skip
    call = KernelCaller(prog, RecordingLauncher())
    assert call(f32(6), f32(3)).shape == (2, 2)
    with pytest.raises(ArgumentError, match=r"no single size M fits A\.shape\[0\].*N = 0"):
        call(f32(0), f32(0))


def test_an_output_that_is_passed_must_agree() -> None:
    prog = program(tensor("A", times(M, 4)), tensor("C", M), symbols=(M,), outputs=(1,))
    call = KernelCaller(prog, RecordingLauncher())
    call(f32(8), f32(2))
    with pytest.raises(ArgumentError, match="A has the wrong shape"):
        call(f32(8), f32(3))


@pytest.mark.parametrize("op", ["floordiv", "floormod", "min"])
def test_what_is_not_linear_is_refused_when_compiled(op: str) -> None:
    prog = program(tensor("A", binary(op, M, const(4))), tensor("C", M), symbols=(M,), outputs=(1,))
    with pytest.raises(UnsupportedError, match="dynamic size M follows from no shape"):
        KernelCaller(prog, RecordingLauncher())


def test_packed_axes_tell_nothing() -> None:
    assert size_equations([tensor("A", times(M, 4), dtype=int4)], (M,)) == ()


def test_a_program_without_inputs_can_be_called_again() -> None:
    call = KernelCaller(program(tensor("C", 3), outputs=(0,)), RecordingLauncher())
    entered = []
    call.on_entry = entered.append
    for _ in range(3):
        assert call().shape == (3,)
    assert all(entry().shape == (3,) for entry in entered)
