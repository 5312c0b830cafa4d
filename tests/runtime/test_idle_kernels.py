"""Kernels whose outputs are all empty are not launched, and no others."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilecore
import tilecore.language as T
from tests.runtime.programs import program, tensor
from tilecore.ir.expr import Var
from tilecore.runtime.idle_kernels import idle_kernels

M, N = Var("M"), Var("N")
SIZE = st.integers(0, 3)


@given(SIZE, SIZE)
def test_a_kernel_is_idle_when_all_that_it_writes_is_empty(m: int, n: int) -> None:
    made = program(tensor("A", M), tensor("C", M, N), symbols=(M, N))
    is_idle = idle_kernels(made)
    assert is_idle("demo", (m, n)) == (m * n == 0)
    assert not is_idle("another", (m, n))


@given(SIZE, SIZE)
def test_a_second_output_or_a_workspace_counts(m: int, n: int) -> None:
    one, two = tensor("C", M), tensor("D", N)
    first, second = (
        program(one, two, symbols=(M, N), writes=name).kernels[0].body for name in "CD"
    )
    made = program(one, two, symbols=(M, N))
    both = dataclasses.replace(made.kernels[0], body=(*first, *second))
    assert idle_kernels(dataclasses.replace(made, kernels=(both,)))("demo", (m, n)) == (m + n == 0)
    inner = program(one, symbols=(M, N), workspaces=(two,))
    inner = dataclasses.replace(inner, kernels=(both,))
    assert not idle_kernels(inner)("demo", (0, 0))


def test_a_kernel_without_outputs_is_not_idle() -> None:
    assert not idle_kernels(program(tensor("A", M), symbols=(M,), writes="C"))("demo", (0,))


@pytest.mark.parametrize("backend", ["cuda_ampere", "cuda_hopper", "rocm_cdna3"])
def test_blocks_of_a_fixed_grid_do_not_touch_empty_tensors(backend: str) -> None:
    """The grid does not know that there are no rows; what is empty has no place to copy from."""
    rows = T.dynamic("rows")

    @T.prim_func
    def doubled(X: T.Tensor((rows, 64), "float16"), Y: T.Tensor((rows, 64), "float16")):
        with T.Kernel(4, threads=128) as bx:
            x = T.alloc_shared((64, 64), "float16")
            for part in T.Pipelined(2, num_stages=2):
                first = (bx * 2 + part) * 64
                T.copy(X[first : first + 64, 0:64], x)
                for i, j in T.Parallel(64, 64):
                    Y[first + i, j] = x[i, j] + x[i, j]

    kernel = tilecore.compile(doubled, backend=backend, device="emulator")
    for count in (0, 300):
        x = np.arange(count * 64).reshape(count, 64).astype(np.float16)
        y = np.full((count, 64), np.nan, np.float16)
        kernel(x, y)
        np.testing.assert_array_equal(y, x + x)
