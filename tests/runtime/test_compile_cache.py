"""The cache under `tilecore.compile`: found by other processes, never stale, never broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import warnings
import numpy as np
import tilecore
import tilecore.language as T

FACTOR = float(sys.argv[1])
warnings.simplefilter("always")


@T.prim_func
def scale(A: T.Tensor((100,), "float32"), B: T.Tensor((100,), "float32")):
    with T.Kernel(4, threads=32) as bx:
        for i in T.Parallel(32):
            if bx * 32 + i < 100:
                B[bx * 32 + i] = A[bx * 32 + i] * FACTOR


a = np.arange(100, dtype=np.float32)
b = np.zeros(100, np.float32)
tilecore.compile(scale, "cpu_llvm")(a, b)
assert np.array_equal(b, a * np.float32(FACTOR)), b
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def start(script: Path, cache: Path, factor: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(script), str(factor)],
        env={**os.environ, "TILECORE_CACHE_DIR": str(cache)},
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Its warnings."""
    _, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors
    return errors


def entries(cache: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in cache.glob("??/*.kernel")}


def test_other_processes_find_it_and_other_programs_do_not(script: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    finish(start(script, cache, 2.0))
    first = entries(cache)
    assert len(first) == 1
    finish(start(script, cache, 2.0))
    assert entries(cache) == first
    finish(start(script, cache, 3.0))
    assert len(entries(cache)) == 2


def test_damaged_entry_is_compiled_again_with_a_warning(script: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    finish(start(script, cache, 2.0))
    ((path, content),) = entries(cache).items()
    for damaged in (content[:-7], b"", content[:200] + b"\xff" * 8 + content[208:]):
        path.write_bytes(damaged)
        assert "damaged cache entry" in finish(start(script, cache, 2.0))
        assert entries(cache) == {path: content}, "the same kernel gives the same entry"


def test_processes_at_once_make_one_entry(script: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for warnings in [finish(p) for p in [start(script, cache, 2.0) for _ in range(3)]]:
        assert "Cache" not in warnings
    assert len(entries(cache)) == 1
    assert [p for p in cache.glob("??/*") if p.suffix != ".kernel"] == []
