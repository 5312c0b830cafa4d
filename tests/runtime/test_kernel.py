"""A compiled kernel enters its latest launch directly, and stays right when calls differ."""

from __future__ import annotations

import copy
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.runtime.programs import MATMUL, M, RecordingLauncher, program, tensor
from tilecore.errors import ArgumentError, LaunchError
from tilecore.hooks.manager import register_backend, unregister_backend
from tilecore.hooks.specs import hookimpl
from tilecore.kernel import CompiledKernel, missing_device
from tilecore.target import Target


def kernel(prog: Any, launcher: Any) -> CompiledKernel:
    lowered: Any = SimpleNamespace(program=prog, target="a target")
    return CompiledKernel(lowered, None, lambda: launcher)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def test_calls_of_all_kinds_after_each_other() -> None:
    launcher = RecordingLauncher()
    k = kernel(MATMUL, launcher)
    for m in (2, 2, 2, 5, 2, 5, 5):
        a, b, c = ones(m, 3), ones(3, 4), ones(m, 4)
        k(a, b, c)
        assert launcher.launches[-1][3:] == (3, m, 4)
        k(a, C=c, B=b)
        assert launcher.launches[-1][:3] == (a.ctypes.data, b.ctypes.data, c.ctypes.data)
        with pytest.raises(ArgumentError, match="missing argument C"):
            k(a, b)
        with pytest.raises(ArgumentError, match="too many arguments"):
            k(a, b, c, c)
    assert len(launcher.launches) == 14


def test_kernels_do_not_share_what_they_enter() -> None:
    launchers = [RecordingLauncher() for _ in range(2)]
    first, second = (kernel(program(tensor("C", M), symbols=(M,)), one) for one in launchers)
    c = ones(4)
    for _ in range(4):
        first(c)
    for _ in range(3):
        second(c)
    assert [len(one.launches) for one in launchers] == [4, 3]
    assert isinstance(first, CompiledKernel)
    assert repr(first) == "<CompiledKernel demo for a target>"


def test_attributes_of_classes_and_copies_are_kernels() -> None:
    launcher = RecordingLauncher()
    k = kernel(program(tensor("C", M), symbols=(M,)), launcher)

    class Layer:
        run = k

    assert Layer.run is Layer().run is k
    assert k.__get__(Layer(), Layer) is k  # whatever this Python does with partials
    c = ones(4)
    for _ in range(3):
        k(c)
    copied = copy.copy(k)
    for _ in range(3):
        copied(c)
    assert type(copied) is CompiledKernel and copied is not k
    assert launcher.launches == [(c.ctypes.data, 4)] * 6


def test_binary_is_loaded_by_the_first_call_only() -> None:
    loads: list[int] = []
    launcher = RecordingLauncher()
    lowered: Any = SimpleNamespace(program=program(tensor("C", 4)), target="a target")
    k = CompiledKernel(lowered, None, lambda: loads.append(1) or launcher)
    assert loads == []
    for _ in range(4):
        k(ones(4))
    assert loads == [1]


def test_failed_load_is_raised_and_tried_again() -> None:
    def load() -> Any:
        raise LaunchError("no device")

    lowered: Any = SimpleNamespace(program=program(tensor("C", 4)), target="a target")
    k = CompiledKernel(lowered, None, load)
    for _ in range(2):
        with pytest.raises(LaunchError, match="no device"):
            k(ones(4))


def test_missing_device_says_why_and_what_to_do() -> None:
    def describe() -> list[Target]:
        return [Target("elsewhere", "one")]

    def explain(target: Target) -> str:
        return f"{target.arch} is in another room"

    plugin = SimpleNamespace(
        tilecore_describe_targets=hookimpl(describe), tilecore_explain_absence=hookimpl(explain)
    )
    register_backend("elsewhere", plugin)
    try:
        load = missing_device(describe()[0])
        with pytest.raises(LaunchError, match="present here: one is in another room .*emulator"):
            load()
    finally:
        unregister_backend("elsewhere")


def test_dropped_kernels_are_collected() -> None:
    k = kernel(program(tensor("C", 4)), RecordingLauncher())
    for _ in range(3):
        k(ones(4))
    reference = weakref.ref(k)
    del k
    gc.collect()
    assert reference() is None
