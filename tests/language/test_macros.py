# ruff: noqa: RET504, F841 - the tests need these very statements
"""T.macro: hygiene, returned values, methods, macros that inline themselves."""

import language_support as support
import numpy as np
import pytest

import tilecore.language as T
from tilecore.errors import LanguageError, UnsupportedError


def test_macros_are_hygienic_and_return_values():
    @T.macro
    def scaled(x, factor=2):
        tmp = T.alloc_shared((4,), "int32")
        tmp[0] = x * factor
        y = tmp[0] + 1
        return y, tmp

    @T.prim_func
    def main(R: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            tmp = T.alloc_shared((4,), "int32")
            tmp[0] = 100
            y, other = scaled(R[3], factor=3)
            z, _ = scaled(y)
            R[0] = y
            R[1] = z
            R[2] = tmp[0] + other[0]

    out = support.result(main, "R", R=np.array([0, 0, 0, 4], np.int32))
    np.testing.assert_array_equal(out[:3], [13, 27, 112])
    assert "tmp_1" in support.body_text(main)


def test_macro_arguments_are_taken_by_value():
    @T.macro
    def change(x):
        x = x + 1  # a new name of the macro
        return x

    @T.prim_func
    def main(R: T.Tensor((2,), "int32")):
        with T.Kernel(1):
            x = T.alloc_var(T.int32, init=1)
            y = change(x)
            x = 10
            R[0], R[1] = x, y

    np.testing.assert_array_equal(support.result(main, "R", R=np.zeros(2, np.int32)), [10, 2])


@T.macro
def counted_down(R, n):
    R[n] = n
    if n > 0:
        counted_down(R, n - 1)


@T.macro
def endless(R):
    R[0] = 1
    other_endless(R)


@T.macro
def other_endless(R):
    endless(R)


def test_macros_that_inline_themselves():
    """At module level and in a function; as long as what is known then ends it."""

    @T.macro
    def doubled_down(R, n):
        R[n] = 2 * n
        if n > 0:
            doubled_down(R, n - 1)

    def program(macro):
        @T.prim_func
        def main(R: T.Tensor((6,), "int32")):
            with T.Kernel(1, threads=32):
                macro(R, 5)

        return main

    for factor, macro in ((1, counted_down), (2, doubled_down)):
        result = support.result(program(macro), "R", R=np.zeros(6, np.int32))
        assert result.tolist() == [factor * n for n in range(6)]

    with pytest.raises(LanguageError, match="macro .*endless is inlined in itself without an end"):

        @T.prim_func
        def never(R: T.Tensor((6,), "int32")):
            with T.Kernel(1, threads=32):
                endless(R)

    with pytest.raises(ZeroDivisionError):  # the author's own errors come through as they are

        @T.prim_func
        def fails(R: T.Tensor((6,), "int32")):
            with T.Kernel(1, threads=32):
                for i in T.serial(3):
                    if R[i] > 0:
                        R[i] = 1 // len([])

    @T.prim_func
    def afterwards(R: T.Tensor((6,), "int32")):
        with T.Kernel(1, threads=32):
            counted_down(R, 5)

    assert afterwards.script().count("R[") == 6


def test_macro_misuse():
    @T.macro
    def early(R):
        if R[0] > 0:
            return 1
        return 2

    @T.macro
    def by_reference(x: T.Ref):
        x = 1

    with pytest.raises(LanguageError, match="`return` under runtime control flow"):

        @T.prim_func
        def main(R: T.Tensor((2,), "int32")):
            with T.Kernel(1):
                early(R)

    with pytest.raises(LanguageError, match="taken by reference"):

        @T.prim_func
        def other(R: T.Tensor((2,), "int32")):
            with T.Kernel(1):
                by_reference(R[0] + 1)

    with pytest.raises(LanguageError, match="call of macro by_reference"):

        @T.prim_func
        def third(R: T.Tensor((2,), "int32")):
            with T.Kernel(1):
                by_reference()

    with pytest.raises(LanguageError, match="outside of a program"):
        early(None)
    with pytest.raises(UnsupportedError, match="hygienic"):
        T.macro(hygienic=False)


def test_static_returns_and_methods():
    class Helper:
        def __init__(self, k):
            self.k = k

        @T.macro
        def put(self, R, value):
            if self.k == 0:
                return
            R[self.k] = value

    first, second = Helper(0), Helper(1)

    @T.prim_func
    def main(R: T.Tensor((2,), "int32")):
        with T.Kernel(1):
            first.put(R, 7)
            second.put(R, 8)

    np.testing.assert_array_equal(support.result(main, "R", R=np.zeros(2, np.int32)), [0, 8])
