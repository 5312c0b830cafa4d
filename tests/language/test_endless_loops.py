"""``while True`` is a loop of the program that a ``break`` leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import BACKENDS, kernel_on

import tilecore.language as T


@T.prim_func
def of_the_block(x: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        n = T.alloc_var("int32", init=0)
        while True:
            n += 1
            if n % 2 == 0:
                continue
            x[n] = n
            if n > 20:
                break


@T.prim_func
def of_each_iteration(x: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            n = T.alloc_var("int32", init=0)
            while True:
                n += 1
                if n * n > i:
                    break
            x[i] = n


@T.prim_func
def of_each_lane(x: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        lane = T.get_thread_binding()
        at = T.alloc_var("int32")
        at = lane
        while True:
            if at >= 64:
                break
            x[at] = lane
            at += 64


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
@pytest.mark.parametrize("program", [of_the_block, of_each_iteration, of_each_lane])
def test_it_ends_where_it_is_left(program: Any, backend: str) -> None:
    x = np.zeros(64, np.float32)
    kernel_on(backend, program)(x)
    places = np.arange(64)
    expected = {
        "of_the_block": np.where((places % 2 == 1) & (places <= 21), places, 0),
        "of_each_iteration": np.sqrt(places).astype(int) + 1,
        "of_each_lane": places,
    }[program.name]
    np.testing.assert_array_equal(x, expected)
