"""Vectors of a few elements, named by their indices: the same results as element by element."""

from __future__ import annotations

from typing import Any

import language_support as support
import ml_dtypes
import numpy as np
import pytest
from compiling import BACKENDS, kernel_on

import tilecore.language as T
from tilecore.errors import LanguageError
from tilecore.ir import stmts as S

BINARY = {
    "add2": np.add, "sub2": np.subtract, "mul2": np.multiply,
    "max2": np.maximum, "min2": np.minimum,
}  # fmt: skip
KINDS = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def pairs(name: str, dtype: str) -> Any:
    function = getattr(T, name)

    @T.prim_func
    def main(A: T.Tensor((256,), dtype), B: T.Tensor((256,), dtype), C: T.Tensor((256,), dtype)):
        with T.Kernel(1, threads=128):
            at = T.Ramp(T.get_thread_binding() * 2, 1, 2)
            C[at] = function(A[at], B[at])

    return main


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
@pytest.mark.parametrize("name", BINARY)
def test_pairs_of_operands(name: str, backend: str) -> None:
    for dtype in KINDS if name == "add2" else ("float16",):
        a, b = (np.linspace(low, 3, 256).astype(KINDS[dtype]) for low in (-3, 9))
        c = np.zeros_like(a)
        kernel_on(backend, pairs(name, dtype))(a, b, c)
        expected = BINARY[name](a.astype(np.float64), b.astype(np.float64)).astype(c.dtype)
        np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
def test_all_values_are_read_before_one_is_written(backend: str) -> None:
    @T.prim_func
    def main(A: T.Tensor((4, 10), "float32"), B: T.Tensor((4, 2), "float32")):
        with T.Kernel(1, threads=32):
            for r in T.Parallel(4):
                A[r, T.Ramp(1, 1, 4)] = A[r, T.Ramp(0, 1, 4)]
                A[r, T.Ramp(9, -2, 2)] = 2.0 * A[r, T.Ramp(5, 1, 2)] + T.Broadcast(r, 2)
                both = T.fma2(A[r, T.Ramp(0, 1, 2)], A[r, T.Ramp(6, 2, 2)], A[r, T.Ramp(2, 1, 2)])
                B[r, T.Ramp(0, 1, 2)] = T.abs2(-both)
                A[r, 6] = T.extract_lane(both, 1)

    a = np.arange(40, dtype=np.float32).reshape(4, 10)
    b = np.zeros((4, 2), np.float32)
    expected = a.copy()
    expected[:, 1:5] = a[:, :4]
    expected[:, [9, 7]] = 2 * expected[:, 5:7] + np.arange(4)[:, None]
    sums = expected[:, 0:2] * expected[:, 6:9:2] + expected[:, 2:4]
    expected[:, 6] = sums[:, 1]
    kernel_on(backend, main)(a, b)
    np.testing.assert_array_equal(a, expected)
    np.testing.assert_array_equal(b, np.abs(sums))


def test_a_vector_becomes_its_elements() -> None:
    assert len(support.statements(pairs("add2", "float32"), S.Store)) == 2


def test_misuses() -> None:
    def lengths(A):
        A[T.Ramp(0, 1, 2)] = A[T.Ramp(0, 1, 4)]

    def triples(A):
        A[T.Ramp(0, 1, 3)] = T.add2(A[T.Ramp(0, 1, 3)], A[T.Ramp(0, 1, 3)])

    def mixed(A):
        A[T.Ramp(0, 1, 2)] = T.mul2(A[T.Ramp(0, 1, 2)], T.Broadcast(T.float16(1), 2))

    def operands(A):
        A[T.Ramp(0, 1, 2)] = T.abs2(A[T.Ramp(0, 1, 2)], A[T.Ramp(0, 1, 2)])

    def lane(A):
        A[0] = T.extract_lane(A[T.Ramp(0, 1, 2)], 2)

    def none(A):
        A[0] = T.extract_lane(A[0], 0)

    for body, message in (
        (lengths, "vectors of different lengths"),
        (triples, "T.add2 takes pairs; .*got a vector of 3"),
        (mixed, "pairs of the same dtype"),
        (operands, r"T.abs2 takes 1 operand\(s\)"),
        (lane, "lane"),
        (none, "T.extract_lane takes a vector"),
    ):
        macro = T.macro(body)
        with pytest.raises(LanguageError, match=message):

            @T.prim_func
            def main(A: T.Tensor((64,), "float32")):
                with T.Kernel(1, threads=32):
                    macro(A)  # noqa: B023
