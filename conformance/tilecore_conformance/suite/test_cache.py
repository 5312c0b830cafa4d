"""The disk cache under several processes and with damaged entries: never a wrong kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tilecore_conformance.subjects import Subject

PROGRAM = """
import sys
from tilecore_conformance.cases import all_cases
from tilecore_conformance.execute import check
from tilecore_conformance.programs import build
from tilecore_conformance.subjects import find_subjects
backend, arch, level = sys.argv[1:]
(subject,) = find_subjects([backend], [level], arch)
for case in all_cases():
    if case.smoke and case.area in ("gemm", "copy"):
        check(subject, build(case))
"""
PROCESSES = 3
SLOW_TO_BUILD = "emulator/engine-*.so"
"""Damaged once, in the way that its size does not tell; its kernels are checked alike."""


def _start(subject: Subject, cache: Path) -> subprocess.Popen[str]:
    assert subject.target is not None
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, subject.backend, subject.target.arch, subject.level],
        env={**os.environ, "TILECORE_CACHE_DIR": str(cache), "TILECORE_DISABLE_CACHE": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(process: subprocess.Popen[str]) -> None:
    _, log = process.communicate(timeout=500)
    assert process.returncode == 0, log[-3000:]


@pytest.fixture
def findable(subject: Subject) -> Subject:
    """Other processes must be able to find the backend, and there must be something to cache."""
    if subject.backend not in {point.name for point in entry_points(group="tilecore.backends")}:
        pytest.skip("this backend exists in this process only")
    if subject.level == "emit":
        pytest.skip("nothing is compiled at this level")
    return subject


def test_processes_share_one_cache(findable: Subject, tmp_path: Path) -> None:
    """Several processes compile the same kernels at once; each gets a right one."""
    running = [_start(findable, tmp_path) for _ in range(PROCESSES)]
    for process in running:
        _finish(process)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Subject], Path]:
    """A cache that one process has filled, made once for each subject."""
    made: dict[str, Path] = {}

    def fill(subject: Subject) -> Path:
        if subject.id not in made:
            made[subject.id] = tmp_path_factory.mktemp("filled")
            _finish(_start(subject, made[subject.id]))
        return made[subject.id]

    return fill


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied"])
def test_damaged_entries_are_compiled_again(
    findable: Subject, filled: Callable[[Subject], Path], tmp_path: Path, damage: str
) -> None:
    shutil.copytree(filled(findable), tmp_path, dirs_exist_ok=True)
    damaged = 0
    for path in tmp_path.rglob("*"):
        if damage != "flipped" and path.match(SLOW_TO_BUILD):
            continue
        if path.is_file() and path.stat().st_size > 64:
            content = path.read_bytes()
            half = len(content) // 2
            path.write_bytes({
                "truncated": content[:half],
                "flipped": content[:half] + bytes([content[half] ^ 0x55]) + content[half + 1 :],
                "emptied": b"",
            }[damage])  # fmt: skip
            damaged += 1
    if findable.level != "emulate":  # the emulator may build by other means than the cache
        assert damaged, "nothing was cached"
    _finish(_start(findable, tmp_path))
