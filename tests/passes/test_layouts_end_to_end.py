"""Programs whose layouts are hard to agree on are right, in registers or through scratch."""

import re

import numpy as np
import pytest
from passes_support import staged

import tilecore
import tilecore.language as T
from tilecore.errors import LoweringError


def compiled(program):
    return tilecore.compile(program, backend="cuda_ampere", device="emulator")


def chained_gemms(policy):
    @T.prim_func
    def program(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            s = T.alloc_fragment((64, 64), "float32")
            p = T.alloc_fragment((64, 64), "float16")
            o = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, s, clear_accum=True, policy=policy)
            T.copy(s, p)
            T.gemm(p, b, o, clear_accum=True, policy=policy)
            T.copy(o, C)

    return program


def test_an_accumulator_feeds_the_next_gemm_from_registers():
    assert staged(chained_gemms(T.GemmWarpPolicy.FullRow)) == {}


def test_an_accumulator_spread_over_columns_goes_through_scratch():
    assert staged(chained_gemms(T.GemmWarpPolicy.Square)) == {"p": 64 * 64 * 2}


@pytest.mark.parametrize("policy", [T.GemmWarpPolicy.FullRow, T.GemmWarpPolicy.Square,
                                    T.GemmWarpPolicy.FullCol])  # fmt: skip
def test_chained_gemms_are_right_under_every_policy(policy):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 64)).astype(np.float16) for _ in range(2))
    c = np.zeros((64, 64), np.float32)
    compiled(chained_gemms(policy))(a, b, c)
    p = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(c, p @ b.astype(np.float32), rtol=2e-2, atol=0.5)


def test_transposed_and_shifted_reads_of_a_fragment():
    @T.prim_func
    def program(A: T.Tensor((32, 32), "float32"), B: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=96) as _:
            f = T.alloc_fragment((32, 32), "float32")
            g = T.alloc_fragment((32, 32), "float32")
            T.copy(A, f)
            for i, j in T.Parallel(32, 32):
                g[i, j] = f[j, i] + f[i, (j + 5) % 32]
            T.copy(g, B)

    assert "f" in staged(program)
    a, b = np.random.rand(32, 32).astype(np.float32), np.zeros((32, 32), np.float32)
    compiled(program)(a, b)
    np.testing.assert_allclose(b, a.T + np.roll(a, -5, axis=1), rtol=1e-6)


def test_a_fragment_element_at_block_scope():
    @T.prim_func
    def program(A: T.Tensor((64,), "int32"), B: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=64) as _:
            f = T.alloc_fragment((64,), "int32")
            T.copy(A, f)
            at = T.alloc_var("int32", init=0)
            at = f[3]
            B[0] = f[at] + 1

    a, b = np.arange(64, dtype=np.int32)[::-1].copy(), np.zeros(1, np.int32)
    compiled(program)(a, b)
    assert b[0] == a[a[3]] + 1


@pytest.mark.parametrize("threads", [32, 96, 100, 160])
@pytest.mark.parametrize("columns", [33, 100, 256])
def test_row_reductions_at_any_thread_count(threads, columns):
    @T.prim_func
    def program(
        A: T.Tensor((9, columns), "float32"),
        Sum: T.Tensor((9,), "float32"),
        Top: T.Tensor((9,), "float32"),
    ):
        with T.Kernel(1, threads=threads) as _:
            f = T.alloc_fragment((9, columns), "float32")
            s = T.alloc_fragment((9,), "float32")
            m = T.alloc_fragment((9,), "float32")
            T.copy(A, f)
            T.reduce_sum(f, s, dim=1)
            T.reduce_max(f, m, dim=1)
            T.copy(s, Sum)
            T.copy(m, Top)

    rng = np.random.default_rng(threads + columns)
    a = rng.standard_normal((9, columns)).astype(np.float32)
    total, top = np.zeros(9, np.float32), np.zeros(9, np.float32)
    compiled(program)(a, total, top)
    np.testing.assert_allclose(total, a.sum(axis=1), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(top, a.max(axis=1))


def test_a_nest_that_reads_what_it_wrote():
    @T.prim_func
    def program(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=64) as _:
            s = T.alloc_shared((256,), "float32")
            for i in T.Parallel(256):
                s[i] = A[i] + 1.0
                B[i] = s[i] * 2.0
                s[i] = s[i] + 3.0
            for i in T.Parallel(256):
                B[i] = B[i] + s[i]

    a, b = np.random.rand(256).astype(np.float32), np.zeros(256, np.float32)
    compiled(program)(a, b)
    np.testing.assert_allclose(b, (a + 1) * 2 + a + 4, rtol=1e-6)


def with_layouts(which: str):
    """A gemm and a row sum, with a layout of the author's that does not fit."""

    @T.prim_func
    def program(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            sums = T.alloc_fragment((64,), "float32")
            if which == "sums":
                T.annotate_layout({sums: T.Fragment((64,), lambda i: (i * 2, 0))})
            if which == "a":
                T.annotate_layout({a: T.Layout((64, 64), lambda i, j: j * 64 + i)})
            T.copy(A, a)
            T.clear(c)
            T.gemm(a, a, c)
            T.reduce_sum(c, sums, dim=1)
            for i, j in T.Parallel(64, 64):
                c[i, j] = c[i, j] - sums[i]
            T.copy(c, C)

    return program


@pytest.mark.parametrize(
    ("backend", "buffer"), [("cuda_ampere", "sums"), ("rocm_cdna3", "sums"), ("cuda_hopper", "a")]
)
def test_a_layout_that_does_not_fit_is_refused_with_both_layouts(backend, buffer) -> None:
    """Both accesses and both layouts, the line, and what to do."""
    with pytest.raises(LoweringError, match="layouts conflict") as caught:
        tilecore.compile(with_layouts(buffer), backend, device="emulator")
    error = caught.value
    assert error.loc is not None and error.loc.file == __file__
    assert buffer in str(error.got) and buffer in str(error.hint)
    layouts = re.compile(r"[\[<][^\]>]*:[^\]>]*[\]>]")  # such as <64:t2>
    assert layouts.search(str(error.got)) and layouts.search(str(error.expected)), str(error)
