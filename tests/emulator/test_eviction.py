"""The emulator's cache keeps within its bound: what was not used for longest goes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import filelock
import pytest

from tilecore.emulator import build, build_kernel, eviction

TEXT = """
TC_KERNEL(32, 1) k(int* B) {
  tc::store_global(B + tc::lane_in_block(), NUMBER);
}
"""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction, "_known", {})


def aged(folder: Path, name: str, hours: float, size: int = 1000) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    used = time.time() - 3600 * hours
    os.utime(path, (used, used))
    return path


def test_the_oldest_go_and_what_is_in_use_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILECORE_CACHE_BYTES", "5000")
    oldest = aged(tmp_path, "kernels/a.so", 9)
    old = aged(tmp_path, "headers/x/h.gch", 8)
    newer = [aged(tmp_path, f"kernels/{name}.so", 7 - place) for place, name in enumerate("bcd")]
    lock = aged(tmp_path, "engine.so.lock", 99, 0)
    eviction.grow(tmp_path, 1000)
    assert oldest.exists()  # 5000 bytes are within the bound
    eviction.grow(tmp_path, 1000)
    assert not oldest.exists() and old.exists() and all(path.exists() for path in newer)
    assert lock.exists()
    eviction.note_use(old)
    eviction.grow(tmp_path, 2000)
    assert eviction.evict(tmp_path) == 4000 and old.exists()


def test_nothing_goes_that_was_used_within_the_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILECORE_CACHE_BYTES", "10")
    recent, old = aged(tmp_path, "recent.so", 0.5), aged(tmp_path, "old.so", 2)
    eviction.grow(tmp_path, 0)
    assert recent.exists() and not old.exists()


def test_another_process_that_evicts_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILECORE_CACHE_BYTES", "10")
    old = aged(tmp_path, "old.so", 2)
    with filelock.FileLock(tmp_path / eviction.LOCK):
        eviction.grow(tmp_path, 0)
    assert old.exists()
    eviction.evict(tmp_path)
    assert not old.exists()


def test_a_kernel_whose_file_went_is_built_again(
    make_support, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    support = make_support(32)
    engine = build.build_engine(support)  # in the cache of all tests: it takes seconds
    monkeypatch.setenv("TILECORE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILECORE_CACHE_BYTES", "1")
    monkeypatch.setattr(build, "build_engine", lambda support: engine)
    kernels = [TEXT.replace("NUMBER", str(number)) for number in range(2)]
    first = build_kernel(kernels[0], "k", support)
    for path in first.library.parent.iterdir():
        os.utime(path, (0, 0))
    build_kernel(kernels[1], "k", support)
    assert not first.library.exists()
    again = build_kernel(kernels[0], "k", support)
    assert again == first and again.library.exists()
