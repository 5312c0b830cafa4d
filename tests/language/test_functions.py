"""T.prim_func: parameters, closures, what a program may not be."""

from pathlib import Path

import language_support as support
import numpy as np
import pytest

import tilecore.language as T
from tilecore.errors import LanguageError
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.parser import parse_program

SCALE = 3


def test_parameters():
    n, m = T.dynamic("n, m", multiple_of=8, min=8, max=64)

    @T.prim_func
    def main(
        A: T.Tensor[[n, 4], T.float16],
        B: T.StridedTensor((n, 4), (m, 1), "float32"),
        C: T.Buffer((4,), "int8"),
        size: T.int32,
        factor: float,
        flag: T.bool,
    ):
        with T.Kernel(n):
            T.clear(C)

    a, b, c, size, factor, flag = main.params
    assert isinstance(a, Buffer) and a.scope is Scope.GLOBAL and a.strides is None
    assert [str(s.name) for s in main.program.symbols] == ["m", "n"]
    symbol = main.program.symbols[0]
    assert (symbol.multiple_of, symbol.lower, symbol.upper) == (8, 8, 64)
    assert b.strides[0].name == "m"
    assert c.dtype.name == "int8"
    assert [p.dtype.name for p in (size, factor, flag)] == ["int32", "float32", "bool"]
    support.body_text(main)


def test_absent_parameters():
    def scaled(bias_type):
        @T.prim_func
        def main(x: T.Tensor((4,), "float32"), bias: bias_type, y: T.Tensor((4,), "float32")):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(4):
                    y[i] = x[i] * 2 if bias is None else x[i] * 2 + bias[i]

        return main

    x, bias = np.arange(4, dtype=np.float32), np.full(4, 3, np.float32)
    without, with_bias = scaled(None), scaled(T.Tensor((4,), "float32"))
    assert [param.name for param in without.params] == ["x", "y"]
    assert [param.name for param in with_bias.params] == ["x", "bias", "y"]
    y = support.result(without, "y", x=x, y=np.zeros(4, np.float32))
    np.testing.assert_array_equal(y, 2 * x)
    y = support.result(with_bias, "y", x=x, bias=bias, y=np.zeros(4, np.float32))
    np.testing.assert_array_equal(y, 2 * x + 3)


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (T.Tensor, "has no shape"),
        (list, "no type of the language"),
        ("not_a_name_at_all", "cannot be evaluated"),
        (3, "no type of the language"),
    ],
)
def test_bad_annotations(annotation, message):
    def main(A: annotation):
        with T.Kernel(1):
            pass

    with pytest.raises(LanguageError, match=message):
        T.prim_func(main)


def test_parameters_must_be_plain():
    def no_annotation(A):
        pass

    def default(n: T.int32 = 3):
        pass

    def variadic(*a: T.int32):
        pass

    for function, message in (
        (no_annotation, "has no annotation"),
        (default, "has a default"),
        (variadic, "is variadic"),
    ):
        with pytest.raises(LanguageError, match=message) as caught:
            T.prim_func(function)
        assert caught.value.loc.file == __file__


def test_a_program_must_launch_and_return_nothing():
    def nothing(A: T.Tensor((1,), "int32")):
        if False:
            with T.Kernel(1):
                A[0] = 1

    def returning(A: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            A[0] = 1
        return A

    with pytest.raises(LanguageError, match="launches nothing"):
        T.prim_func(nothing)
    with pytest.raises(LanguageError, match="returns a value"):
        T.prim_func(returning)


def test_sizes_must_be_known_at_the_call():
    n = T.dynamic("n")

    def main(A: T.Tensor((4,), "int32")):
        with T.Kernel(n):
            A[0] = 1

    with pytest.raises(LanguageError, match="value n is used where it does not exist|not known"):
        T.prim_func(main)


def test_dynamic_sizes():
    n = T.dynamic("n")
    assert isinstance(n, T.Var) and isinstance(T.Var("k", "int64"), T.Var)
    assert T.Var("n").expr == n.expr == T.symbolic("n").expr
    a, b = T.dynamic("a b", "int64")
    assert (a + b).dtype == "int64"
    for bad in ("", "2n", "a-b"):
        with pytest.raises(LanguageError, match="plain name|needs a name"):
            T.dynamic(bad)
    with pytest.raises(LanguageError, match="must be an index"):
        T.dynamic("n", "float32")
    with pytest.raises(LanguageError, match="multiple_of must be positive"):
        T.dynamic("n", multiple_of=0)


def test_outputs():
    @T.prim_func
    def main(A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32"), n: T.int32):
        with T.Kernel(1):
            T.copy(A, B)

    assert main.with_outputs(-2).program.outputs == (1,)
    assert main.with_outputs([0, 1]).program.outputs == (0, 1)
    assert main.program.outputs == ()
    assert parse_program(main.script()) == main.program
    assert Path(__file__).name in main.script(locs=True)
    for bad in (3, -4, "x", [1, 1], 2):
        with pytest.raises(LanguageError):
            main.with_outputs(bad)
    with pytest.raises(LanguageError, match="not yet compiled"):
        main(1, 2, 3)


def test_closures_globals_and_helpers_are_seen_as_in_python():
    offset = 2

    def helper(x):
        return x * SCALE + offset

    class Table:
        values = (1, 2)

        def pick(self, k):
            return self.values[k]

    table = Table()

    @T.prim_func
    def main(R: T.Tensor((3,), "int32")):
        """A docstring."""
        with T.Kernel(3) as b:
            local = [helper(k) for k in range(2)]
            R[b] = helper(b) + sum(local) + table.pick(1) + (lambda v: v + 1)(b)

    out = support.result(main, "R", R=np.zeros(3, np.int32))
    b = np.arange(3)
    np.testing.assert_array_equal(out, b * 3 + 2 + (2 + 5) + 2 + b + 1)


def test_a_later_binding_of_the_closure_is_seen():
    @T.macro
    def outer(R):
        inner(R)

    @T.macro
    def inner(R):
        R[0] = 5

    @T.prim_func
    def main(R: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            outer(R)

    assert support.result(main, "R", R=np.zeros(1, np.int32))[0] == 5


def test_source_must_be_available():
    scope = {"T": T}
    exec("def main(A: T.Tensor((1,), 'int32')):\n    pass\n", scope)
    with pytest.raises(LanguageError, match="source of main is not available"):
        T.prim_func(scope["main"])


def test_unsupported_python_is_named_with_its_line():
    def with_try(A: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            try:
                A[0] = 1
            finally:
                pass

    def with_walrus(A: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            A[0] = (x := 1) + x

    def with_else(A: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            for i in range(3):
                A[0] = i
            else:
                A[0] = 1

    def with_class(A: T.Tensor((1,), "int32")):
        class C:
            pass

    for function, word in (
        (with_try, "`try`"),
        (with_walrus, ":="),
        (with_else, "for ... else"),
        (with_class, "`class`"),
    ):
        with pytest.raises(LanguageError, match=word) as caught:
            T.prim_func(function)
        first = function.__code__.co_firstlineno
        assert caught.value.loc.file == __file__
        assert first < caught.value.loc.line < first + 8


def test_lambdas_are_no_programs():
    with pytest.raises(LanguageError, match="not a `def`"):
        T.prim_func(lambda: None)
    with pytest.raises(LanguageError, match="decorates a function"):
        T.prim_func(3)
