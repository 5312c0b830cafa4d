"""Iterations of a nest that meet for certain are refused; those that may not are left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import kernel_on

import tilecore.language as T
from tilecore.errors import LanguageError

STATEMENTS = {
    "s[i, 0] = s[i + 1, 0]": lambda s, i, j: _set(s, i, 0, s[i + 1, 0]),
    "s[i, j] = s[i, j + 3]": lambda s, i, j: _set(s, i, j, s[i, j + 3]),
    "s[i, j] = s[i - 1, j + 1]": lambda s, i, j: _set(s, i, j, s[i - 1, j + 1]),
    "s[0, 0] = s[0, 0] + s[i, j]": lambda s, i, j: _set(s, 0, 0, s[0, 0] + s[i, j]),
    "s[i, 0] = max(s[i, 0], s[i, j])": lambda s, i, j: _set(s, i, 0, T.max(s[i, 0], s[i, j])),
    "s[2 * i, 0] = s[2 * i + 2, 0]": lambda s, i, j: _set(s, 2 * i, 0, s[2 * i + 2, 0]),
}
HARMLESS = {
    "another parity": lambda s, i, j: _set(s, 2 * i, j, s[2 * i + 1, j]),
    "the other half": lambda s, i, j: _set(s, i, j, s[i + 4, j]),
    "its own element": lambda s, i, j: _set(s, i, j, s[i, j] + 1),
    "chosen lazily": lambda s, i, j: _set(s, i, j, T.if_then_else(i < 0, s[i + 1, j], s[i, j])),
    "places in memory": lambda s, i, j: _set(s, T.cast(s[7, 7], "int32") + i, j, s[i + 4, j]),
}


def _set(buffer: Any, i: Any, j: Any, value: Any) -> None:
    buffer[i, j] = value


def _program(statement: Any, scope: str) -> Any:
    @T.prim_func
    def main(x: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=32):
            s = {"global": x, "shared": T.alloc_shared((16, 16), "float32")}[scope]
            if scope == "shared":
                T.copy(x, s)
            for i, j in T.Parallel(4, 8):
                statement(s, i, j)
            if scope == "shared":
                T.copy(s, x)

    return main


@pytest.mark.parametrize("scope", ["global", "shared"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_iterations_that_meet_are_refused(name: str, scope: str) -> None:
    with pytest.raises(LanguageError, match="meet in one element of") as caught:
        kernel_on("cpu_llvm", _program(STATEMENTS[name], scope))
    assert caught.value.loc is not None and caught.value.hint is not None


@pytest.mark.parametrize("name", HARMLESS)
def test_others_run(name: str) -> None:
    x = np.zeros((16, 16), np.float32)
    x[4:8] = 1
    y = x.copy()
    kernel_on("cpu_llvm", _program(HARMLESS[name], "global"))(x)
    kernel_on("reference", _program(HARMLESS[name], "global"))(y)
    np.testing.assert_array_equal(x, y)


def test_places_by_a_name_are_those_that_it_stands_for() -> None:
    @T.prim_func
    def own(x: T.Tensor((64,), "float32"), order: T.Tensor((64,), "int32")):
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(32):
                at = bx * 32 + i
                old = T.max(x[at], 1)
                x[at] = old * 2
            for i in T.Parallel(32):
                to = order[bx * 32 + i]
                x[to] = x[to] + 1
            for i in T.Parallel(32):
                half = (bx * 32 + i) // 2 * 2 + i % 2
                x[half] += 1

    @T.prim_func
    def next_one(x: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                at = i + 1
                x[i] = x[at]

    x = np.arange(64, dtype=np.float32)
    kernel_on("cpu_llvm", own)(x, np.arange(64, dtype=np.int32) ^ 1)
    np.testing.assert_array_equal(x, np.maximum(np.arange(64), 1) * 2 + 2)
    with pytest.raises(LanguageError, match="meet in one element of x"):
        kernel_on("cpu_llvm", next_one)


def test_under_a_condition_nobody_can_say_ahead() -> None:
    @T.prim_func
    def halves(x: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for step in (32, 16, 8, 4, 2, 1):
                for i in T.Parallel(64):
                    if i < step:
                        x[i] += x[i + step]

    x = np.arange(64, dtype=np.float32)
    kernel_on("cpu_llvm", halves)(x)
    assert x[0] == 64 * 63 / 2
