"""Atomics, barriers, asynchronous copies, warp scopes, printing."""

import language_support as support
import numpy as np
import pytest
from compiling import kernel_on

import tilecore.language as T
from tilecore.errors import LanguageError, UnsupportedError
from tilecore.ir import stmts as S


def test_atomics_run():
    @T.prim_func
    def main(
        A: T.Tensor((4, 8), "int32"), R: T.Tensor((16,), "int32"), F: T.Tensor((8,), "float32")
    ):
        with T.Kernel(4) as b:
            T.atomic_add(R[0], b + 1)
            T.atomic_max(R[1], A[b, 0])
            T.atomic_min(R[2], A[b, 0], memory_order="acq_rel")
            T.atomic_or(R[3], 1 << b)
            ticket = T.atomic_add(R[4], 1, return_prev=True)
            R[8 + ticket] = 1
            s = T.alloc_shared((8,), "float32")
            T.copy(A[b, 0], s)
            T.atomic_add(F, s)
            T.atomic_addx2(R[12], A[b, 2])
            T.atomic_store(R[5], 9)
            R[6] = T.atomic_load(R[5])

    a = np.arange(32, dtype=np.int32).reshape(4, 8)
    r = np.zeros(16, np.int32)
    r[2] = 100
    f = np.zeros(8, np.float32)
    out = support.result(main, "R", A=a, R=r, F=f)
    np.testing.assert_array_equal(out[:7], [10, 24, 0, 15, 4, 9, 9])
    np.testing.assert_array_equal(out[8:14], [1, 1, 1, 1, *a[:, 2:4].sum(0)])
    np.testing.assert_array_equal(f, a.sum(0))


@pytest.mark.parametrize("where", ["shared", "fragment"])
@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("backend", ["reference", "cpu_llvm", "cuda_ampere", "rocm_cdna3"])
def test_packed_additions_of_every_iteration(backend, width, where):
    """Inside T.Parallel each iteration adds its own few neighbours, at a place that it looks up."""
    add = T.atomic_addx2 if width == 2 else T.atomic_addx4
    alloc = T.alloc_shared if where == "shared" else T.alloc_fragment

    @T.prim_func
    def main(
        A: T.Tensor((8, 16), "float32"), P: T.Tensor((8,), "int32"), R: T.Tensor((4, 16), "float32")
    ):
        with T.Kernel(1, threads=64):
            s = alloc((8, 16), "float32")
            T.copy(A, s)
            for i, j in T.Parallel(8, 16 // width):
                add(R[P[i], j * width], s[i, j * width])

    a = np.arange(128, dtype=np.float32).reshape(8, 16)
    places = np.array([0, 3, 1, 3, 2, 0, 3, 1], np.int32)
    expected = np.zeros((4, 16), np.float32)
    np.add.at(expected, places, a)
    out = np.zeros((4, 16), np.float32)
    kernel_on(backend, main)(a, places, out)
    np.testing.assert_array_equal(out, expected)


def test_atomic_errors():
    def body(R, which, bx):
        s = T.alloc_fragment((4,), "float32")
        t = T.alloc_shared((3,), "float32")
        if which == 0:
            T.atomic_add(s[0], 1)
        elif which == 1:
            T.atomic_add(R[0] + 1, 1)
        elif which == 2:
            T.atomic_add(R, t, return_prev=True)
        elif which == 3:
            T.atomic_or(t[0], 1)
        elif which == 4:
            T.atomic_add(R[0], 1, memory_order="strong")
        elif which == 5:
            T.atomic_add(R, bx + 1, return_prev=True)
        else:
            T.atomic_add(R[0:4], t)

    macro = T.macro(body)
    for which, message in enumerate((
        "lives in the wrong memory", "is no place in memory", "takes one element",
        "needs integers", "unknown memory order", "takes one element", "shapes differ",
    )):  # fmt: skip
        with pytest.raises(LanguageError, match=message):

            @T.prim_func
            def main(R: T.Tensor((4,), "float32")):
                with T.Kernel(1) as bx:
                    macro(R, which, bx)  # noqa: B023


def test_core_intrinsics():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((8,), "float32")
            full = T.alloc_barrier([128, 1])
            one = T.alloc_barrier(4)
            with T.ws(0):
                T.barrier_arrive(full[0])
                T.mbarrier_arrive_expect_tx(full[1], 64)
            with T.ws(1):
                T.barrier_wait(full[0], 0)
                T.mbarrier_wait_parity(one, 1)
                T.mbarrier_expect_tx(one, 32)
                T.mbarrier_arrive(one)
            T.async_copy(A, s)
            T.async_commit()
            T.async_wait(0)
            T.sync_threads()
            T.sync_threads(3, 64)
            T.sync_threads(4)
            T.sync_warp()
            T.named_barrier_arrive(2, 128)
            with T.warps(2, 3, role="loader"):
                T.sync_warp()

    ops = [stmt.op for stmt in support.statements(main, S.Intrinsic)]
    assert ops == [
        "barrier.init", "barrier.init", "barrier.init",
        "barrier.arrive", "barrier.arrive_expect",
        "barrier.wait", "barrier.wait", "barrier.expect", "barrier.arrive",
        "async.copy", "async.commit", "async.wait",
        "sync_block", "named_barrier.sync", "named_barrier.sync", "sync_warp",
        "named_barrier.arrive", "sync_warp",
    ]  # fmt: skip
    scopes = support.statements(main, S.WarpScope)
    ranges = [(scope.first, scope.last, scope.role) for scope in scopes]
    assert ranges == [(0, 4, ""), (4, 8, ""), (2, 3, "loader")]
    calls = support.statements(main, S.Intrinsic)
    named = [call.args[1].value for call in calls if call.op == "named_barrier.sync"]
    assert named == [64, 256]


def test_synchronisation_errors():
    def body(A, which):
        s = T.alloc_shared((8,), "float32")
        if which == 0:
            T.barrier_arrive(s)
        elif which == 1:
            T.alloc_barrier(0)
        elif which == 2:
            with T.ws(0, 2):
                T.clear(s)
        elif which == 3:
            for _ in T.Parallel(4):
                T.sync_threads()
        elif which == 4:
            bars = T.alloc_barrier([1, 1])
            T.barrier_wait(bars, 0)

    macro = T.macro(body)
    for which, message in enumerate((
        "takes a barrier", "arrive_count is out of range", "neighbouring warpgroups",
        "T.sync_threads inside T.Parallel", "takes a barrier",
    )):  # fmt: skip
        with pytest.raises(LanguageError, match=message):

            @T.prim_func
            def main(A: T.Tensor((8,), "float32")):
                with T.Kernel(1):
                    macro(A, which)  # noqa: B023


def test_lane_all_reduce():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), R: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=(4, 8)):
            tn = T.get_thread_binding(0)
            tk = T.get_thread_binding(1)
            own = T.alloc_local((1,), "float32")
            whole = T.alloc_local((1,), "float32")
            own[0] = A[tn, tk]
            with T.attr(
                T.comm_reducer(lambda x, y: x + y, [T.cast(0, "float32")]),
                "reduce_scope",
                T.reinterpret(T.uint64(0), dtype="handle"),
            ):
                T.evaluate(
                    T.tvm_thread_allreduce(T.uint32(1), own[0], True, whole[0], tk, dtype="handle")
                )
            R[tn] = whole[0]

    a = np.arange(32, dtype=np.float32).reshape(4, 8)
    out = support.result(main, "R", A=a, R=np.zeros(4, np.float32))
    np.testing.assert_array_equal(out, a.sum(1))
    with pytest.raises(UnsupportedError, match="no free attributes"):

        @T.prim_func
        def other(A: T.Tensor((1,), "int32")):
            with T.Kernel(1):
                T.attr(A, "pragma", 1)


def test_print_and_device_assert():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(2) as b:
            T.print(b, msg="block")
            T.print(A, "whole")
            T.print("only text")
            T.device_assert(A[b] > 0, "positive")
            T.device_assert(A[b] < 9)

    prints = support.statements(main, S.Print)
    assert [p.message for p in prints] == ["block", "whole", "only text"]
    assert prints[2].value is None
    messages = [a.message for a in support.statements(main, S.Assert)]
    assert messages == ["positive", "device assertion failed"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("tcgen05_gemm", "no backend serves"),
        ("call_extern", "no meaning on another"),
        ("alloc_tmem", "tensor memory"),
        ("float16x2", "vector types"),
    ],
)
def test_known_names_are_refused_with_a_reason(name, reason):
    with pytest.raises(UnsupportedError, match=f"T.{name} is not supported.*{reason}") as caught:
        getattr(T, name)
    assert caught.value.loc.file == __file__


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match=r"did you mean T\.alloc_shared"):
        _ = T.alloc_share
    assert not hasattr(T, "entirely_unknown")


def test_the_facade_lists_what_it_has():
    names = dir(T)
    assert {"copy", "gemm", "float16", "exp2", "bool"} <= set(names)
    for name in names:
        assert getattr(T, name) is not None
