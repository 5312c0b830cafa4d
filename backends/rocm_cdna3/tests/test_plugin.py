"""What the backend says of itself: its target, its devices or why none, what it refuses."""

from __future__ import annotations

import dataclasses
import sys
import types
from typing import Any

import pytest

import tilecore
from tilecore.errors import UnsupportedError
from tilecore.hooks.manager import hooks_of, targets_of
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import float32
from tilecore.ir.expr import Var, const
from tilecore.ir.program import Kernel, Program
from tilecore.ir.stmts import Copy, Intrinsic
from tilecore_backend_rocm import device

A, B = (Buffer(name, (const(64),), float32, Scope.GLOBAL) for name in "AB")
BODY = (Copy(Region(A, (const(0),), (const(64),)), Region(B, (const(0),), (const(64),))),)
PROGRAM = Program("copy", (A, B), (Kernel("copy", (Var("bx"),), (const(1),), 64, BODY),))


def test_target() -> None:
    (target,) = targets_of("rocm_cdna3")
    assert (target.arch, target.lanes_per_warp, target.smem_bytes) == ("gfx942", 64, 65536)


def test_source_is_emitted_for_wavefronts_of_64() -> None:
    lowered = tilecore.lower(PROGRAM, "rocm_cdna3")
    assert "TC_KERNEL(64, 0) copy(" in lowered.source.text


@pytest.mark.parametrize(("number", "lanes"), [(16, 64), (-1, 64), (1, 32), (1, 96), (1, 0)])
def test_named_barriers_are_numbers_of_whole_wavefronts(number: int, lanes: int) -> None:
    barrier = Intrinsic("named_barrier.sync", (const(number), const(lanes)))
    kernel = dataclasses.replace(PROGRAM.kernels[0], body=(*BODY, barrier))
    with pytest.raises(UnsupportedError, match="constant number|whole wavefronts"):
        tilecore.lower(dataclasses.replace(PROGRAM, kernels=(kernel,)), "rocm_cdna3")


class FakeHip(types.ModuleType):
    """The few calls of hip-python that finding a device makes."""

    def __init__(self, archs: list[str], status: int = 0) -> None:
        super().__init__("hip")
        self._archs = archs
        self._status = status
        self.hip = self

    class hipDeviceProp_t:  # the binding's own name
        gcnArchName = name = b""
        multiProcessorCount = totalGlobalMem = 0

    def hipGetDeviceCount(self) -> tuple[int, int]:
        return self._status, len(self._archs)

    def hipGetDeviceProperties(self, properties: Any, ordinal: int) -> tuple[int]:
        properties.gcnArchName = self._archs[ordinal].encode()
        properties.name = b"Some Accelerator"
        properties.multiProcessorCount = 304
        properties.totalGlobalMem = 192 << 30
        return (0,)


def use(monkeypatch: pytest.MonkeyPatch, module: types.ModuleType | None) -> None:
    monkeypatch.setitem(sys.modules, "hip", module)


def test_device_of_the_architecture_is_found_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeHip(["gfx90a:xnack-", "gfx942:sramecc+:xnack-"]))
    (target,) = targets_of("rocm_cdna3")
    found = hooks_of("rocm_cdna3").call("tilecore_probe_device", target=target)
    assert (found.name, found.arch, found.processors) == ("Some Accelerator", "gfx942", 304)
    assert dict(found.details) == {"ordinal": "1", "settings": "sramecc+ xnack-"}


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, "hip-python is not installed"),
        (FakeHip([], status=100), "cannot be loaded or does not answer"),
        (FakeHip([]), "sees no device"),
        (FakeHip(["gfx90a"]), "1 ROCm devices, none of this architecture"),
    ],
)
def test_absence_has_a_reason(
    monkeypatch: pytest.MonkeyPatch, module: types.ModuleType | None, reason: str
) -> None:
    use(monkeypatch, module)
    (target,) = targets_of("rocm_cdna3")
    assert device.probe_device(target) is None
    hooks = hooks_of("rocm_cdna3")
    assert reason in hooks.call("tilecore_explain_absence", target=target)
