"""The make targets set up their environment once, and again when something changed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

# Stands for the interpreter and the environment's: records what it is asked to do.
FAKE_PYTHON = """#!/bin/sh
echo "$@" >> "{log}"
if [ "$1" = -m ] && [ "$2" = venv ]; then
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python"
fi
[ "$1" = --version ] && echo "Python 3.11.0"
exit 0
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what `make setup` reads, with a recording interpreter."""
    for pattern in ("Makefile", "requirements-dev.txt", "pyproject.toml", "*/pyproject.toml",
                    "backends/*/pyproject.toml"):  # fmt: skip
        for path in ROOT.glob(pattern):
            target = tmp_path / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    python = tmp_path / "fake_python"
    python.write_text(FAKE_PYTHON.format(log=tmp_path / "log"))
    python.chmod(0o755)
    return tmp_path


def run(checkout: Path, target: str) -> list[str]:
    """The commands that the interpreters were given."""
    log = checkout / "log"
    log.unlink(missing_ok=True)
    subprocess.run(
        ["make", target, "PYTHON=./fake_python"], cwd=checkout, check=True, capture_output=True
    )
    return [line for line in log.read_text().splitlines() if line != "--version"]


def test_setup_runs_once_and_again_after_a_change(checkout: Path) -> None:
    first = run(checkout, "setup")
    assert first[0] == "-m venv .venv"
    assert any("-r requirements-dev.txt" in line for line in first)
    assert any("torch==" in line for line in first)
    assert run(checkout, "setup") == []
    path = checkout / "backends/cpu_llvm/pyproject.toml"
    path.write_text(path.read_text() + "\n# changed\n")
    again = run(checkout, "setup")
    assert "-m venv .venv" not in again, "the environment is kept"
    assert any("-r requirements-dev.txt" in line for line in again)
    assert run(checkout, "setup") == []


def test_moved_checkout_installs_again(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run(checkout, "setup")
    moved = tmp_path_factory.mktemp("moved") / "copy"
    shutil.copytree(checkout, moved)
    commands = (moved / "fake_python").read_text().replace(str(checkout), str(moved))
    (moved / "fake_python").write_text(commands)
    (moved / ".venv/bin/python").write_text(commands)
    assert any("-r requirements-dev.txt" in line for line in run(moved, "setup"))


def test_test_sets_up_and_runs_the_quick_tests(checkout: Path) -> None:
    commands = run(checkout, "test")
    assert commands[0] == "-m venv .venv"
    assert any(c.startswith("-m pytest -n 2") and "not slow" in c for c in commands)
    emulated = [c for c in commands if "--level emulate" in c]
    whole = [c for c in emulated if "--shard" not in c]
    assert any("--backend cuda_ampere" in c for c in whole)
    for backend in ("cuda_hopper", "rocm_cdna3"):
        assert any(f"--backend {backend}" in c for c in emulated)
    everything = run(checkout, "test-all")
    assert any(c.startswith("-m pytest") for c in everything)
    assert not any("not slow" in c for c in everything)


def test_every_target_is_documented() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = next(line for line in makefile.splitlines() if line.startswith(".PHONY:")).split()[1:]
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    missing = [name for name in targets if f"`make {name}`" not in guide]
    assert targets and not missing
