"""Grids that a scalar parameter decides: one kernel, a grid of its own at each call, anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import kernel_on

import tilecore.language as T
from tilecore.hooks.manager import installed_backends
from tilecore.runtime.scalar_grids import bind_scalars, grid_scalars, launch_sizes

BACKENDS = [name for name in installed_backends() if name != "toy"]


def rows_below(limit_dtype: str = "int32") -> Any:
    n = T.dynamic("n")

    @T.prim_func
    def main(
        x: T.Tensor((n, 8), "int32"),
        first: T.Tensor((1,), "int32"),
        count: T.dtype(limit_dtype),
        y: T.Tensor((n, 8), "int32"),
    ):
        with T.Kernel(T.ceildiv(count, 4), 2, threads=32) as (bx, by):
            for i, j in T.Parallel(4, 4):
                y[bx * 4 + i, by * 4 + j] = x[bx * 4 + i, by * 4 + j] + first[0] + 1

    return main


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("backend", [*BACKENDS, "reference"])
def test_each_call_has_the_grid_of_its_own_number(backend: str, dtype: str) -> None:
    kernel = kernel_on(backend, rows_below(dtype))
    first = np.array([5], np.int32)
    for n in (10, 3):
        x = np.arange(n * 8, dtype=np.int32).reshape(n, 8)
        for count in (4, 9, 4, 0, 100, 1, -3, 9):
            y = np.zeros_like(x)
            kernel(x, first, count, y)
            rows = min(n, max(0, -(-count // 4) * 4))
            assert (y[:rows] == x[:rows] + 6).all() and (y[rows:] == 0).all(), (n, count)


def test_scalars_of_a_grid_come_behind_the_sizes() -> None:
    program = rows_below().program
    assert grid_scalars(program) == (2,)
    assert [var.name for var in launch_sizes(program)] == ["n", "count"]


def test_a_launch_is_bound_once_a_number() -> None:
    bound: list[tuple[Any, ...]] = []
    launched: list[tuple[Any, ...]] = []

    def bind(sizes: Any, device: int) -> Any:
        bound.append((sizes, device))
        return lambda *values: launched.append((sizes, values))

    launch = bind_scalars(bind, (1,), (7,), 3)
    for number in (4, 5, 4):
        launch(0x1000, number)
    assert bound == [((7, 4), 3), ((7, 5), 3)]
    assert [sizes for sizes, _ in launched] == [(7, 4), (7, 5), (7, 4)]
