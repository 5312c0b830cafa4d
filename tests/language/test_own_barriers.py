"""Barriers that the author names or allocates: the same results on every backend, or a refusal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import BACKENDS, EMULATED, kernel_on

import tilecore
import tilecore.language as T
from tilecore.errors import UnsupportedError

IN_ORDER = ["reference", *BACKENDS]
"""What executes the order of the text, and what executes warps at the same time."""


def loads_then_computes(arrives_first: bool) -> Any:
    """Half of the lanes fill a tile, the other half waits for it and reads it backwards."""

    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((128,), "float32")
            full = T.alloc_barrier([128, 1])
            tx = T.get_thread_binding()
            if arrives_first:
                if tx >= 128:
                    s[tx - 128] = A[tx - 128]
                    T.barrier_arrive(full[0])
                else:
                    T.barrier_wait(full[0], 0)
                    B[tx] = s[127 - tx] * 2.0
            else:
                if tx < 128:
                    T.mbarrier_wait_parity(full[0], 0)
                    B[tx] = s[127 - tx] * 2.0
                else:
                    s[tx - 128] = A[tx - 128]
                    T.mbarrier_arrive(full[0])

    return main


def rounds(count: int) -> Any:
    """Two halves of a block hand a tile to and fro; all lanes go through the rounds together."""

    @T.prim_func
    def main(A: T.Tensor((count, 64), "int32"), B: T.Tensor((count, 64), "int32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((64,), "int32")
            full, empty = T.alloc_barrier(64), T.alloc_barrier(64)
            tx = T.get_thread_binding()
            for k in T.serial(count):
                if tx < 64:
                    T.barrier_wait(empty, (k + 1) % 2)
                    s[tx] = A[k, tx]
                    T.barrier_arrive(full)
                else:
                    T.barrier_wait(full, k % 2)
                    B[k, tx - 64] = s[127 - tx] + k
                    T.barrier_arrive(empty)

    return main


@T.prim_func
def in_parts(A: T.Tensor((2, 128), "int32"), B: T.Tensor((2, 128), "int32")):
    """Each half of a block sums its row by halving, and meets at a barrier of its own."""
    with T.Kernel(1, threads=256):
        s = T.alloc_shared((2, 128), "int32")
        tx = T.get_thread_binding()
        if tx < 128:
            s[0, tx] = A[0, tx]
            for step in T.serial(7):
                T.sync_threads(3, 128)
                if tx < T.shift_right(64, step):
                    s[0, tx] += s[0, tx + T.shift_right(64, step)]
        if tx < 128:
            T.sync_threads(3, 128)
            B[0, tx] = s[0, 0]
        if tx >= 128:
            s[1, tx - 128] = A[1, tx - 128]
            for step in T.serial(7):
                T.sync_threads(4, 128)
                if tx - 128 < T.shift_right(64, step):
                    s[1, tx - 128] += s[1, tx - 128 + T.shift_right(64, step)]
            T.sync_threads(4, 128)
            B[1, tx - 128] = s[1, 0]


@pytest.mark.parametrize("backend", IN_ORDER)
def test_half_of_the_lanes_waits_for_the_others(backend: str) -> None:
    a = np.arange(128, dtype=np.float32)
    out = np.zeros_like(a)
    kernel_on(backend, loads_then_computes(True))(a, out)
    np.testing.assert_array_equal(out, 2 * a[::-1])


@pytest.mark.parametrize("backend", EMULATED)
def test_branches_run_at_once(backend: str) -> None:
    a = np.arange(128, dtype=np.float32)
    out = np.zeros_like(a)
    kernel_on(backend, loads_then_computes(False))(a, out)
    np.testing.assert_array_equal(out, 2 * a[::-1])


@pytest.mark.parametrize("backend", IN_ORDER)
@pytest.mark.parametrize("count", [1, 5])
def test_tiles_go_to_and_fro(backend: str, count: int) -> None:
    a = np.arange(64 * count, dtype=np.int32).reshape(count, 64)
    out = np.zeros_like(a)
    kernel_on(backend, rounds(count))(a, out)
    np.testing.assert_array_equal(out, a[:, ::-1] + np.arange(count)[:, None])


@pytest.mark.parametrize("backend", IN_ORDER)
def test_parts_of_a_block_meet(backend: str) -> None:
    a = np.arange(256, dtype=np.int32).reshape(2, 128)
    out = np.zeros_like(a)
    kernel_on(backend, in_parts)(a, out)
    np.testing.assert_array_equal(out, np.broadcast_to(a.sum(1, keepdims=True), (2, 128)))


@pytest.mark.parametrize("backend", ["reference", "cpu_llvm"])
def test_the_order_of_the_text_is_no_order_of_warps(backend: str) -> None:
    program = loads_then_computes(False)
    with pytest.raises(UnsupportedError, match="wait for one another"):
        kernel_on(backend, program)(np.zeros(128, np.float32), np.zeros(128, np.float32))


@T.prim_func
def roles(A: T.Tensor((4, 64), "float32"), B: T.Tensor((4, 64), "float32")):
    """Warpgroups of T.ws in loops of their own, with copies that the whole block does."""
    with T.Kernel(1, threads=256):
        s = T.alloc_shared((64,), "float32")
        full, empty = T.alloc_barrier(128), T.alloc_barrier(128)
        with T.ws(0):
            for k in T.serial(4):
                T.barrier_wait(empty, (k + 1) % 2)
                T.copy(A[k, 0:64], s)
                T.barrier_arrive(full)
        with T.ws(1):
            for k in T.serial(4):
                T.barrier_wait(full, k % 2)
                for i in T.Parallel(64):
                    B[k, i] = s[i] * 2.0
                T.barrier_arrive(empty)


@T.prim_func
def one_name_in_two_scopes(B: T.Tensor((64,), "int32")):
    """Two scopes meet at one name, and one of them comes after the other in the text."""
    with T.Kernel(1, threads=256):
        s = T.alloc_shared((64,), "int32")
        with T.ws(0):
            T.named_barrier_sync(2, 256)
            T.copy(s, B)
        with T.ws(1):
            T.fill(s, 3)
            T.named_barrier_sync(2, 256)


@pytest.mark.parametrize("program", [roles, one_name_in_two_scopes], ids=lambda p: p.name)
@pytest.mark.parametrize("backend", BACKENDS)
def test_scopes_that_wait_for_later_ones_are_refused(backend: str, program: Any) -> None:
    with pytest.raises(UnsupportedError, match="wait for one another"):
        kernel_on(backend, program)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_barrier_that_nobody_uses_costs_nothing(backend: str) -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            T.alloc_barrier([1, 2])
            T.fill(A, 2.0)

    out = np.zeros(64, np.float32)
    kernel_on(backend, main)(out)
    assert (out == 2).all()


def test_bytes_arrive_on_one_target_only() -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            bar = T.alloc_barrier(64)
            T.mbarrier_expect_tx(bar, 64)
            T.fill(A, 2.0)

    with pytest.raises(UnsupportedError, match=r"no way to emit barrier\.expect"):
        tilecore.lower(main, "cuda_ampere")
