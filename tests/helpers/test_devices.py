"""What runs a test's kernels on a device, with torch's memory of the host in the device's place."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import devices
import numpy as np
import pytest

from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.targets import present_device

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory "on the device" is a copy on the host."""
    monkeypatch.setattr(torch.Tensor, "cuda", torch.Tensor.clone)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(devices, "_keep_busy", lambda torch: None)


def on_device(kernel: Callable[..., Any]) -> devices.OnDevice:
    return devices.OnDevice(kernel)


def test_each_run_begins_with_the_same_arrays_and_the_results_come_back() -> None:
    seen: list[list[float]] = []

    def add(x: Any, y: Any, n: int) -> None:
        seen.append(y.tolist())
        y += x[:, 0] * n

    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(2, np.float32)
    on_device(add)(x, y, 2)
    assert seen == [[1, 1]] * devices.RUNS
    assert y.tolist() == [1, 7]


def test_views_of_one_array_are_views_of_one_array() -> None:
    def move(one: Any, other: Any) -> None:
        one[1] = 5
        other[0, 0] += one[1]

    memory = np.zeros(8, np.int16)
    on_device(move)(memory, memory[1:].reshape(7, 1)[::2])
    assert memory.tolist() == [0, 10, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "uint16", "bool"])
def test_elements_keep_their_bits(dtype: str) -> None:
    def copy(x: Any, y: Any) -> None:
        y.copy_(x)

    x = np.arange(2).astype(numpy_dtype(dtype_of(dtype)))
    y = np.zeros_like(x)
    on_device(copy)(x, y)
    assert y.tobytes() == x.tobytes()


@pytest.mark.parametrize("place", [-1, 4])
def test_a_write_beside_an_array_is_told(place: int) -> None:
    def stray(y: Any) -> None:
        y.as_strided((1,), (1,), y.storage_offset() + (place if place < 0 else 64)).fill_(9)

    with pytest.raises(AssertionError, match="beside an array"):
        on_device(stray)(np.zeros(64, np.int32))


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_runs_that_differ_are_told(dtype: type) -> None:
    numbers = iter(range(devices.RUNS))

    def race(y: Any) -> None:
        y[3] = 7 if next(numbers) < devices.RUNS - 1 else 8

    with pytest.raises(AssertionError, match="run 3 differs"):
        on_device(race)(np.zeros(4, dtype))


def test_sums_in_another_order_are_the_same() -> None:
    numbers = iter(range(devices.RUNS))

    def add(y: Any) -> None:
        y[0] = 1 + 1e-6 * next(numbers)

    on_device(add)(np.zeros(4, np.float32))


def test_a_broadcast_array_and_an_empty_one_travel() -> None:
    def copy(x: Any, none: Any, y: Any) -> None:
        assert none.numel() == 0
        y.copy_(x)

    y = np.zeros((3, 4), np.float32)
    on_device(copy)(np.broadcast_to(np.float32(2), (3, 4)), np.zeros((0, 4), np.float32), y)
    assert (y == 2).all()


def test_a_device_that_is_not_there_is_a_usage_error() -> None:
    if present_device("cuda_ampere") is not None:
        pytest.skip("a device is here")
    arguments = ["-m", "pytest", "--on-device", "cuda_ampere", "-q", str(Path(__file__).parent)]
    run = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no device of cuda_ampere here" in run.stderr
