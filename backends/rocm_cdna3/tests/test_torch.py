"""Calls with tensors of torch for ROCm and of DLPack, on streams, devices and in graphs.

Against stand-ins of torch and of HIP: what would run on hardware, and in which order. The way from
tensors to a launch is the same code that serves real ones.
"""

from __future__ import annotations

import struct
import sys
from typing import Any

import pytest

from backends.rocm_cdna3.tests.fake_hip import FakeHip
from backends.rocm_cdna3.tests.fake_torch import Device, Exported, FakeTorch, Tensor
from tilecore.errors import ArgumentError, TilecoreError
from tilecore.hooks.manager import targets_of
from tilecore.hooks.records import Artifact, KernelSource, Source
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import float32, int32
from tilecore.ir.expr import Var, const
from tilecore.ir.program import Kernel, Program
from tilecore.ir.signature import kernel_arguments
from tilecore.ir.stmts import Copy
from tilecore.runtime import tensors
from tilecore.runtime.caller import KernelCaller
from tilecore_backend_rocm.hip_api import HipApi, HipError
from tilecore_backend_rocm.launch import HipLauncher

(TARGET,) = targets_of("rocm_cdna3")
N = Var("n", int32)
A, B = (Buffer(name, (N,), float32, Scope.GLOBAL) for name in "AB")
BODY = (Copy(*(Region(buffer, (const(0),), (N,)) for buffer in (A, B))),)
KERNEL = Kernel("copy_all", (Var("bx"),), (N,), 64, BODY)
PROGRAM = Program("copy_all", (A, B), (KERNEL,), symbols=(N,), outputs=(1,))
ARGUMENTS = kernel_arguments(PROGRAM, KERNEL)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    module = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", module)
    for cached in (tensors._torch_device, tensors._torch_dtype_name):
        cached.cache_clear()
    return module


def caller(hip: FakeHip) -> KernelCaller:
    source = Source("", "c++", (KernelSource("copy_all", ARGUMENTS, (N,), 64, 128),))
    hip.parameters["copy_all"] = len(ARGUMENTS)
    launcher = HipLauncher(PROGRAM, source, Artifact(b"code", "hsaco"), TARGET, HipApi(hip))
    return KernelCaller(PROGRAM, launcher)


def tensor(address: int, device: int = 0, size: int = 5, **more: Any) -> Tensor:
    return Tensor(address, (size,), Device("cuda", device), **more)


def values(launch: dict[str, Any]) -> dict[str, int]:
    pairs = zip((a.name for a in ARGUMENTS), launch["values"], strict=True)
    return {name: struct.unpack("<q", raw)[0] for name, raw in pairs}


def test_tensors_go_to_their_device_on_its_current_stream(torch: FakeTorch) -> None:
    hip = FakeHip(("gfx942", "gfx942"))
    torch.streams = {0: 70, 1: 71}
    call = caller(hip)
    for device in (1, 0, 1):
        call(tensor(0x1000, device), tensor(0x2000, device))
    assert [(c["device"], c["stream"]) for c in hip.launches] == [(1, 71), (0, 70), (1, 71)]
    assert [c["loaded_on"] for c in hip.launches] == [1, 0, 1]
    assert hip.calls == ["load 4 on 1", "load 4 on 0"]
    found = values(hip.launches[0])
    assert (found["A"], found["B"]) == (0x1000, 0x2000) and hip.launches[0]["grid"] == (5, 1, 1)


def test_the_stream_is_asked_at_every_call(torch: FakeTorch) -> None:
    hip = FakeHip()
    call = caller(hip)
    a, b = tensor(0x1000), tensor(0x2000)
    for stream in (5, 6, 0):
        torch.streams = {0: stream}
        call(a, b)
    assert [c["stream"] for c in hip.launches] == [5, 6, 0]


def test_an_output_is_allocated_beside_its_input(torch: FakeTorch) -> None:
    hip = FakeHip(("gfx942", "gfx942"))
    result = caller(hip)(tensor(0x1000, 1))
    assert torch.made == [result] and (result.shape, result.device.index) == ((5,), 1)
    assert values(hip.launches[0])["B"] == result.address


def test_dlpack_tensors_of_rocm_devices(torch: FakeTorch) -> None:
    hip = FakeHip()
    caller(hip)(Exported(tensor(0x3000)), Exported(tensor(0x4000)))
    assert values(hip.launches[0])["A"] == 0x3000


def test_a_graph_holds_launches_only_and_can_be_replayed(torch: FakeTorch) -> None:
    hip = FakeHip()
    torch.streams = {0: 9}
    call = caller(hip)
    a, b = tensor(0x1000), tensor(0x2000)
    call(a, b)  # code is loaded before the capture, as for every graph
    hip.hipStreamBeginCapture(9, 0)
    for _ in range(3):
        call(a, b)
    _, graph = hip.hipStreamEndCapture(9)
    assert len(hip.launches) == 1 and [c["name"] for c in graph] == ["copy_all"] * 3
    hip.hipGraphLaunch(graph, 4)
    assert [c["stream"] for c in hip.launches] == [9, 4, 4, 4]
    assert all(values(c)["B"] == 0x2000 for c in hip.launches)


def test_loading_inside_a_capture_names_the_call(torch: FakeTorch) -> None:
    hip = FakeHip()
    torch.streams = {0: 9}
    hip.hipStreamBeginCapture(9, 0)
    with pytest.raises(HipError, match="hipModuleLoadData failed: 900"):
        caller(hip)(tensor(0x1000), tensor(0x2000))


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (tensor(0x2000, 1), "rocm:1"),
        (Tensor(0x2000, (5,), Device("cpu", None)), "cpu"),
        (tensor(0x2000, size=4), "4"),
        (tensor(0x2000, dtype="torch.float16"), "float16"),
        (tensor(0x2004), "align"),
        (tensor(0x2000, requires_grad=True), "requires_grad"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(torch: FakeTorch, second: Tensor, reason: str) -> None:
    hip = FakeHip(("gfx942", "gfx942"))
    with pytest.raises(TilecoreError, match=reason):
        caller(hip)(tensor(0x1000), second)
    assert hip.launches == []


def test_unknown_dlpack_devices_are_refused(torch: FakeTorch) -> None:
    with pytest.raises(ArgumentError, match="device that tilecore does not know"):
        caller(FakeHip())(Exported(tensor(0x1000), code=99), tensor(0x2000))
