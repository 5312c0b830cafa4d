"""Accesses whose place depends on a name that gets another value: no barrier may be missing.

The emulator is the judge: it reports any two accesses that nothing orders.
"""

import numpy as np
import pytest
from compiling import kernel_on

import tilecore
import tilecore.language as T

WIDTH = 64  # two warps; each lane reads what a lane of the other wrote
BACKENDS = ["cuda_ampere", "rocm_cdna3"]


def by_let():
    @T.prim_func
    def program(A: T.Tensor((WIDTH,), "float32"), B: T.Tensor((WIDTH,), "float32")):
        with T.Kernel(1, threads=WIDTH) as _:
            s = T.alloc_shared((8, WIDTH), "float32")
            f = T.alloc_fragment((WIDTH,), "float32")
            T.clear(f)
            for i, j in T.Parallel(8, WIDTH):
                s[i, j] = 0.0
            T.sync_threads()
            for k in T.serial(4):
                row = T.int32(3) - k
                for i in T.Parallel(WIDTH):
                    f[i] += s[row + 1, WIDTH - 1 - i]
                for i in T.Parallel(WIDTH):
                    s[row, i] = A[i] + T.cast(k, "float32")
            T.copy(f, B)

    return program, lambda a: 3 * a[::-1] + 3


def by_variable():
    @T.prim_func
    def program(A: T.Tensor((WIDTH,), "float32"), B: T.Tensor((WIDTH,), "float32")):
        with T.Kernel(1, threads=WIDTH) as _:
            s = T.alloc_shared((8, WIDTH), "float32")
            f = T.alloc_fragment((WIDTH,), "float32")
            row = T.alloc_var("int32")
            row = 3
            T.clear(f)
            for i, j in T.Parallel(8, WIDTH):
                s[i, j] = 0.0
            T.sync_threads()
            for k in T.serial(4):
                for i in T.Parallel(WIDTH):
                    f[i] += s[row + 1, WIDTH - 1 - i]
                for i in T.Parallel(WIDTH):
                    s[row, i] = A[i] + T.cast(k, "float32")
                row = row - 1
            T.copy(f, B)

    return program, lambda a: 3 * a[::-1] + 3


def assigned_between():
    @T.prim_func
    def program(A: T.Tensor((WIDTH,), "float32"), B: T.Tensor((WIDTH,), "float32")):
        with T.Kernel(1, threads=WIDTH) as _:
            s = T.alloc_shared((8, WIDTH), "float32")
            f = T.alloc_fragment((WIDTH,), "float32")
            row = T.alloc_var("int32")
            row = 3
            T.clear(f)
            for i in T.Parallel(WIDTH):
                s[row, i] = A[i]
            row = row - 1
            for i in T.Parallel(WIDTH):
                f[i] += s[row + 1, WIDTH - 1 - i]
            T.copy(f, B)

    return program, lambda a: a[::-1]


def written_before_the_loop():
    """Only the second round reads what was written before the loop."""

    @T.prim_func
    def program(A: T.Tensor((WIDTH,), "float32"), B: T.Tensor((WIDTH,), "float32")):
        with T.Kernel(1, threads=WIDTH) as _:
            s = T.alloc_shared((2, WIDTH), "float32")
            f = T.alloc_fragment((WIDTH,), "float32")
            T.clear(f)
            for i in T.Parallel(WIDTH):
                s[0, i] = 0.0
            T.sync_threads()
            for i in T.Parallel(WIDTH):
                s[1, i] = A[i]
            for k in T.serial(2):
                for i in T.Parallel(WIDTH):
                    f[i] += s[k, WIDTH - 1 - i]
            T.copy(f, B)

    return program, lambda a: a[::-1]


def other_round_of_an_inner_loop():
    """Rounds (k, 1) and (k + 1, 0) touch one row, though no name differs between the accesses."""

    @T.prim_func
    def program(A: T.Tensor((WIDTH,), "float32"), B: T.Tensor((WIDTH,), "float32")):
        with T.Kernel(1, threads=WIDTH) as _:
            s = T.alloc_shared((5, WIDTH), "float32")
            f = T.alloc_fragment((WIDTH,), "float32")
            T.clear(f)
            for k in T.serial(4):
                for j in T.serial(2):
                    for i in T.Parallel(WIDTH):
                        s[k + j, (i + 33 * (k + 2 * j)) % WIDTH] = A[i]
            for i in T.Parallel(WIDTH):
                f[i] = s[4, WIDTH - 1 - i]
            T.copy(f, B)

    def expected(a: np.ndarray) -> np.ndarray:
        last = np.empty_like(a)
        last[(np.arange(WIDTH) + 33 * 5) % WIDTH] = a
        return last[::-1]

    return program, expected


CASES = [
    by_let,
    by_variable,
    assigned_between,
    written_before_the_loop,
    other_round_of_an_inner_loop,
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES)
def test_no_access_races(case, backend):
    program, expected = case()
    a = np.random.default_rng(0).standard_normal(WIDTH).astype(np.float32)
    b = np.zeros_like(a)
    tilecore.compile(program, backend=backend, device="emulator")(a, b)
    np.testing.assert_allclose(b, expected(a), rtol=1e-6, atol=1e-6)


def test_rounds_that_are_provably_apart_need_no_barrier():
    """Each round stores a part of a row of its own: nothing has to wait."""

    @T.prim_func
    def program(A: T.Tensor((4, 1024), "float32"), B: T.Tensor((4, 1024), "float32")):
        with T.Kernel(4, threads=WIDTH) as block:
            f = T.alloc_fragment((1, 256), "float32")
            for k in T.serial(4):
                T.copy(A[block, k * 256], f)
                T.copy(f, B[block, k * 256])

    kernel = tilecore.compile(program, backend="cuda_ampere", device="emulator")
    assert "tc::barrier(" not in kernel.source


@pytest.mark.parametrize("num_stages", range(5))
@pytest.mark.parametrize("kind", ["assigned after", "assigned before", "loaded", "chained"])
@pytest.mark.parametrize("backend", ["cpu_llvm", "cuda_ampere", "cuda_hopper", "rocm_cdna3"])
def test_pipelines_fetch_where_a_variable_pointed_in_that_round(backend, kind, num_stages):
    @T.prim_func
    def program(
        A: T.Tensor((8, WIDTH), "float32"),
        Order: T.Tensor((8,), "int32"),
        B: T.Tensor((WIDTH,), "float32"),
    ):
        with T.Kernel(1, threads=WIDTH) as _:
            s = T.alloc_shared((WIDTH,), "float32")
            f = T.alloc_fragment((WIDTH,), "float32")
            row = T.alloc_var("int32")
            row = 7
            T.clear(f)
            for k in T.Pipelined(8, num_stages=num_stages):
                if kind == "assigned before":
                    row = 7 - k
                if kind == "loaded":
                    row = Order[k]
                if kind == "chained":
                    row = Order[row]
                T.copy(A[row, 0:WIDTH], s)
                for i in T.Parallel(WIDTH):
                    f[i] = f[i] * 0.5 + s[WIDTH - 1 - i]
                if kind == "assigned after":
                    row = row - 1
            T.copy(f, B)

    a = np.random.default_rng(0).standard_normal((8, WIDTH)).astype(np.float32)
    order = np.array([3, 7, 1, 0, 2, 6, 4, 5], np.int32)
    b, expected, row = np.zeros(WIDTH, np.float32), np.zeros(WIDTH), 7
    for k in range(8):
        row = {"loaded": order[k], "chained": order[row]}.get(kind, 7 - k)
        expected = expected * 0.5 + a[row][::-1]
    kernel_on(backend, program)(a, order, b)
    np.testing.assert_allclose(b, expected, rtol=1e-5, atol=1e-6)
