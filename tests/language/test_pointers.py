"""Tensors at addresses: of T.ptr parameters, and of tables that hold an address for each tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import kernel_on
from devices import needs_emulator
from language_support import BACKENDS

import tilecore
import tilecore.language as T
from tilecore.compat.supply import make_inputs
from tilecore.errors import ArgumentError, DeviceAssertError, LanguageError, UnsupportedError

GROUPS, M, N, K = 3, 40, 48, 72
Array = Any


def aligned(shape: tuple[int, ...], dtype: Any, shift: int = 0) -> Array:
    """Zeros that begin at a multiple of 64 bytes, and `shift` more."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(count + 128, np.uint8)
    first = -raw.ctypes.data % 64 + shift
    return raw[first : first + count].view(dtype).reshape(shape)


def table(arrays: list[Array]) -> Array:
    return np.array([array.ctypes.data for array in arrays], np.int64)


def grouped(stages: int) -> Any:
    @T.prim_func
    def main(
        a: T.Tensor([GROUPS], T.ptr), b: T.Tensor([GROUPS], T.ptr), c: T.Tensor([GROUPS], T.ptr)
    ):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 32), GROUPS, threads=128) as (bx, by, g):
            A = T.make_tensor(a[g], (M, K), "float16")
            B = T.make_tensor(b[g], (K, N), "float16")
            C = T.make_tensor(c[g], (M, N), "float32")
            left = T.alloc_shared((32, 32), "float16")
            right = T.alloc_shared((32, 32), "float16")
            sums = T.alloc_fragment((32, 32), "float32")
            T.clear(sums)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=stages):
                T.copy(A[by * 32, k * 32], left)
                T.copy(B[k * 32, bx * 32], right)
                T.gemm(left, right, sums)
            T.copy(sums, C[by * 32, bx * 32])

    return main


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("stages", [0, 3])
def test_products_of_tensors_that_tables_name(stages: int, backend: str) -> None:
    """Ragged edges are guarded by the shape that the program gives."""
    rng = np.random.default_rng(0)
    a = [aligned((M, K), np.float16) for _ in range(GROUPS)]
    b = [aligned((K, N), np.float16) for _ in range(GROUPS)]
    c = [aligned((M, N), np.float32) for _ in range(GROUPS)]
    for one in (*a, *b):
        one[...] = rng.integers(-3, 4, one.shape)
    kernel_on(backend, grouped(stages))(table(a), table(b), table(c))
    for x, y, z in zip(a, b, c, strict=True):
        np.testing.assert_array_equal(z, x.astype(np.float32) @ y.astype(np.float32))


@T.prim_func
def doubled(p: T.ptr, q: T.ptr, n: T.int32):
    x = T.make_tensor(p, (n,), "float32")
    y = T.make_tensor(q, (n,), "float32")
    with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
        for i in T.Parallel(64):
            y[bx * 64 + i] = x[bx * 64 + i] * 2
    with T.Kernel(1, threads=64):
        y[0] = y[0] + 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_parameters_that_are_addresses(backend: str) -> None:
    """Tensors or numbers, by place or name, again and again; sizes come with the call."""
    x, y = aligned((100,), np.float32), aligned((100,), np.float32)
    x[:] = np.arange(100) + 1
    expected = 2 * x
    expected[0] += 1
    kernel = kernel_on(backend, doubled)
    for call in (
        lambda: kernel(x, y, 100),
        lambda: kernel(x, y, 100),
        lambda: kernel(x.ctypes.data, y.ctypes.data, 100),
        lambda: kernel(q=y, p=x, n=100),
    ):
        y[:] = 0
        call()
        np.testing.assert_array_equal(y, expected)
    y[:] = 0
    kernel(x, y, 50)
    np.testing.assert_array_equal(y, np.where(np.arange(100) < 50, expected, 0))
    with pytest.raises(ArgumentError, match="its tensor is not compact"):
        kernel(x[::2], y, 50)


@pytest.mark.parametrize("backend", ["reference", "cpu_llvm", "cuda_ampere"])
def test_an_address_that_lanes_cannot_use_is_reported(backend: str) -> None:
    needs_emulator(backend)
    x, y = aligned((100,), np.float32, 4), aligned((100,), np.float32)
    kernel = kernel_on(backend, doubled)
    with pytest.raises(Exception, match="is 0 or no multiple of 16 bytes") as caught:
        kernel(x, y, 100)
    assert isinstance(caught.value, DeviceAssertError) or backend == "cuda_ampere"
    if backend != "cuda_ampere":  # a device stops; the emulator goes on, and would read there
        with pytest.raises(DeviceAssertError, match="is 0 or no multiple of 16 bytes"):
            kernel(0, y, 100)


def test_blocks_of_one_kernel_find_other_tensors() -> None:
    """What blocks share of a common operand must not be shared under one name."""
    rows = 64

    @T.prim_func
    def main(a: T.Tensor([2], T.ptr), out: T.Tensor((2, 256, rows), "float32")):
        with T.Kernel(256 // 32, 2, threads=64) as (bx, g):
            A = T.make_tensor(a[g], (rows, rows), "float32")
            left = T.alloc_shared((32, rows), "float32")
            right = T.alloc_shared((rows, rows), "float32")
            sums = T.alloc_fragment((32, rows), "float32")
            T.clear(sums)
            T.fill(left, 1)
            T.copy(A, right)
            T.gemm(left, right, sums)
            T.copy(sums, out[g, bx * 32, 0])

    tensors = [aligned((rows, rows), np.float32) for _ in range(2)]
    tensors[0][...], tensors[1][...] = 1, 2
    for backend in ("cpu_llvm", "cuda_hopper"):
        out = np.zeros((2, 256, rows), np.float32)
        kernel_on(backend, main)(table(tensors), out)
        assert (out[0] == rows).all() and (out[1] == 2 * rows).all()


def found_in(place: str) -> Any:
    """A product for each address of a table, which is read in a loop's body."""

    @T.prim_func
    def main(
        a: T.Tensor([GROUPS], T.ptr),
        b: T.Tensor((GROUPS, 32, 32), "float16"),
        out: T.Tensor((32, 32), "float32"),
    ):
        with T.Kernel(1, threads=128):
            left = T.alloc_shared((32, 32), "float16")
            right = T.alloc_shared((32, 32), "float16")
            sums = T.alloc_fragment((32, 32), "float32")
            T.clear(sums)
            loops = {"pipeline": T.Pipelined(GROUPS, num_stages=3), "loop": T.serial(GROUPS)}
            for g in loops.get(place, T.unroll(GROUPS)):
                if place == "branches":
                    if g % 2 == 0:
                        x = T.make_tensor(a[g], (32, 32), "float16")
                        T.copy(x, left)
                    else:
                        y = T.make_tensor(a[g], (32, 32), "float16")
                        for i, j in T.Parallel(32, 32):
                            left[i, j] = y[i, j]
                else:
                    x = T.make_tensor(a[g], (32, 32), "float16")
                    T.copy(x, left)
                T.copy(b[g, :, :], right)
                T.gemm(left, right, sums)
            T.copy(sums, out)

    return main


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", ["pipeline", "loop", "unrolled", "branches"])
def test_an_address_holds_for_the_round_that_reads_it(place: str, backend: str) -> None:
    rng = np.random.default_rng(0)
    a = [aligned((32, 32), np.float16) for _ in range(GROUPS)]
    for one in a:
        one[...] = rng.integers(-3, 4, one.shape)
    b = rng.integers(-3, 4, (GROUPS, 32, 32)).astype(np.float16)
    out = np.zeros((32, 32), np.float32)
    kernel_on(backend, found_in(place))(table(a), b, out)
    expected = sum(x.astype(np.float32) @ y.astype(np.float32) for x, y in zip(a, b, strict=True))
    np.testing.assert_array_equal(out, expected)


def test_what_cannot_be_an_address_is_refused() -> None:
    def of_an_element(x: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            T.make_tensor(x[0], (4,), "float32")

    def in_a_nest(p: T.Tensor([4], T.ptr)):
        with T.Kernel(1):
            for i in T.Parallel(4):
                T.make_tensor(p[i], (4,), "float32")

    def of_a_loaded_size(p: T.Tensor([4], T.ptr), n: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            T.make_tensor(p[0], (n[0],), "float32")

    def of_lanes(p: T.Tensor([32], T.ptr), out: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            lane = T.get_thread_binding(0)
            x = T.make_tensor(p[lane], (4,), "float32")
            out[lane] = x[0]

    for function, message in (
        (of_an_element, "T.make_tensor takes an address; expected a T.ptr parameter"),
        (in_a_nest, "T.make_tensor inside T.Parallel"),
        (of_a_loaded_size, "an extent of T.make_tensor is not known at the call"),
        (of_lanes, "the address of a tensor differs between lanes"),
    ):
        with pytest.raises(LanguageError, match=message):
            tilecore.lower(T.prim_func(function), "cpu_llvm")

    def packed(p: T.ptr):
        x = T.make_tensor(p, (4,), "int4")
        with T.Kernel(1):
            x[0] = 1

    with pytest.raises(UnsupportedError, match="elements share bytes"):
        T.prim_func(packed)


def test_an_eager_function_declares_what_an_address_means() -> None:
    """Then the argument is a tensor, with every check of one."""

    @tilecore.jit(backend="cpu_llvm")
    def twice(x: T.ptr, y: T.ptr, n: int):
        x = T.make_tensor(x, (n,), T.float32)
        y = T.make_tensor(y, (n,), T.float32)
        with T.Kernel(1, threads=32):
            for i in T.Parallel(n):
                y[i] = x[i] * 2

    x, y = np.arange(40, dtype=np.float32), np.zeros(40, np.float32)
    twice(x, y, 40)
    np.testing.assert_array_equal(y, 2 * x)
    assert twice.par_compile([{"x": T.ptr(), "y": T.ptr(), "n": 40}])
    with pytest.raises(ArgumentError, match="axis 0 of argument x does not fit"):
        twice(x, y, 50)


@T.prim_func
def meeting(p: T.ptr, out: T.Tensor((64,), "int32")):
    x = T.make_tensor(p, (64,), "int32")
    with T.Kernel(2, threads=64) as bx:
        for i in T.Parallel(32):
            x[bx * 32 + i] = x[bx * 32 + i] + 1
        T.sync_grid()
        for i in T.Parallel(32):
            out[bx * 32 + i] = x[63 - bx * 32 - i]


@pytest.mark.parametrize("backend", BACKENDS)
def test_blocks_meet_at_a_tensor_of_a_parameter(backend: str) -> None:
    x, out = aligned((64,), np.int32), np.zeros(64, np.int32)
    kernel_on(backend, meeting)(x, out)
    assert (x == 1).all() and (out == 1).all()


def test_an_address_of_a_table_is_read_again_after_a_meeting() -> None:
    def main(p: T.Tensor([2], T.ptr)):
        with T.Kernel(2, threads=64) as bx:
            x = T.make_tensor(p[0], (64,), "int32")
            x[bx] = 1
            T.sync_grid()
            x[bx] = x[1 - bx]

    with pytest.raises(UnsupportedError, match="its address was read from memory"):
        T.prim_func(main)


@T.prim_func
def strided(
    p: T.ptr, own: T.StridedTensor((8, 8), (16, 2), "float32"), out: T.Tensor((8, 8), "float32")
):
    x = T.make_tensor(p, (8, 8), "float32", strides=(16, 2))
    with T.Kernel(1, threads=32):
        T.copy(x, out)
        x[7, 7] = 3
        own[7, 7] = 4
        for i in T.Parallel(10):
            x[i, i + 8] = 1  # outside


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_last_element_of_a_strided_tensor(backend: str) -> None:
    """Its offset is beyond the number of elements."""
    memory, other = (aligned((8, 16), np.float32) for _ in range(2))
    memory[...] = np.arange(128).reshape(8, 16)
    before, out = memory.copy(), np.zeros((8, 8), np.float32)
    kernel_on(backend, strided)(memory, other[:, ::2], out)
    np.testing.assert_array_equal(out, before[:, ::2])
    before[7, 14] = 3
    np.testing.assert_array_equal(memory, before)
    assert other[7, 14] == 4 and other.sum() == 4


@T.prim_func
def viewed(p: T.Tensor([1], T.ptr), out: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=64):
        x = T.make_tensor(p[0], (8, 8), "int32")
        flat = T.reshape(x, (64,))
        tile = T.alloc_shared((8, 8), "int32")
        sums = T.alloc_fragment((8,), "int32")
        T.copy(x, tile)
        T.reduce_sum(tile, sums, dim=1)
        T.copy(sums, out)
        for i in T.Parallel(64):
            T.atomic_add(flat[i // 2], 1)
        T.fill(x[7:8, :], 5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_atomics_and_tiles_of_it(backend: str) -> None:
    x, out = aligned((8, 8), np.int32), np.zeros(8, np.int32)
    x[...] = np.arange(64).reshape(8, 8)
    expected, sums = x.copy(), x.sum(axis=1)
    kernel_on(backend, viewed)(table([x]), out)
    np.testing.assert_array_equal(out, sums)
    expected[:4] += 2
    expected[7] = 5
    np.testing.assert_array_equal(x, expected)


def test_nobody_makes_up_an_address() -> None:
    """A measurement with inputs of its own would read anywhere."""
    for program in (doubled, viewed):
        with pytest.raises(ArgumentError, match="no address can be made up"):
            make_inputs(program.program)
