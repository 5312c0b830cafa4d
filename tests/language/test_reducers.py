"""Reducers: contributions of parallel iterations are combined once each."""

import language_support as support
import numpy as np
import pytest
from compiling import kernel_on

import tilecore.language as T
from tilecore.errors import LanguageError

RNG = np.random.default_rng(2)


@pytest.mark.parametrize(("op", "combine"), [("sum", np.sum), ("max", np.max), ("min", np.min)])
def test_reducers(op, combine):
    @T.prim_func
    def main(
        A: T.Tensor((4, 24), "float32"),
        R: T.Tensor((4,), "float32"),
        S: T.Tensor((1,), "float32"),
    ):
        with T.Kernel(1):
            a = T.alloc_fragment((4, 8), "float32")
            rows = T.alloc_reducer((4,), "float32", op=op)
            whole = T.alloc_reducer((1,), "float32", op=op, replication="all")
            T.reducer_init(rows)
            T.reducer_init(whole)
            for k in T.serial(3):
                T.copy(A[0, k * 8], a)
                for i, j in T.Parallel(4, 8):
                    T.reducer_update(rows[i], a[i, j])
                    T.reducer_update(whole[0], a[i, j])
            T.finalize_reducer(rows, R)
            out = T.alloc_fragment((1,), "float32")
            T.finalize_reducer(whole, out)
            S[0] = out[0]

    a = RNG.standard_normal((4, 24)).astype(np.float32)
    r, s = np.zeros(4, np.float32), np.zeros(1, np.float32)
    support.result(main, "R", A=a, R=r, S=s)
    np.testing.assert_allclose(r, combine(a, axis=1), rtol=1e-5)
    np.testing.assert_allclose(s[0], combine(a), rtol=1e-5)


def test_conditional_updates_offsets_and_the_operator():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "int32"), R: T.Tensor((6,), "int32")):
        with T.Kernel(1):
            acc = T.alloc_reducer((6,), "int32")
            T.clear(acc)
            for i, j in T.Parallel(4, 8):
                if A[i, j] > 0:
                    acc[i + 2] += A[i, j]
            T.reducer_update(acc[0], 7)
            for i in T.Parallel(6):
                acc[i] += 1
            T.copy(acc, R)

    a = RNG.integers(-5, 5, (4, 8)).astype(np.int32)
    out = support.result(main, "R", A=a, R=np.zeros(6, np.int32))
    expected = np.array([8, 1, 1, 1, 1, 1])
    expected[2:] += np.where(a > 0, a, 0).sum(1)
    np.testing.assert_array_equal(out, expected)


def test_three_axes_and_a_point():
    @T.prim_func
    def main(A: T.Tensor((3, 4, 5), "int32"), R: T.Tensor((2, 4), "int32")):
        with T.Kernel(1):
            acc = T.alloc_reducer((2, 4), "int32")
            T.reducer_init(acc, 10)
            for i, j, k in T.Parallel(3, 4, 5):
                T.reducer_update(acc[1, j], A[i, j, k])
            T.finalize_reducer(acc, R)

    a = RNG.integers(-5, 5, (3, 4, 5)).astype(np.int32)
    out = support.result(main, "R", A=a, R=np.zeros((2, 4), np.int32))
    np.testing.assert_array_equal(out, [[10] * 4, 10 + a.sum((0, 2))])


def test_indices_in_another_order_and_bitwise_operations():
    @T.prim_func
    def main(A: T.Tensor((4, 6, 3), "int32"), B: T.Tensor((6, 4), "int32")):
        with T.Kernel(1, threads=32):
            acc = T.alloc_reducer((6, 4), "int32", op="bitand")
            T.reducer_init(acc)
            for i, j, k in T.Parallel(4, 6, 3):
                T.reducer_update(acc[j, i], A[i, j, k])
            T.finalize_reducer(acc, B)

    values = np.random.default_rng(1).integers(-99, 99, (4, 6, 3)).astype(np.int32)
    expected = np.bitwise_and.reduce(values, axis=2).T
    assert np.array_equal(
        support.result(main, "B", A=values, B=np.zeros((6, 4), np.int32)), expected
    )
    with pytest.raises(LanguageError, match="reducer bitor needs integers; .*got float32"):

        @T.prim_func
        def floats(A: T.Tensor((4,), "float32")):
            with T.Kernel(1):
                T.alloc_reducer((4,), "float32", op="bitor")


FORMS = {
    "sum": lambda old, new: old + new,
    "max": lambda old, new: T.max(new, old),
    "min": lambda old, new: T.min(old, new),
    "bitand": lambda old, new: old & new,
    "bitor": lambda old, new: new | old,
    "bitxor": lambda old, new: old ^ new,
}
UFUNCS = {
    "sum": np.add, "max": np.maximum, "min": np.minimum, "bitand": np.bitwise_and,
    "bitor": np.bitwise_or, "bitxor": np.bitwise_xor,
}  # fmt: skip


@pytest.mark.parametrize("backend", ["cpu_llvm", "cuda_ampere", "cuda_hopper", "rocm_cdna3"])
@pytest.mark.parametrize("op", FORMS)
def test_an_element_combined_with_itself_is_contributed_to(op, backend):
    """Iterations have no order: what each of them writes back is combined, not overwritten."""

    @T.prim_func
    def main(A: T.Tensor((4, 64), "int32"), R: T.Tensor((4,), "int32"), S: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_fragment((4, 64), "int32")
            rows = T.alloc_reducer((4,), "int32", op=op)
            whole = T.alloc_reducer((1,), "int32", op=op, replication="all")
            T.copy(A, a)
            T.fill(rows, 5)
            T.fill(whole, 5)
            for i, j in T.Parallel(4, 64):
                rows[i] = FORMS[op](rows[i], a[i, j] * 2)
                whole[0] = FORMS[op](whole[0], a[i, j])
            T.finalize_reducer(rows, R)
            T.finalize_reducer(whole, S)

    a = RNG.integers(-99, 99, (4, 64)).astype(np.int32)
    r, s = np.zeros(4, np.int32), np.zeros(1, np.int32)
    kernel_on(backend, main)(a, r, s)
    five = np.int32(5)
    np.testing.assert_array_equal(r, UFUNCS[op](UFUNCS[op].reduce(a * 2, axis=1), five))
    assert s[0] == UFUNCS[op](UFUNCS[op].reduce(a, axis=None), five)


def test_misuse():
    def body(A, which):
        acc = T.alloc_reducer((8, 8), "int32") if which != 1 else T.alloc_fragment((8, 8), "int32")
        if which == 0:
            for i, j in T.Parallel(8, 8):
                T.reducer_update(acc[i, i], A[i, j])
        elif which == 1:
            T.reducer_update(acc[0, 0], 1)
        elif which == 2:
            for i, j in T.Parallel(8, 8):
                T.reducer_update(acc[i // 2, 0], A[i, j])
        elif which == 3:
            T.alloc_reducer((8,), "int32", op="mean")
        else:
            T.finalize_reducer(A)

    macro = T.macro(body)
    for which, message in enumerate((
        "index of reducer acc", "no element of a reducer", "index of reducer acc",
        "unknown reducer", "no reducer",
    )):  # fmt: skip
        with pytest.raises(LanguageError, match=message):

            @T.prim_func
            def main(A: T.Tensor((8, 8), "int32")):
                with T.Kernel(1):
                    macro(A, which)  # noqa: B023
