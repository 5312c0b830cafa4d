"""Views of buffers: other shapes, other dtypes of equal width, in every scope."""

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.errors import UnsupportedError


def compiled(program):
    return tilecore.compile(program, backend="cuda_ampere", device="emulator")


@pytest.mark.parametrize("scope", ["shared", "fragment"])
def test_another_shape(scope):
    @T.prim_func
    def program(A: T.Tensor((64,), "float32"), B: T.Tensor((4, 16), "float32")):
        with T.Kernel(1, threads=32) as _:
            s = (
                T.alloc_shared((64,), "float32")
                if scope == "shared"
                else T.alloc_fragment((64,), "float32")
            )
            v = T.reshape(s, (16, 4))
            T.copy(A, s)
            for i, j in T.Parallel(16, 4):
                v[i, j] = v[i, j] + 1.0
            for i, j in T.Parallel(4, 16):
                B[i, j] = v[j, i]

    a, b = np.random.rand(64).astype(np.float32), np.zeros((4, 16), np.float32)
    compiled(program)(a, b)
    np.testing.assert_array_equal(b, (a + 1).reshape(16, 4).T)


def test_the_bits_of_another_dtype():
    @T.prim_func
    def program(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=32) as _:
            s = T.alloc_shared((64,), "float32")
            v = T.view(s, (64,), "int32")
            T.copy(A, s)
            for i in T.Parallel(64):
                v[i] = v[i] ^ 1
            T.copy(v, B)

    a, b = np.random.rand(64).astype(np.float32), np.zeros(64, np.int32)
    compiled(program)(a, b)
    np.testing.assert_array_equal(b, a.view(np.int32) ^ 1)


def test_a_tile_statement_on_a_view():
    @T.prim_func
    def program(A: T.Tensor((64,), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32) as _:
            s = T.alloc_shared((64,), "float32")
            total = T.alloc_fragment((16,), "float32")
            T.copy(A, s)
            T.reduce_sum(T.reshape(s, (16, 4)), total, dim=1)
            T.copy(total, B)

    a, b = np.random.rand(64).astype(np.float32), np.zeros(16, np.float32)
    compiled(program)(a, b)
    np.testing.assert_allclose(b, a.reshape(16, 4).sum(axis=1), rtol=1e-6)


def test_another_width_is_refused():
    @T.prim_func
    def program(A: T.Tensor((64,), "float32"), B: T.Tensor((128,), "float16")):
        with T.Kernel(1, threads=32) as _:
            s = T.alloc_shared((64,), "float32")
            v = T.view(s, (128,), "float16")
            T.copy(A, s)
            T.copy(v, B)

    with pytest.raises(UnsupportedError, match="another width"):
        compiled(program)
