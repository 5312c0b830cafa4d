"""Launching, against a recorded stand-in for HIP: what arrives there, and what is refused."""

from __future__ import annotations

import struct
import threading

import pytest

from backends.rocm_cdna3.tests.fake_hip import FakeHip
from tilecore.errors import LaunchError, ResourceError
from tilecore.hooks.manager import targets_of
from tilecore.hooks.records import Artifact, KernelSource, Source
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import float32, int32
from tilecore.ir.expr import Var, const
from tilecore.ir.program import Kernel, Program
from tilecore.ir.signature import kernel_arguments
from tilecore.ir.stmts import Copy, Fill
from tilecore_backend_rocm.hip_api import HipApi, HipError
from tilecore_backend_rocm.launch import HipLauncher

(TARGET,) = targets_of("rocm_cdna3")
N = Var("n", int32)
A, B = (Buffer(name, (N,), float32, Scope.GLOBAL) for name in "AB")
SCALE = Var("scale", float32)
WHOLE_A, WHOLE_B = (Region(buffer, (const(0),), (N,)) for buffer in (A, B))
BODY = (Copy(WHOLE_A, WHOLE_B), Fill(WHOLE_B, SCALE))
KERNEL = Kernel("scale_all", (Var("bx"),), (N,), 128, BODY)
PROGRAM = Program("scale_all", (A, B, SCALE), (KERNEL,), symbols=(N,))
ARGUMENTS = kernel_arguments(PROGRAM, KERNEL)


def launcher(hip: FakeHip) -> HipLauncher:
    source = Source("", "c++", (KernelSource("scale_all", ARGUMENTS, (N,), 128, 4096),))
    hip.parameters["scale_all"] = len(ARGUMENTS)
    return HipLauncher(PROGRAM, source, Artifact(b"code", "hsaco"), TARGET, HipApi(hip))


def test_a_launch_carries_grid_block_lds_stream_and_values() -> None:
    hip = FakeHip()
    launcher(hip)((0x1000, 0x2000, 0.5, 7), stream=42)
    (call,) = hip.launches
    assert (call["grid"], call["block"], call["lds"]) == ((7, 1, 1), (128, 1, 1), 4096)
    assert (call["stream"], call["extra"]) == (42, None)
    byname = dict(zip((a.name for a in ARGUMENTS), call["values"], strict=True))
    assert struct.unpack("<Q", byname["A"]) == (0x1000,)
    assert struct.unpack("<Q", byname["B"]) == (0x2000,)
    assert struct.unpack("<f", byname["scale"][:4]) == (0.5,)
    if "n" in byname:
        assert struct.unpack("<i", byname["n"][:4]) == (7,)


def test_code_is_loaded_once_a_device_and_the_current_device_is_kept() -> None:
    hip = FakeHip(("gfx942", "gfx942"))
    ready = launcher(hip)
    for device in (1, 0, 1):
        ready.bind((3,), device)(1, 2, 1.0)
    assert (
        [c["device"] for c in hip.launches] == [c["loaded_on"] for c in hip.launches] == [1, 0, 1]
    )
    assert hip.calls == ["load 4 on 1", "load 4 on 0"]
    assert hip.device == 0


def test_nothing_is_launched_for_an_empty_grid() -> None:
    hip = FakeHip()
    launcher(hip)((1, 2, 1.0, 0))
    assert hip.launches == []


def test_threads_do_not_share_the_memory_of_their_arguments() -> None:
    hip = FakeHip()
    bound = launcher(hip).bind((1,), 0)
    places: list[bytes] = []

    def run(value: int) -> None:
        for _ in range(50):
            bound(value, value, 0.0)

    threads = [threading.Thread(target=run, args=(value,)) for value in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for call in hip.launches:
        places = [call["values"][k] for k, a in enumerate(ARGUMENTS) if isinstance(a, Buffer)]
        assert len(set(places)) == 1  # A and B of one call come from one thread
    assert len(hip.launches) == 150


def test_another_architecture_is_refused() -> None:
    with pytest.raises(LaunchError, match="rocm:0 is gfx90a"):
        launcher(FakeHip(("gfx90a:xnack-",)))((1, 2, 1.0, 1))


def test_too_large_a_grid_is_refused() -> None:
    with pytest.raises(ResourceError, match="too many blocks along x"):
        launcher(FakeHip())((1, 2, 1.0, 2**31))


def test_a_failed_launch_names_the_call() -> None:
    hip = FakeHip()
    hip.launch_status = 719
    with pytest.raises(HipError, match="hipModuleLaunchKernel failed: 719"):
        launcher(hip)((1, 2, 1.0, 1))


def test_synchronize_waits_for_every_device() -> None:
    hip = FakeHip(("gfx942", "gfx942"))
    HipApi(hip).synchronize()
    assert hip.calls == ["synchronize 0", "synchronize 1"]


def test_without_a_runtime_the_error_says_so() -> None:
    class Broken(FakeHip):
        def hipGetDeviceCount(self) -> tuple[int, int]:
            raise RuntimeError("failed to dlopen libamdhip64.so")

    with pytest.raises(LaunchError, match="cannot be loaded"):
        HipApi(Broken())


def test_constant_grid() -> None:
    kernel = Kernel("one", (Var("bx"),), (const(2),), 64, (Fill(WHOLE_A, const(0.0, float32)),))
    program = Program("one", (A,), (kernel,), symbols=(N,))
    hip = FakeHip()
    arguments = kernel_arguments(program, kernel)
    hip.parameters["one"] = len(arguments)
    source = Source("", "c++", (KernelSource("one", arguments, (const(2),), 64),))
    HipLauncher(program, source, Artifact(b"", "hsaco"), TARGET, HipApi(hip))((16, 5))
    assert hip.launches[0]["grid"] == (2, 1, 1)


def test_a_grid_that_a_scalar_decides_follows_each_call() -> None:
    count = Var("count", int32)
    body = Kernel("scale_all", (Var("bx"),), (count,), 128, BODY)
    program = Program("scale_all", (A, B, SCALE, count), (body,), symbols=(N,))
    arguments = kernel_arguments(program, body)
    hip = FakeHip()
    hip.parameters["scale_all"] = len(arguments)
    source = Source("", "c++", (KernelSource("scale_all", arguments, (count,), 128, 0),))
    ready = HipLauncher(program, source, Artifact(b"code", "hsaco"), TARGET, HipApi(hip))
    assert ready.scalars == (3,)
    ready.bind((7, 5), 0)(1, 2, 0.5, 5)
    ready((1, 2, 0.5, 6, 7))
    ready((1, 2, 0.5, -1, 7))
    assert [call["grid"] for call in hip.launches] == [(5, 1, 1), (6, 1, 1)]
