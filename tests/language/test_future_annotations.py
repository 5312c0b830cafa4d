"""Annotations kept as strings: the author's file has the future import."""

from __future__ import annotations

import language_support as support
import numpy as np
import pytest

import tilecore.language as T
from tilecore.errors import LanguageError


def copy_rows(rows, columns, kind):
    # `rows`, `columns` and `kind` occur in the annotations only, so no closure holds them.
    @T.prim_func
    def main(A: T.Tensor((rows, columns), kind), B: T.Tensor[[rows, columns], kind], n: T.int32):
        with T.Kernel(1):
            T.copy(A, B)
            B[0, 0] = n

    return main


def test_annotations_see_the_factorys_arguments():
    function = copy_rows(3, 4, "float16")
    a, b, n = function.program.params
    assert a.static_shape == b.static_shape == (3, 4)
    assert (n.name, n.dtype.name) == ("n", "int32")
    out = support.result(
        function, "B", A=np.ones((3, 4), np.float16), B=np.zeros((3, 4), np.float16), n=7
    )
    assert out[0, 0] == 7 and out[1, 1] == 1


def test_an_annotation_that_cannot_be_evaluated():
    with pytest.raises(LanguageError, match="the annotation of A cannot be evaluated") as caught:

        @T.prim_func
        def main(A: T.Tensor((nowhere,), "int32")):  # noqa: F821
            with T.Kernel(1):
                T.clear(A)

    assert caught.value.loc.file == __file__


def test_macro_references_by_string():
    @T.macro
    def add(x: T.Ref, amount):
        x += amount

    @T.prim_func
    def main(R: T.Tensor((2,), "int32")):
        with T.Kernel(1):
            x = T.alloc_var(T.int32, init=1)
            add(x, 4)
            add(R[1], 9)
            R[0] = x

    np.testing.assert_array_equal(support.result(main, "R", R=np.array([0, 1], np.int32)), [5, 10])
