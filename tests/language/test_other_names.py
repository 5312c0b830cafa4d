"""What other languages and libraries call things is answered with what is written here."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.errors import ArgumentError, BackendError, LanguageError
from tilecore.language.refused import other_names, reason_of


@T.prim_func
def fine(x: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(8):
            x[i] = 1


@pytest.mark.parametrize("name", other_names())
def test_each_name_is_unknown_and_what_it_is_here_exists(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no '{name}': here it is "):
        getattr(T, name)
    assert reason_of(name) is None
    for written in re.findall(r"\bT\.(\w+)", other_names()[name]):
        assert getattr(T, written) is not None
    for written in re.findall(r"\btilecore\.(\w+)", other_names()[name]):
        assert getattr(tilecore, written) is not None


def _traced(body: Any) -> None:
    @T.prim_func
    def main(x: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                x[i] = body(x[i])


@pytest.mark.parametrize(
    ("function", "hint"),
    [
        (np.exp, "write T.exp"),
        (lambda x: np.maximum(x, 0), "write T.max"),
        (np.square, "write x * x"),
        (np.cbrt, "NumPy computes while the program is traced"),
    ],
)
def test_functions_of_numpy_name_their_counterpart(function: Any, hint: str) -> None:
    with pytest.raises(LanguageError, match=f"NumPy's .* of a runtime value.*{re.escape(hint)}"):
        _traced(function)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
def test_numpy_scalars_are_operands_on_both_sides(kind: Any) -> None:
    @T.prim_func
    def main(x: T.Tensor((8,), "float32"), y: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                two = kind(2)
                less = T.if_then_else(two < x[i], two - x[i], x[i] - two)
                y[i] = two * x[i] + x[i] / two + two / (x[i] + 1) + less

    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    tilecore.compile(main, device="reference")(x, y)
    np.testing.assert_allclose(y, 2 * x + x / 2 + 2 / (x + 1) - abs(x - 2), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("sum", "T.reduce_sum"), ("T", "T.transpose"), ("shap", "shape"), ("colour", "it has")],
)
def test_attributes_of_arrays_name_their_counterpart(name: str, hint: str) -> None:
    def at_a_buffer() -> None:
        @T.prim_func
        def main(x: T.Tensor((8,), "float32")):
            with T.Kernel(1, threads=32):
                getattr(x, name)

    with pytest.raises(AttributeError, match=rf"{__file__}:\d+: global buffer x \(8\).*{hint}"):
        at_a_buffer()


def test_a_scalar_prints_as_what_it_is() -> None:
    n = T.dynamic("n")
    assert repr(n + 1) == "<int32 scalar n + 1; T.print shows it when the program runs>"


@pytest.mark.parametrize(
    ("option", "hint"),
    [({"target": "x"}, "backend="), ({"fastmath": True}, "fast_math"), ({"zzz": 1}, "leave")],
)
def test_options_of_other_compilers(option: Any, hint: str) -> None:
    for call in (lambda: tilecore.compile(fine, **option), lambda: tilecore.jit(**option)):
        with pytest.raises(ArgumentError, match="has no argument .* expected .*backend") as caught:
            call()
        assert caught.value.loc is not None and caught.value.loc.file == __file__
        assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"), [("cpu", "cpu_llvm"), ("cpu_lvm", "cpu_llvm"), ("CPU", "cpu_llvm")]
)
def test_backends_that_are_meant(name: str, meant: str) -> None:
    with pytest.raises(BackendError, match=f"did you mean {meant}"):
        tilecore.compile(fine, name)


def test_dtypes_that_are_meant() -> None:
    with pytest.raises(LanguageError, match="did you mean float32"):
        T.dtype("flaot32")
