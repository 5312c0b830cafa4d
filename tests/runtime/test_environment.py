"""Environment variables with nonsense in them: refused by name, or of no harm."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore import emulated
from tilecore.driver import clear_memory_cache
from tilecore.emulator import build
from tilecore.errors import CacheWarning, LaunchError, TilecoreError, ToolchainError
from tilecore.runtime.cache import DEFAULT_MAX_BYTES, KernelCache
from tilecore.runtime.entry import CacheEntry


@T.prim_func
def double(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(2, threads=32) as bx:
        for i in T.Parallel(32):
            B[bx * 32 + i] = A[bx * 32 + i] * 2.0


def run(backend: str = "cpu_llvm", device: str = "native") -> None:
    """Compile anew, and forget it: kernels keep what the environment said."""
    clear_memory_cache()
    b = np.zeros(64, np.float32)
    tilecore.compile(double, backend, device=device)(np.ones(64, np.float32), b)
    clear_memory_cache()
    assert (b == 2).all()


@pytest.mark.parametrize("given", ["lots", "-1", "1e9", "²", "", "1_000", " 7"])
def test_cache_bytes(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILECORE_CACHE_BYTES", given)
    cache = KernelCache(tmp_path)
    if not given:
        assert cache.max_bytes == DEFAULT_MAX_BYTES
        return
    with pytest.warns(CacheWarning, match="TILECORE_CACHE_BYTES is no number"):
        cache.put("ab" * 32, CacheEntry({"binary": b"code"}))
    assert cache.get("ab" * 32) is not None


@pytest.mark.parametrize("given", ["-7", str(2**80), str(-(2**70)), " 3 ", ""])
def test_any_number_is_a_seed(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILECORE_EMULATOR_SEED", given)
    run("cuda_ampere", "emulator")


def test_a_seed_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILECORE_EMULATOR_SEED", "0x")
    with pytest.raises(LaunchError, match=r"TILECORE_EMULATOR_SEED is no number.*'0x'"):
        run("cuda_ampere", "emulator")


def test_a_kernel_goes_by_the_seed_of_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was compiled under another seed is kept, and does not keep it."""
    kernel = tilecore.compile(double, "cuda_ampere", device="emulator")
    used: list[int] = []
    launch = emulated.launch

    def noted(kernel: Any, arguments: Any, shape: Any, options: Any, **more: Any) -> Any:
        used.append(options.seed)
        return launch(kernel, arguments, shape, options, **more)

    monkeypatch.setattr(emulated, "launch", noted)
    for seed in ("3", "", "8"):
        monkeypatch.setenv("TILECORE_EMULATOR_SEED", seed)
        kernel(np.ones(64, np.float32), np.zeros(64, np.float32))
    launcher = kernel.caller.launcher
    monkeypatch.setattr(launcher, "options", replace(launcher.options, seed=5))
    kernel(np.ones(64, np.float32), np.zeros(64, np.float32))
    assert used == [3, 0, 8, 5]


@pytest.fixture
def another_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    build.find_compiler.cache_clear()
    yield monkeypatch
    build.find_compiler.cache_clear()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "needs a C\\+\\+17 compiler"),
        ("#!/bin/sh\n", "is no C\\+\\+ compiler.*tells no version"),
        ("#!/nowhere/interpreter\n", "is no C\\+\\+ compiler"),
        ("#!/bin/sh\necho 1.0\n", "refused.*exit status 0, no message"),
        ("#!/bin/sh\necho 1.0\nexit 3\n", "refused.*exit status 3, no message"),
        ("#!/bin/sh\n[ $1 = --version ] && echo 1.0\nkill -9 $$\n", "refused.*exit status -9"),
    ],
)
def test_a_compiler_that_is_none(
    text: str | None, words: str, tmp_path: Path, another_compiler: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "compiler"
    if text is not None:
        path.write_text(text)
        path.chmod(0o755)
    another_compiler.setenv("TILECORE_CXX", str(path))
    another_compiler.setenv("TILECORE_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(ToolchainError, match=f"(?s){words}"):
        run("cuda_ampere", "emulator")


def test_a_dump_to_where_no_folder_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILECORE_DUMP", str(tmp_path / "file" / "dump"))
    with pytest.raises(TilecoreError, match="TILECORE_DUMP asks for cannot be written"):
        run()


HARMLESS = [
    {"TILECORE_CPU_THREADS": "pool", "OMP_NUM_THREADS": "nonsense", "TILECORE_CACHE_DIR": ""},
    {"TILECORE_CPU_THREADS": "pool", "OMP_NUM_THREADS": "0", "TILECORE_DISABLE_CACHE": "nonsense"},
    {"TILECORE_CPU_THREADS": "nonsense", "OMP_NUM_THREADS": "-3", "TILECORE_CACHE_DIR": "a/place"},
    {"OMP_NUM_THREADS": "9" * 30, "TILECORE_CACHE_DIR": "~", "TILECORE_ROCM_CLANG": "/"},
    {"TILECORE_CPU_THREADS": "pool", "OMP_NUM_THREADS": "²"},
]
IN_A_PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from test_environment import run
run()
"""


@pytest.mark.parametrize("given", HARMLESS, ids=range(len(HARMLESS)))
def test_what_does_no_harm(given: dict[str, str], tmp_path: Path) -> None:
    """In a folder of its own, where a relative cache comes to lie."""
    if importlib.util.find_spec("tilecore_backend_cpu") is None:
        pytest.skip("no backend of the host")
    paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-B", "-c", IN_A_PROCESS, str(Path(__file__).parent)],
        env={**os.environ, "PYTHONPATH": paths, "HOME": str(tmp_path), **given}, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
