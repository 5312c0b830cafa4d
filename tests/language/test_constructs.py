"""Constructs beside the core ones: their results in the reference, and their misuses."""

import language_support as support
import numpy as np
import pytest
from compiling import BACKENDS, kernel_on

import tilecore
import tilecore.language as T
from tilecore.errors import ArgumentError, LanguageError, UnsupportedError


def test_a_scheduler_needs_workers_and_state():
    def program(**options):
        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=32) as b:
                tiles = T.PersistentTileScheduler(4, 2, **options)
                A[0] = tiles.m_idx
                tiles.init(b)

        return main

    with pytest.raises(LanguageError, match="needs num_workers.*got None.*hint: pass the grid's"):
        program()
    with pytest.raises(LanguageError, match="m_idx of a stateless T.PersistentTileScheduler"):
        program(num_workers=1, stateful=False)
    with pytest.raises(LanguageError, match="swizzle_size is out of range; expected 1 or more"):
        program(num_workers=1, swizzle_size=0)


def test_a_stateless_scheduler_allocates_nothing():
    @T.prim_func
    def main(A: T.Tensor((4, 2), "int32")):
        with T.Kernel(8, threads=32) as b:
            m, n = T.PersistentTileScheduler(4, 2, 1, swizzle_size=2, stateful=False).coord(b)
            A[m, n] = b

    assert "local" not in support.body_text(main)
    result = support.result(main, "A", A=np.zeros((4, 2), np.int32))
    assert result.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_while_as_a_block_takes_a_runtime_condition():
    def wrong(A):
        with T.While(True):
            A[0] = 1

    macro = T.macro(wrong)
    message = "T.While needs a condition of the program; .*got True.*hint: write a Python"
    with pytest.raises(LanguageError, match=message):

        @T.prim_func
        def main(A: T.Tensor((4,), "int32")):
            with T.Kernel(1, threads=32):
                macro(A)


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
def test_every_iteration_of_a_nest_leaves_its_own_while(backend):
    """Steps to 1 by halving and tripling: by `while`, as a block, with `break` and `continue`."""

    @T.prim_func
    def main(A: T.Tensor((3, 70), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(70):
                v, n = T.alloc_var("int32", init=0), T.alloc_var("int32", init=0)
                v = A[0, i]
                while v > 1 and n < 50:
                    v = T.if_then_else(v % 2 == 0, v // 2, 3 * v + 1)
                    n += 1
                A[0, i] = n
            for i in T.Parallel(70):
                with T.While(A[1, i] > 9):
                    A[1, i] = A[1, i] - 7
            for i in T.Parallel(70):
                v, n = T.alloc_var("int32", init=0), T.alloc_var("int32", init=0)
                while A[2, i] >= 0:
                    v += 1
                    if v % 3 == 0:
                        continue
                    if v > A[2, i]:
                        break
                    n += v
                A[2, i] = n

    def steps(v):
        n = 0
        while v > 1 and n < 50:
            v, n = v // 2 if v % 2 == 0 else 3 * v + 1, n + 1
        return n

    a = np.tile(np.arange(70, dtype=np.int32), (3, 1))
    expected = [
        [steps(v) for v in range(70)],
        [v if v <= 9 else v - 7 * -(-(v - 9) // 7) for v in range(70)],
        [sum(v for v in range(1, most + 1) if v % 3) for most in range(70)],
    ]
    kernel_on(backend, main)(a)
    np.testing.assert_array_equal(a, expected)


def test_thread_binding_gives_the_launch_s_indices():
    @T.prim_func
    def main(A: T.Tensor((2, 64), "int32")):
        with T.Kernel(2, threads=(32, 2)) as b:
            for x in T.thread_binding(32, thread="threadIdx.x"):
                y = T.thread_binding(0, 2, thread="threadIdx.y")
                A[T.thread_binding(0, 2, "blockIdx.x"), y * 32 + x] = b * 1000 + y * 100 + x

    text = support.body_text(main)
    assert "block.thread" in text and "for " not in text
    with pytest.raises(LanguageError, match=r"threadIdx.x\) differs from the kernel's axis; .*64"):

        @T.prim_func
        def other(A: T.Tensor((2,), "int32")):
            with T.Kernel(1, threads=32):
                A[0] = T.thread_binding(0, 64, thread="threadIdx.x")

    with pytest.raises(LanguageError, match="names no axis; expected thread='threadIdx.x'"):

        @T.prim_func
        def nowhere(A: T.Tensor((2,), "int32")):
            with T.Kernel(1, threads=32):
                A[0] = T.thread_binding(0, 32, thread="warpIdx.x")


def test_directed_rounding_refuses_what_it_cannot_do():
    with pytest.raises(LanguageError, match="Invalid rounding mode of T.ieee_add; expected rn, rz"):
        T.ieee_add(1.0, 2.0, "up")
    half = T.Var("n").astype("float16")
    with pytest.raises(UnsupportedError, match="Only rounding mode 'rn' is available"):
        T.ieee_mul(half, half, "rz")
    with pytest.raises(UnsupportedError, match="not supported for float64"):
        T.ieee_frsqrt(half.astype("float64"))


def test_transpose_needs_matching_stacks():
    with pytest.raises(LanguageError, match=r"shapes differ in T.transpose; expected \(2, 4, 3\)"):

        @T.prim_func
        def main(A: T.Tensor((2, 3, 4), "float32"), B: T.Tensor((3, 4, 2), "float32")):
            with T.Kernel(1):
                T.transpose(A, B)


def test_an_eager_function_is_known_without_tensors():
    @tilecore.jit(device="reference")
    def scale(A, factor):
        A: T.Tensor((8,), "float32")
        B = T.empty(8, dtype="float32")
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                B[i] = A[i] * factor
        return B

    program = scale.trace(factor=3)
    assert [param.name for param in program.params] == ["A", "B"]
    assert scale.compile(factor=3)(np.ones(8, np.float32)).tolist() == [3.0] * 8


def test_a_function_of_macros_alone_is_eager():
    @T.macro
    def double(A, B):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                B[i] = A[i] * 2

    @tilecore.jit(device="reference")
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
        double(A, B)

    assert main.is_eager
    a, b = np.ones(8, np.float32), np.zeros(8, np.float32)
    main(a, b)
    assert b.tolist() == [2.0] * 8


def test_sizes_are_read_off_strides_and_packed_bytes():
    @tilecore.jit(device="reference")
    def widths(A, B):
        n, step, m = T.const("n, step, m")
        A: T.StridedTensor[[n, 4], [step, 1], T.float32]
        B: T.Tensor[[2, m], T.float4_e2m1fn]
        C = T.empty((3,), "int32")
        with T.Kernel(1, threads=32):
            C[0] = n
            C[1] = step
            C[2] = m
        return C

    wide = np.zeros((6, 8), np.float32)
    packed = np.zeros((2, 5), np.uint8)
    program = widths.trace(wide[:, :4], packed)
    assert program.params[1].shape[1].value == 10
    assert [extent.value for extent in program.params[0].strides] == [8, 1]
    with pytest.raises(ArgumentError, match="axis 1 of argument A does not fit; expected 4, got 5"):
        widths.trace(wide[:, :5], packed)


def test_a_nest_of_one_iteration_may_hold_tile_operations():
    @T.prim_func
    def main(A: T.Tensor((16, 16), "float32"), C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=32):
            a = T.alloc_shared((16, 16), "float32")
            c = T.alloc_fragment((16, 16), "float32")
            T.clear(c)
            for _ in T.Parallel(1):
                T.copy(A, a)
                T.gemm(a, a, c)
            T.copy(c, C)

    a = np.arange(256, dtype=np.float32).reshape(16, 16) % 5
    c = np.zeros((16, 16), np.float32)
    assert np.array_equal(support.result(main, "C", A=a, C=c), a @ a)


def test_private_memory_takes_products_and_atomics():
    @T.prim_func
    def main(A: T.Tensor((4, 6), "float32"), C: T.Tensor((6, 6), "float32")):
        with T.Kernel(1, threads=32):
            a = T.alloc_local((4, 6), "float32")
            c = T.alloc_local((6, 6), "float32")
            T.copy(A, a)
            T.clear(c)
            T.gemm(a, a, c, transpose_A=True)
            T.atomic_add(c, 2)
            T.atomic_max(c[0:4, :], a)
            c[5, 5] = T.atomic_add(c[0, 0], 1, return_prev=True)
            T.copy(c, C)

    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    expected = a.T @ a + 2
    expected[:4] = np.maximum(expected[:4], a)
    expected[5, 5] = expected[0, 0]
    expected[0, 0] += 1
    c = np.zeros((6, 6), np.float32)
    assert np.array_equal(support.result(main, "C", A=a, C=c), expected)
    with pytest.raises(LanguageError, match="operand C of a T.gemm in private memory lives in"):

        @T.prim_func
        def mixed(A: T.Tensor((4, 4), "float32")):
            with T.Kernel(1, threads=32):
                a = T.alloc_local((4, 4), "float32")
                c = T.alloc_fragment((4, 4), "float32")
                T.gemm(a, a, c)
