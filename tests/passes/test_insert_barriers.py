"""Barriers: every one needed, none missing; the emulator agrees with the checker."""

import dataclasses
import importlib

import numpy as np
import pytest
from passes_support import kernel_of, run

import tilecore
import tilecore.language as T
from tilecore.errors import EmulatorFault
from tilecore.ir.stmts import Intrinsic
from tilecore.ir.visit import walk_stmts
from tilecore.passes.scopes import kernel_ranges

barriers = importlib.import_module("tilecore.passes.insert_barriers")
THREADS = 64


def transpose_twice():
    @T.prim_func
    def program(A: T.Tensor((32, 32), "float32"), B: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=THREADS) as _:
            s = T.alloc_shared((32, 32), "float32")
            for step in T.serial(2):
                for i, j in T.Parallel(32, 32):
                    s[i, j] = A[i, j] + T.cast(step, "float32")
                for i, j in T.Parallel(32, 32):
                    B[i, j] = s[j, i]

    return program


def pipelined_copy(num_stages: int):
    @T.prim_func
    def program(A: T.Tensor((256, 32), "float32"), B: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=THREADS) as _:
            s = T.alloc_shared((32, 32), "float32")
            f = T.alloc_fragment((32, 32), "float32")
            T.clear(f)
            for k in T.Pipelined(8, num_stages=num_stages):
                T.copy(A[k * 32, 0], s)
                for i, j in T.Parallel(32, 32):
                    f[i, j] += s[j, i]
            T.copy(f, B)

    return program


def two_halves():
    """Halves of one buffer that never meet: no barrier between them."""

    @T.prim_func
    def program(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32) as _:
            s = T.alloc_shared((2, 32), "float32")
            for i in T.Parallel(32):
                s[0, i] = A[i]
            for i in T.Parallel(32):
                s[1, i] = A[32 + i]
            for i in T.Parallel(32):
                B[i] = s[0, 31 - i] + s[1, 31 - i]

    return program


PROGRAMS = [transpose_twice(), two_halves(), *(pipelined_copy(n) for n in range(5))]


def count(kernel) -> int:
    return sum(stmt == barriers.BARRIER for stmt in walk_stmts(kernel.body))


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_barrier_is_missing_and_none_is_needless(program):
    scheduled = run(program)
    kernel = kernel_of(scheduled)
    ranges = kernel_ranges(kernel, scheduled.symbols)
    assert barriers.find_conflicts(kernel, ranges) == []
    for position in range(count(kernel)):
        without = dataclasses.replace(kernel, body=barriers._remove(kernel.body, [position]))
        assert barriers.find_conflicts(without, ranges), f"barrier {position} is needless"


def test_disjoint_halves_share_one_barrier():
    assert count(kernel_of(run(two_halves()))) == 1


@pytest.mark.parametrize("num_stages", [2, 3, 4])
def test_a_pipelined_loop_meets_once_an_iteration(num_stages):
    assert count(kernel_of(run(pipelined_copy(num_stages)))) == 1


def test_a_wait_alone_does_not_show_data_to_other_lanes():
    kernel = kernel_of(run(pipelined_copy(3)))
    waits = [
        s for s in walk_stmts(kernel.body) if isinstance(s, Intrinsic) and s.op == "async.wait"
    ]
    assert waits and count(kernel) == 1


def test_reading_a_buffer_with_a_copy_under_way_is_refused():
    program = run(pipelined_copy(3), until="plan_shared_memory")
    kernel = kernel_of(program)

    def drop(block):
        from tilecore.ir.visit import map_stmts

        return map_stmts(
            block, lambda s: () if isinstance(s, Intrinsic) and s.op == "async.wait" else None
        )

    broken = dataclasses.replace(
        program, kernels=(dataclasses.replace(kernel, body=drop(kernel.body)),)
    )
    from passes_support import context

    with pytest.raises(tilecore.errors.VerifyError, match="under way"):
        barriers.insert_barriers(broken, context())


def test_the_emulator_finds_a_removed_barrier(monkeypatch):
    a, b = np.random.rand(32, 32).astype(np.float32), np.zeros((32, 32), np.float32)
    good = tilecore.compile(transpose_twice(), backend="cuda_ampere", device="emulator")
    good(a, b)
    np.testing.assert_allclose(b, a.T + 1)
    monkeypatch.setattr(barriers, "first_conflict", lambda kernel, ranges, memo: None)
    without = tilecore.compile(
        transpose_twice(),
        backend="cuda_ampere",
        device="emulator",
        options=tilecore.CompileOptions(extra=(("test", "no barriers"),)),
    )
    with pytest.raises(EmulatorFault, match="race"):
        without(a, b)


def test_two_slots_and_a_branch_need_one_barrier():
    """The barrier stands before the branch, so it also orders iterations k and k - 2."""

    @T.prim_func
    def program(A: T.Tensor((8, 32), "float32"), B: T.Tensor((8, 32), "float32"), N: T.int32):
        with T.Kernel(1, threads=32) as _:
            s = T.alloc_shared((2, 32), "float32")
            for k in T.serial(8):
                for i in T.Parallel(32):
                    s[k % 2, i] = A[k, i]
                if N > 3:
                    for i in T.Parallel(32):
                        B[k, i] = s[k % 2, 31 - i]

    a, b = np.random.rand(8, 32).astype(np.float32), np.zeros((8, 32), np.float32)
    tilecore.compile(program, backend="cuda_ampere", device="emulator")(a, b, 4)
    np.testing.assert_array_equal(b, a[:, ::-1])
    scheduled = run(program)
    kernel = kernel_of(scheduled)
    assert count(kernel) == 1
