"""tilecore.jit in both styles, run by the reference."""

from __future__ import annotations

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.errors import ArgumentError, LanguageError
from tilecore.language.jit import is_eager
from tilecore.language.jit_keys import freeze

RNG = np.random.default_rng(5)


@tilecore.jit(device="reference")
def add(A, B, scale: T.float32, block: int = 8, dtype: str = "float32"):
    M, N = T.const("M N")
    A: T.Tensor[[M, N], dtype]
    B: T.Tensor[[M, N], dtype]
    C = T.empty((M, N), dtype)
    with T.Kernel(T.ceildiv(M, block), threads=64) as bx:
        for i, j in T.Parallel(block, N):
            if bx * block + i < M:
                C[bx * block + i, j] = A[bx * block + i, j] * scale + B[bx * block + i, j]
    return C


@tilecore.jit(out_idx=-1, device="reference")
def copy_factory(M, N, dtype="float32"):
    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype)):
        with T.Kernel(M) as bx:
            T.copy(A[bx, :], B[bx, :])

    return main


@tilecore.jit(device="reference")
@T.prim_func
def fixed(A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32")):
    with T.Kernel(1):
        T.copy(A, B)


def test_the_style_is_recognised():
    assert add.is_eager and not copy_factory.is_eager
    assert is_eager(add.function)


def test_eager_runs_and_caches_by_shape_and_dtype():
    a, b = RNG.standard_normal((2, 10, 3)).astype(np.float32)
    np.testing.assert_allclose(add(a, b, 2.0), a * 2.0 + b, rtol=1e-6)
    np.testing.assert_allclose(add(a, b, -1.0), b - a, rtol=1e-6)
    assert add.compile(a, b, 2.0) is add.compile(a, b, 3.0)  # a runtime scalar
    assert add.compile(a, b, 2.0) is not add.compile(a, b, 2.0, block=4)
    assert add.compile(a[:5], b[:5], 2.0) is not add.compile(a, b, 2.0)
    half = a.astype(np.float16)
    with pytest.raises(ArgumentError, match="argument A has another dtype"):
        add(half, half, 1.0)
    np.testing.assert_allclose(add(half, half, 1.0, dtype="float16"), half * 2, rtol=1e-3)


def test_eager_programs_have_concrete_sizes():
    a = np.zeros((10, 3), np.float32)
    program = add.trace(a, a, 1.0)
    assert [p.name for p in program.params] == ["A", "B", "scale", "C"]
    assert program.outputs == (3,)
    assert program.params[3].static_shape == (10, 3)
    assert program.symbols == ()


def test_eager_compile_by_sizes():
    kernel = add.compile(scale=1.0, M=6, N=2)
    assert kernel.program == add.trace(
        np.zeros((6, 2), np.float32), np.zeros((6, 2), np.float32), 1.0
    )
    with pytest.raises(LanguageError, match="dimension N is not determined"):
        add.compile(scale=1.0, M=6)
    with pytest.raises(ArgumentError, match="must be an integer"):
        add.compile(scale=1.0, M=6.5, N=1)


def test_eager_argument_errors():
    a = np.zeros((4, 4), np.float32)
    with pytest.raises(ArgumentError, match="missing a required argument: 'scale'"):
        add(a, a)
    with pytest.raises(ArgumentError, match="axis 0 of argument B does not fit; expected 4, got 5"):
        add(a, np.zeros((5, 4), np.float32), 1.0)
    with pytest.raises(ArgumentError, match="another rank"):
        add(a, a[0], 1.0)


def test_sizes_in_linear_forms_are_solved():
    @tilecore.jit(device="reference")
    def pairs(A, B):
        N = T.const("N")
        B: T.Tensor[[2 * N + 1], T.int32]
        A: T.Tensor[[N], T.int32]
        with T.Kernel(N) as i:
            B[2 * i + 1] = A[i]

    b = np.zeros(7, np.int32)
    assert pairs(np.array([1, 2, 3], np.int32), b) is None
    np.testing.assert_array_equal(b, [0, 1, 0, 2, 0, 3, 0])
    with pytest.raises(ArgumentError, match=r"does not fit; expected 2 \* N \+ 1, got 6"):
        pairs(np.zeros(3, np.int32), np.zeros(6, np.int32))


def test_dynamic_sizes_share_one_program():
    @tilecore.jit(device="reference")
    def double(A):
        n = T.dynamic("n")
        A: T.Tensor[[n], T.float32]
        B = T.empty((n,), "float32")
        with T.Kernel(T.ceildiv(n, 4)) as b:
            for i in T.Parallel(4):
                if b * 4 + i < n:
                    B[b * 4 + i] = A[b * 4 + i] * 2
        return B

    for n in (1, 4, 9):
        a = RNG.standard_normal(n).astype(np.float32)
        np.testing.assert_allclose(double(a), a * 2)
    assert double.trace(np.zeros(3, np.float32)) == double.trace(np.zeros(8, np.float32))


def test_several_outputs_and_repeated_calls():
    @tilecore.jit(device="reference")
    def split(A, n: T.int32, factors: tuple = (1, 2), bias: float = 0.0):
        A: T.Tensor[[4], T.float32]
        B = T.empty((4,), "float32")
        C = T.empty((4,), "float32")
        with T.Kernel(4) as i:
            B[i] = A[i] * factors[0] + n + bias
            C[i] = A[i] * factors[1]
        return C, B

    a = np.arange(4, dtype=np.float32)
    for n in (1, 2):
        for factors in ((1, 2), [3, 4]):
            for bias in (0.0, 0.5):
                c, b = split(a, n, factors, bias)
                np.testing.assert_array_equal(b, a * factors[0] + n + bias)
                np.testing.assert_array_equal(c, a * factors[1])
    c, b = split(A=a, n=7)
    np.testing.assert_array_equal(b, a + 7)


def test_eager_misuse():
    @tilecore.jit
    def undeclared(A):
        with T.Kernel(1):
            pass

    @tilecore.jit
    def used_early(A):
        n = A.shape[0]
        A: T.Tensor[[4], T.int32]
        with T.Kernel(n):
            pass

    @tilecore.jit
    def unreturned(A):
        A: T.Tensor[[4], T.int32]
        B = T.empty((4,), "int32")
        with T.Kernel(1):
            T.copy(A, B)

    @tilecore.jit
    def returns_input(A):
        A: T.Tensor[[4], T.int32]
        with T.Kernel(1):
            A[0] = 1
        return A

    a = np.zeros(4, np.int32)
    for function, message in (
        (undeclared, "tensor argument A of undeclared is not declared"),
        (used_early, "tensor argument A is used before it is declared"),
        (unreturned, "output B is not returned"),
        (returns_input, "A is returned, but is no output"),
    ):
        with pytest.raises(LanguageError, match=message):
            function.trace(a)
    with pytest.raises(LanguageError, match="takes no out_idx"):

        @tilecore.jit(out_idx=0)
        def eager(A):
            with T.Kernel(1):
                pass

    with pytest.raises(LanguageError, match=r"T\.const outside"):

        @T.prim_func
        def main(A: T.Tensor((4,), "int32")):
            T.const("N")
            with T.Kernel(1):
                A[0] = 1


def test_factory_style():
    kernel = copy_factory(3, 5)
    a = RNG.standard_normal((3, 5)).astype(np.float32)
    np.testing.assert_array_equal(kernel(a), a)
    assert copy_factory(3, N=5) is kernel
    assert copy_factory(3, 5, "float16") is not kernel
    assert copy_factory(int("3"), 5) is kernel
    m = T.dynamic("m")
    assert copy_factory(m, 5) is copy_factory(T.dynamic("m"), 5)
    np.testing.assert_array_equal(copy_factory(m, 5)(a[:2]), a[:2])
    many = copy_factory.par_compile([{"M": 3, "N": 5}, (4, 5)], num_workers=2)
    assert many[0] is kernel
    with pytest.raises(ArgumentError, match="unexpected keyword"):
        copy_factory(3, 5, colour=1)

    @tilecore.jit
    def nothing(M):
        return M

    with pytest.raises(LanguageError, match="returned no tile program"):
        nothing(3)


def test_jit_of_a_prim_func():
    a, b = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    fixed(a, b)
    np.testing.assert_array_equal(a, b)
    with pytest.raises(LanguageError, match="decorates a function"):
        tilecore.jit(3)


def test_keys_tell_types_apart():
    assert freeze(1) != freeze(1.0) != freeze(True)
    assert freeze([1, 2]) != freeze((1, 2))
    assert freeze({"a": [1]}) == freeze({"a": [1]})
    assert freeze(0.0) != freeze(-0.0)
    assert freeze(T.dynamic("m")) == freeze(T.dynamic("m"))
    assert freeze(T.dynamic("m")) != freeze(T.dynamic("m", multiple_of=8))


# --- what a kept kernel depends on ------------------------------------------------------------

OUTER = 2
TABLE = [1, 2]


@T.macro
def outer_of_a_macro(y):
    y[1] = OUTER


def helper():
    return TABLE[0]


class Settings:
    """An author's own options, compared by identity."""

    value = 2


@tilecore.jit(device="reference")
def eager_values(y, c):
    y: T.Tensor[[4], T.float32]
    with T.Kernel(1, threads=32):
        y[0] = float(getattr(c, "value", c))
        outer_of_a_macro(y)
        y[2] = helper()


@tilecore.jit(device="reference")
def factory_values(c):
    @T.prim_func
    def main(y: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            y[0] = float(getattr(c, "value", c))
            outer_of_a_macro(y)
            y[2] = helper()

    return main


def eager_result(c) -> list[float]:
    y = np.zeros(4, np.float32)
    eager_values(y, c)
    return y[:3].tolist()


def factory_result(c) -> list[float]:
    y = np.zeros(4, np.float32)
    factory_values(c)(y)
    return y[:3].tolist()


both_styles = pytest.mark.parametrize("result", [eager_result, factory_result])


@both_styles
@pytest.mark.parametrize("kind", [int, float, np.float32, np.float64, np.int64, np.int8])
def test_numbers_of_every_type_are_told_apart(result, kind):
    for _ in range(2):
        assert [result(kind(value))[0] for value in (2, 3, 2)] == [2, 3, 2]


@both_styles
def test_arguments_that_change_are_read_again(result):
    settings = Settings()
    for value in (2, 5, 2):
        settings.value = value
        assert result(settings)[0] == value


def test_a_factory_reads_the_elements_that_a_tensor_has_now():
    one = np.array(4.0)
    assert factory_result(one)[0] == 4
    one[...] = 9
    assert factory_result(one)[0] == 9


@both_styles
def test_values_from_outside_are_those_of_the_call(result, monkeypatch):
    assert result(1) == [1, 2, 1]
    monkeypatch.setitem(globals(), "OUTER", 7)
    assert result(1) == [1, 7, 1]
    monkeypatch.setitem(globals(), "TABLE", [8])
    assert result(1) == [1, 7, 8]
    TABLE[0] = 9
    assert result(1) == [1, 7, 9]
    monkeypatch.undo()
    assert result(1) == [1, 2, 1]


def test_variables_of_enclosing_functions_are_those_of_the_call():
    scale = 2

    @tilecore.jit(device="reference")
    def scaled(y):
        y: T.Tensor[[4], T.float32]
        with T.Kernel(1, threads=32):
            y[0] = scale

    y = np.zeros(4, np.float32)
    for scale in (2, 3, 2):
        scaled(y)
        assert y[0] == scale


def test_nothing_is_compiled_twice_for_the_same_values():
    assert factory_values(1) is factory_values(1)
    assert factory_values(np.float32(1)) is factory_values(np.float32(1))
    assert factory_values(1) is not factory_values(True)
