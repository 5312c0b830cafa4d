"""What crosses to other processes: programs, kernels, errors; and copies."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.driver import clear_memory_cache
from tilecore.emulator import KernelFaults
from tilecore.errors import DeviceAssertError, Loc, TilecoreError

n = T.dynamic("n")


@T.prim_func
def double(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
    with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
        for i in T.Parallel(32):
            B[bx * 32 + i] = A[bx * 32 + i] * 2.0


@T.prim_func
def outside(A: T.Tensor((32,), "float32")):
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(32):
            T.device_assert(A[i] > 0, "only positive numbers")


@tilecore.jit
def factory(size: int):
    @T.prim_func
    def made(A: T.Tensor((size,), "float32")):
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(size):
                A[i] = A[i] + 1.0

    return made


def again(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def is_right(kernel: Any) -> bool:
    a, b = np.ones(70, np.float32), np.zeros(70, np.float32)
    kernel(a, b)
    return bool((b == 2).all())


@pytest.mark.parametrize("device", ["native", "emulator", "reference"])
def test_kernels_and_their_programs(device: str) -> None:
    """Unpickled after calls or before, a kernel is the same; so is what a program compiles to."""
    backend = {"native": "cpu_llvm", "emulator": "cuda_ampere", "reference": None}[device]
    kernel = tilecore.compile(double, backend, device=device)
    for one in (kernel, again(kernel), copy.copy(kernel), copy.deepcopy(kernel)):
        for _ in range(3):
            assert is_right(one)
        assert one.target == kernel.target and one.source == kernel.source
    assert is_right(again(again(kernel)))
    for program in (again(double), copy.deepcopy(double), again(double.program)):
        clear_memory_cache()
        made = tilecore.compile(program, backend, device=device)
        assert made.source == kernel.source and is_right(made)


def test_outputs_and_options_go_along() -> None:
    kernel = tilecore.compile(double, "cpu_llvm", out_idx=-1, fast_math=True)
    other = again(kernel)
    assert (other(np.ones(33, np.float32)) == 2).all()
    assert other._lowered.options == kernel._lowered.options


def test_functions_that_make_kernels_go_by_name() -> None:
    assert copy.deepcopy(factory) is copy.copy(factory) is factory
    assert pickle.dumps(factory)
    if factory.__module__ in sys.modules:
        assert again(factory) is factory


def error_classes() -> list[type[TilecoreError]]:
    """Of every package of this repository that is here."""
    for name in ("tilecore", "tilecore_backend_cuda_ampere", "tilecore_backend_rocm"):
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found, left = [], [TilecoreError]
    while left:
        found.append(left.pop())
        left += found[-1].__subclasses__()
    return found


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_errors(kind: type[TilecoreError]) -> None:
    """Also those that are made from other arguments than a reason."""
    error = kind.__new__(kind)
    TilecoreError.__init__(error, "why", expected=1, got=[2], loc=Loc("f.py", 3), hint="do")
    error.more = {"code": 7}  # type: ignore[attr-defined]
    other = again(error)
    assert type(other) is kind and str(other) == str(error) and other.args == error.args
    assert vars(other) == vars(error)


def test_errors_of_launches() -> None:
    kernel = tilecore.compile(outside, "cuda_ampere", device="emulator")
    with pytest.raises(KernelFaults) as caught:
        kernel(np.zeros(32, np.float32))
    other = again(caught.value)
    assert str(other) == str(caught.value) and other.faults == caught.value.faults
    with pytest.raises(DeviceAssertError) as said:
        tilecore.compile(outside, "cpu_llvm")(np.zeros(32, np.float32))
    assert str(again(said.value)) == str(said.value)


PROGRAM = """
import tilecore.language as T

n = T.dynamic("n")


@T.prim_func
def double(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
    with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
        for i in T.Parallel(32):
            B[bx * 32 + i] = A[bx * 32 + i] * 2.0
"""

SPAWNED = """
import multiprocessing
import numpy as np
import tilecore
from double import double

def use(kernel, program):
    a, b, c = np.ones(40, np.float32), np.zeros(40, np.float32), np.zeros(40, np.float32)
    kernel(a, b)
    tilecore.compile(program, "cpu_llvm")(a, c)
    return (b + c).tolist()

if __name__ == "__main__":
    kernel = tilecore.compile(double, "cpu_llvm")
    assert use(kernel, double) == [4.0] * 40
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.starmap(use, [(kernel, double)] * 3) == [[4.0] * 40] * 3
"""


def test_processes_that_are_spawned(tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text(PROGRAM)
    (tmp_path / "main.py").write_text(SPAWNED)
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
