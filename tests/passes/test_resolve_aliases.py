"""Views of buffers: other shapes, other dtypes, in every scope."""

import numpy as np
import pytest
from compiling import kernel_on

import tilecore
import tilecore.language as T
from tilecore.errors import ArgumentError, UnsupportedError


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


BACKENDS = ("cpu_llvm", "cuda_ampere", "cuda_hopper", "rocm_cdna3")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("tile", "columns"), [(64, 48), (32, 48), (48, 48)])
def test_what_lies_outside_a_view_is_not_touched(tile: int, columns: int, backend: str):
    """A tile that reaches over the end of a view's row is no part of the next row."""

    @T.prim_func
    def program(A: T.Tensor((3, 7, columns), "float32"), B: T.Tensor((3, 7, columns), "float32")):
        with T.Kernel(T.ceildiv(columns, tile), threads=64) as bx:
            a = T.reshape(A, (21, columns))
            b = T.reshape(B, (21, columns))
            s = T.alloc_shared((32, tile), "float32")
            T.copy(a[0, bx * tile], s)
            for i, j in T.Parallel(32, tile):
                s[i, j] = s[i, j] + 1.0
            T.copy(s, b[0, bx * tile])

    a = np.random.rand(3, 7, columns).astype(np.float32)
    b = np.zeros_like(a)
    kernel_on(backend, program)(a, b)
    np.testing.assert_array_equal(b, a + 1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scope", ["shared", "fragment", "global"])
@pytest.mark.parametrize(
    ("source", "view"),
    [("float16", "float32"), ("int8", "int32"), ("float32", "int8"), ("int32", "float16")],
)
def test_elements_of_another_width_are_read(source: str, view: str, scope: str, backend: str):
    wide = np.dtype(view).itemsize / np.dtype(source).itemsize

    @T.prim_func
    def program(A: T.Tensor((64,), source), B: T.Tensor((int(64 / wide),), view)):
        with T.Kernel(1, threads=32) as _:
            if scope == "global":
                T.copy(T.view(A, (int(64 / wide),), view), B)
            else:
                s = (T.alloc_shared if scope == "shared" else T.alloc_fragment)((64,), source)
                T.copy(A, s)
                T.copy(T.view(s, (int(64 / wide),), view), B)

    a = np.random.randint(-99, 99, 64).astype(source)
    b = np.zeros(int(64 / wide), view)
    kernel_on(backend, program)(a, b)
    np.testing.assert_array_equal(b.view(np.uint8), a.view(np.uint8))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scope", ["shared", "fragment"])
@pytest.mark.parametrize(
    ("source", "view"), [("float16", "float32"), ("float32", "float16"), ("float32", "int8")]
)
def test_elements_of_another_width_are_written(source: str, view: str, scope: str, backend: str):
    """Both views see what either writes; a contraction reads what was written by the other."""
    wide = np.dtype(view).itemsize / np.dtype(source).itemsize
    columns = int(16 / wide)

    @T.prim_func
    def program(
        A: T.Tensor((16, columns), view), B: T.Tensor((16, 16), source), C: T.Tensor((16,), source)
    ):
        with T.Kernel(1, threads=32) as _:
            s = (T.alloc_shared if scope == "shared" else T.alloc_fragment)((16, 16), source)
            v = T.view(s, (16, columns), view)
            most = T.alloc_fragment((16,), source)
            T.fill(s, 1)
            for i, j in T.Parallel(16, columns):
                v[i, j] = A[i, j]
            T.copy(s, B)
            T.reduce_max(s, most, dim=1)
            T.copy(most, C)

    expected = np.random.rand(16, 16).astype(source)
    b, c = np.zeros((16, 16), source), np.zeros(16, source)
    kernel_on(backend, program)(expected.view(view).copy(), b, c)
    np.testing.assert_array_equal(b, expected)
    np.testing.assert_array_equal(c, expected.max(axis=1))


def test_a_tensor_is_not_written_through_narrower_elements():
    """Two lanes would write parts of one element."""

    @T.prim_func
    def program(A: T.Tensor((64,), "float16"), B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as _:
            T.copy(A, T.view(B, (64,), "float16"))

    with pytest.raises(UnsupportedError, match="view of narrower elements.*at least 32 bits"):
        compiled(program)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tensor_that_is_written_by_a_view_is_an_output(backend: str):
    """Its memory must be writable, whatever name it is written by."""

    @T.prim_func
    def program(A: T.Tensor((64,), "float32"), B: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32) as _:
            T.copy(A, T.reshape(T.reshape(B, (4, 16)), (64,)))

    kernel = kernel_on(backend, program)
    a, b = np.random.rand(64).astype(np.float32), np.zeros((8, 8), np.float32)
    kernel(a, b)
    np.testing.assert_array_equal(b.ravel(), a)
    b.flags.writeable = False
    with pytest.raises(ArgumentError):
        kernel(a, b)
