"""What a call may pass: every misuse is an error that says where, what was expected, what came."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.programs import MATMUL, K, M, N, RecordingLauncher, program, tensor
from tilecore.errors import ArgumentError, UnsupportedError
from tilecore.ir.dtypes import bfloat16, boolean, float4_e2m1fn, float16, float32, int8, int32
from tilecore.ir.expr import Var, binary, const
from tilecore.runtime.caller import KernelCaller

torch = pytest.importorskip("torch")


def caller(prog: Any, **launcher: Any) -> Any:
    return KernelCaller(prog, RecordingLauncher(**launcher))


def f32(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


A, B, C = f32(4, 6), f32(6, 5), f32(4, 5)


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        ((A, B), {}, r"missing argument C; expected A, B, C"),
        ((), {}, r"missing argument A, B, C"),
        ((A, B, C, C), {}, r"too many arguments; expected 3: A, B, C, got 4"),
        ((A, B, C), {"D": C}, r"unknown argument 'D'; expected one of A, B, C"),
        ((A, [1.0], C), {}, r"B is of the wrong kind; expected a tensor of shape \(K, N\) and "
                            r"dtype float32, got a value of type list"),
        ((A, B, None), {}, r"C is of the wrong kind.* got a value of type NoneType"),
        ((A, B, C.astype(np.float64)), {}, r"C has the wrong dtype; expected float32, got float64"),
        ((A, B, C.astype(">f4")), {}, r"C: array is not in this machine's byte order"),
        ((A, B, f32(4, 5, 1)), {}, r"C has the wrong rank; expected a tensor of shape \(M, N\) "
                                   r"and dtype float32, got rank 3, shape \(4, 5, 1\)"),
        ((A, B, f32(3, 5)), {}, r"size M has two values; expected 4 as in A.shape\[0\], "
                                r"got 3 in C.shape\[0\]"),
        ((A, f32(5, 6).T, C), {}, r"B is not contiguous; expected strides \(5, 1\), got \(1, 6\)"),
        ((f32(4, 12)[:, ::2], B, C), {}, r"A is not contiguous"),
        ((f32(4, 7)[:, :6], B, C), {}, r"A is not contiguous.*hint: pass a contiguous copy"),
    ],
)  # fmt: skip
def test_misuse_is_explained(args: tuple[Any, ...], named: dict[str, Any], message: str) -> None:
    call = caller(MATMUL)
    for _ in range(2):  # before and after a call that fits
        with pytest.raises(ArgumentError, match=rf"^user.py:12: demo: {message}"):
            call(*args, **named)
        call(A, B, C)
        call(A, B, C)


def test_read_only_output_is_refused_and_read_only_input_is_not() -> None:
    frozen_a, frozen_c = A.copy(), C.copy()
    frozen_a.flags.writeable = frozen_c.flags.writeable = False
    call = caller(MATMUL)
    for _ in range(3):
        call(frozen_a, B, C)
        with pytest.raises(ArgumentError, match="C is read-only, and this kernel writes it"):
            call(frozen_a, B, frozen_c)


def test_constant_extents_and_expressions_are_compared() -> None:
    call = caller(
        program(tensor("A", M, 8), tensor("C", binary("mul", M, const(2)), 8), symbols=(M,))
    )
    call(f32(3, 8), f32(6, 8))
    with pytest.raises(ArgumentError, match=r"A has the wrong shape; expected \(3, 8\) with M = 3"):
        call(f32(3, 7), f32(6, 8))
    with pytest.raises(ArgumentError, match=r"C has the wrong shape; expected \(6, 8\) with M = 3"):
        call(f32(3, 8), f32(7, 8))


def test_size_that_no_axis_tells_is_refused_when_compiled() -> None:
    prog = program(tensor("A", binary("floordiv", M, const(2))), symbols=(M,))
    with pytest.raises(UnsupportedError, match="dynamic size M follows from no shape"):
        KernelCaller(prog, RecordingLauncher())


def test_size_told_only_by_an_output_is_refused() -> None:
    prog = program(tensor("A", M), tensor("C", N), symbols=(M, N), outputs=(1,))
    with pytest.raises(UnsupportedError, match="dynamic size N"):
        KernelCaller(prog, RecordingLauncher())


@pytest.mark.parametrize(
    ("symbol", "good", "bad", "message"),
    [
        (Var("M", multiple_of=8), 16, 12, "a multiple of 8, got 12 in A.shape"),
        (Var("M", lower=4), 4, 3, "at least 4, got 3"),
        (Var("M", upper=9), 9, 10, "at most 9, got 10"),
    ],
)
def test_promises_about_sizes_are_checked(symbol: Var, good: int, bad: int, message: str) -> None:
    call = caller(program(tensor("A", symbol), symbols=(symbol,)))
    call(f32(good))
    with pytest.raises(ArgumentError, match=f"size M is not as declared; expected {message}"):
        call(f32(bad))


def test_size_beyond_its_dtype_is_refused() -> None:
    huge = np.broadcast_to(np.float32(0), (2**31, 1))[:, :0]
    call = caller(program(tensor("A", M, 0), symbols=(M,)))
    with pytest.raises(ArgumentError, match="at most 2147483647, as M is int32"):
        call(huge)


def test_declared_strides_are_solved_and_compared() -> None:
    S = Var("S")
    prog = program(tensor("A", M, 6, strides=(S, 1)), symbols=(M, S))
    launcher = RecordingLauncher()
    call = KernelCaller(prog, launcher)
    call(f32(4, 10)[:, :6])
    assert launcher.binds == [((4, 10), 0)]
    with pytest.raises(ArgumentError, match=r"wrong strides; expected \(10, 1\), got \(10, -1\)"):
        call(f32(4, 10)[:, 5::-1])


def test_strides_of_axes_of_extent_one_are_free() -> None:
    call = caller(program(tensor("A", M, 1, N), symbols=(M, N)))
    call(f32(4, 3, 6)[:, :1].copy())
    call(np.lib.stride_tricks.as_strided(f32(4, 6), (4, 1, 6), (24, 999 * 4, 4)))


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))
def test_empty_tensors_of_any_stride_pass(m: int, k: int, n: int) -> None:
    launcher = RecordingLauncher()
    call = KernelCaller(MATMUL, launcher)
    call(np.empty((m, k), np.float32), np.empty((k, n), np.float32), np.empty((m, n), np.float32))
    assert launcher.binds == [((k, m, n), 0)]


def test_misaligned_address_is_refused_each_time() -> None:
    call = caller(program(tensor("C", M), symbols=(M,)), alignment=16)
    storage = torch.zeros(64)
    call(storage[4:20])
    for _ in range(3):
        call(storage[4:20])
        message = "C is misaligned; expected .* a multiple of 16 bytes, got 0x.*, 4 bytes off"
        with pytest.raises(ArgumentError, match=message):
            call(storage[5:21])


def test_wrong_device_is_refused() -> None:
    call = caller(program(tensor("C", M), symbols=(M,)), device_kind="cuda")
    with pytest.raises(ArgumentError, match="C is on the wrong device; expected a tensor in cuda "
                                            "memory, got one on cpu"):  # fmt: skip
        call(f32(4))
    with pytest.raises(ArgumentError, match="got one on meta"):
        call(torch.zeros(4, device="meta"))


class DeviceArray:
    """A device array as array libraries present it; its memory is never touched here."""

    def __init__(self, ordinal: int = 0, **changes: Any) -> None:
        self.ordinal = ordinal
        self.__cuda_array_interface__ = {
            "shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3, **changes,
        }  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.ordinal


def test_device_array_interface() -> None:
    launcher = RecordingLauncher(device_kind="cuda")
    call = KernelCaller(program(tensor("A", M), tensor("C", M), symbols=(M,)), launcher)
    call(DeviceArray(1), DeviceArray(1, data=(8192, False)))
    assert launcher.launches == [(4096, 8192, 4)]
    assert launcher.binds == [((4,), 1)]
    with pytest.raises(ArgumentError, match="A and C are on different devices; expected all "
                                            "tensors on cuda:0, got C on cuda:1"):  # fmt: skip
        call(DeviceArray(0), DeviceArray(1))
    with pytest.raises(ArgumentError, match="C is read-only"):
        call(DeviceArray(), DeviceArray(data=(4096, True)))
    with pytest.raises(ArgumentError, match="A is not contiguous"):
        call(DeviceArray(strides=(8,)), DeviceArray())


class OnlyDlpack:
    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


@pytest.mark.parametrize("make", [lambda: f32(4), lambda: torch.zeros(4)])
def test_dlpack_objects(make: Any) -> None:
    launcher = RecordingLauncher()
    owner = make()
    KernelCaller(program(tensor("C", M), symbols=(M,)), launcher)(OnlyDlpack(owner))
    address = owner.ctypes.data if isinstance(owner, np.ndarray) else owner.data_ptr()
    assert launcher.launches == [(address, 4)]


@pytest.mark.parametrize("dtype", [float16, bfloat16, int8, boolean])
def test_dtypes_of_both_libraries(dtype: Any) -> None:
    call = caller(program(tensor("C", M, dtype=dtype), symbols=(M,)))
    numpy_type = ml_dtypes.bfloat16 if dtype is bfloat16 else np.dtype(dtype.name)
    for _ in range(2):
        call(np.zeros(4, numpy_type))
        call(torch.zeros(4, dtype=getattr(torch, dtype.name)))
        with pytest.raises(ArgumentError, match=f"expected {dtype.name}, got float32"):
            call(f32(4))


def test_packed_elements_take_fewer_bytes() -> None:
    launcher = RecordingLauncher()
    prog = program(tensor("C", M, K, dtype=float4_e2m1fn), tensor("B", K), symbols=(M, K))
    call = KernelCaller(prog, launcher)
    call(np.zeros((3, 4), np.uint8), f32(7))
    assert launcher.binds == [((7, 3), 0)]
    with pytest.raises(ArgumentError, match=r"expected \(3, 5\) \(packed from \(3, 9\)\)"):
        call(np.zeros((3, 4), np.uint8), f32(9))


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        (int32, [0, -(2**31), np.int64(7), 2**31 - 1], [2**31, 1.0, True, "1", None, f32(1)]),
        (int8, [127], [128, -129]),
        (float32, [1, 1.5, np.float16(2), float("inf")], [True, "1", None, 1j]),
        (boolean, [True, np.bool_(False)], [1, 0.0, None]),
    ],
)
def test_scalars(dtype: Any, good: list[Any], bad: list[Any]) -> None:
    launcher = RecordingLauncher()
    call = KernelCaller(program(Var("s", dtype), tensor("C", M), symbols=(M,)), launcher)
    for value in good * 3:
        call(value, C[0])
        passed = launcher.launches[-1][0]
        assert passed == value
        assert type(passed) in (int, float, bool)
    for value in bad * 2:
        call(good[0], C[0])
        with pytest.raises(ArgumentError, match="s is of the wrong kind"):
            call(value, C[0])
