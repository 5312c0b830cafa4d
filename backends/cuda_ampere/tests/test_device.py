"""Devices: which machine code runs where, and machines without a driver."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tilecore_backend_cuda_ampere.device import best_arch, capability_of, runs_on


def test_capabilities_of_names() -> None:
    assert [capability_of(a) for a in ("sm_80", "sm_86", "sm_90a", "sm_103", "sm_120f")] == [
        (8, 0), (8, 6), (9, 0), (10, 3), (12, 0),
    ]  # fmt: skip
    for wrong in ("gfx942", "sm_", "80", "sm_90b"):
        with pytest.raises(ValueError, match="not an architecture"):
            capability_of(wrong)


def test_binary_compatibility() -> None:
    assert runs_on("sm_80", (8, 0))
    assert runs_on("sm_80", (8, 9))
    assert not runs_on("sm_86", (8, 0))
    assert not runs_on("sm_80", (9, 0))
    assert runs_on("sm_90a", (9, 0))
    assert not runs_on("sm_90a", (9, 1))


def test_newest_fitting_architecture_is_best() -> None:
    archs = ["sm_80", "sm_90", "sm_86", "sm_89"]
    capabilities = [(8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (7, 5)]
    best = ["sm_80", "sm_86", "sm_86", "sm_89", "sm_90", None, None]
    assert [best_arch(archs, capability) for capability in capabilities] == best


def test_machine_without_a_driver_has_no_devices_and_says_why() -> None:
    """In a process of its own, from which the driver's library is hidden."""
    program = """
import ctypes
real = ctypes.CDLL
def hidden(name, *args, **named):
    if "cuda" in str(name):
        raise OSError(f"{name}: hidden by the test")
    return real(name, *args, **named)
ctypes.CDLL = hidden
import cuda.bindings.driver as api
def gone(*args):
    raise RuntimeError("libcuda.so is hidden by the test")
api.cuInit = gone
from tilecore.errors import LaunchError
from tilecore.target import Target
from tilecore_backend_cuda_ampere import device, driver
assert device.probe_device(Target("cuda_ampere", "sm_80"), ["sm_80"]) is None
assert device.device_count() == 0
print(device.why_no_device())
try:
    driver.get_driver()
except LaunchError as error:
    print(error)
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    lines = result.stdout.splitlines()
    assert len(lines) == 2
    assert all("NVIDIA driver" in line and "hidden by the test" in line for line in lines)
