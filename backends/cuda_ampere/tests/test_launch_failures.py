"""Launches that are refused or fail: the error names the limit, the device or what happened."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from backends.cuda_ampere.tests.test_launch import N, driver, kernel, launcher
from tilecore.errors import LaunchError, ResourceError
from tilecore.ir.expr import const
from tilecore_backend_cuda_ampere.launch import explain_failure


def test_big_shared_memory_is_asked_for_once_and_too_big_is_refused() -> None:
    fake = driver()
    loaded = launcher(fake, kernel(smem_bytes=100_000))
    for _ in range(3):
        loaded.bind((16, 1), 0)(0, 1.0, 0)
    assert fake.set_attributes == [(1000, "MAX_DYNAMIC_SHARED_SIZE_BYTES", 100_000)]
    with pytest.raises(ResourceError, match="expected at most 166912 bytes, got 200000 bytes"):
        launcher(driver(), kernel(smem_bytes=200_000)).bind((16, 1), 0)
    with pytest.raises(ResourceError, match="got 167000 bytes"):
        launcher(driver(static_smem_bytes=67_000), kernel(smem_bytes=100_000)).bind((16, 1), 0)


def test_too_many_registers_are_refused_with_the_limit() -> None:
    with pytest.raises(ResourceError, match="expected at most 64 per lane for 1024 lanes, got 96"):
        launcher(driver(registers=96), kernel(threads=1024)).bind((16, 1), 0)


@pytest.mark.parametrize(("grid", "axis"), [((const(1), N), "y"), ((const(1), const(1), N), "z")])
def test_grid_over_the_limit_is_refused(grid: Any, axis: str) -> None:
    loaded = launcher(driver(), kernel(grid=grid))
    loaded.bind((1, 65535), 0)(0, 1.0, 0)
    with pytest.raises(ResourceError, match=f"blocks along {axis}; .*at most 65535, got 65536"):
        loaded.bind((1, 65536), 0)


@pytest.mark.parametrize(
    ("arch", "capability", "fits"),
    [
        ("sm_80", (8, 0), True), ("sm_80", (8, 9), True), ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False), ("sm_90a", (9, 0), True), ("sm_90a", (9, 1), False),
        ("sm_120", (12, 0), True),
    ],
)  # fmt: skip
def test_machine_code_for_another_device_is_refused(
    arch: str, capability: tuple[int, int], fits: bool
) -> None:
    loaded = launcher(driver(capability=capability), arch=arch)
    if fits:
        loaded.bind((16, 1), 0)(0, 1.0, 0)
        return
    with pytest.raises(LaunchError, match=f"expected {arch}.*got cuda:0 of compute capability"):
        loaded.bind((16, 1), 0)


def test_failed_launch_names_the_kernel_and_the_next_one_works() -> None:
    fake = driver(statuses=[1])
    launch = launcher(fake).bind((16, 1), 0)
    message = r"kernel k on grid \(1, 1, 1\) could not be launched; got CUDA_ERROR_1"
    with pytest.raises(LaunchError, match=message):
        launch(64, 1.0, 64)
    launch(128, 1.0, 64)
    assert fake.launches[0].params[0] == struct.pack("<Q", 128)


@pytest.mark.parametrize(("code", "text"), [(719, "trapped"), (700, "not mapped"), (716, "misal")])
def test_device_failures_say_what_happened_and_what_is_lost(code: int, text: str) -> None:
    error = explain_failure(driver(), code, "kernel k")
    assert text in str(error)
    assert "start a new one" in str(error)
