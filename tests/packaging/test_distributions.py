"""The distributions: names, versions and entry points agree, and wheels hold what they need."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tilecore.errors import BackendError
from tilecore.hooks import manager
from tilecore.hooks.manager import ENTRY_POINT_GROUP, hooks_of

ROOT = Path(__file__).parents[2]
BACKENDS = {
    "cpu_llvm": ("tilecore-backend-cpu", "tilecore_backend_cpu"),
    "cuda_ampere": ("tilecore-backend-cuda-ampere", "tilecore_backend_cuda_ampere"),
    "cuda_hopper": ("tilecore-backend-cuda-hopper", "tilecore_backend_cuda_hopper"),
    "rocm_cdna3": ("tilecore-backend-rocm", "tilecore_backend_rocm"),
}
FOLDERS = {
    ".": "tilecore",
    "kernels": "tilecore-kernels",
    "conformance": "tilecore-conformance",
    **{f"backends/{folder}": name for folder, (name, _) in BACKENDS.items()},
}


def metadata(folder: str) -> dict[str, Any]:
    with (ROOT / folder / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def test_every_backend_folder_is_a_distribution_listed_here() -> None:
    folders = {path.parent.name for path in (ROOT / "backends").glob("*/pyproject.toml")}
    assert folders == set(BACKENDS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_name_version_and_python(folder: str) -> None:
    project = metadata(folder)["project"]
    core = metadata(".")["project"]
    assert project["name"] == FOLDERS[folder]
    assert project["version"] == core["version"], "all distributions are released together"
    assert project["requires-python"] == core["requires-python"]
    assert project["license"] == "Apache-2.0"
    assert (ROOT / folder / project["readme"]).is_file()


@pytest.mark.parametrize("folder", BACKENDS)
def test_entry_point_has_the_folders_name(folder: str) -> None:
    name, package = BACKENDS[folder]
    declared = metadata(f"backends/{folder}")["project"]["entry-points"][ENTRY_POINT_GROUP]
    assert declared == {folder: f"{package}.plugin"}
    (point,) = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=folder)
    assert point.dist is not None
    assert point.dist.name == name


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder != "."])
def test_core_is_pinned_to_its_minor_line(folder: str) -> None:
    requirements = [Requirement(r) for r in metadata(folder)["project"]["dependencies"]]
    (core,) = [r for r in requirements if r.name == "tilecore"]
    assert core.specifier.contains("0.1.0")
    assert core.specifier.contains("0.1.9")
    assert not core.specifier.contains("0.2.0")


@pytest.mark.parametrize("folder", BACKENDS)
def test_a_missing_backend_names_its_distribution(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    monkeypatch.setattr(manager, "_registered", {})
    with pytest.raises(BackendError, match=rf"pip install {BACKENDS[folder][0]}\)"):
        hooks_of.__wrapped__(folder)
    with pytest.raises(BackendError, match=r"no backend named 'strange_one' is installed; [^h]*$"):
        hooks_of.__wrapped__("strange_one")


def test_core_needs_no_backend_and_no_device_library() -> None:
    names = {Requirement(r).name for r in metadata(".")["project"]["dependencies"]}
    assert names == {"numpy", "pluggy", "ml_dtypes", "filelock", "platformdirs"}


def test_extras_name_every_distribution() -> None:
    extras = metadata(".")["project"]["optional-dependencies"]
    named = {Requirement(r).name for extra in extras.values() for r in extra}
    assert set(FOLDERS.values()) - {"tilecore"} <= named


def test_one_requirements_file_installs_everything() -> None:
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    folders = {
        line.removeprefix("-e ").partition("[")[0] for line in lines if line.startswith("-e ")
    }
    assert folders == set(FOLDERS)


def build_wheel(folder: str, target: Path) -> zipfile.ZipFile:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=ROOT / folder,
        check=True,
        capture_output=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
    )
    (wheel,) = target.glob("*.whl")
    return zipfile.ZipFile(wheel)


@pytest.mark.parametrize("folder", FOLDERS)
def test_wheel_holds_the_package_and_all_its_files(folder: str, tmp_path: Path) -> None:
    """Headers, cases and typing marks too: whatever git tracks or would track in the package."""
    (package,) = metadata(folder)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    with build_wheel(folder, tmp_path) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", package],
        cwd=ROOT / folder,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    expected = {name for name in listed if (ROOT / folder / name).is_file()}
    assert held == expected
    assert f"{package}/__init__.py" in held


def test_core_imports_without_any_backend_or_array_library(tmp_path: Path) -> None:
    """The built wheel alone, in a process that sees only it and its dependencies."""
    with build_wheel(".", tmp_path) as wheel:
        wheel.extractall(tmp_path / "site")
    program = """
import sys
refused = ("torch", "llvmlite", "cuda", "hip", "click", "rich")
class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top.startswith("tilecore_") or top in refused:
            raise AssertionError(f"core imports {name}")
sys.meta_path.insert(0, Refuse())
import tilecore, tilecore.language, tilecore.compiler, tilecore.driver, tilecore.runtime.caller
assert tilecore.__file__.startswith(sys.argv[1]), tilecore.__file__
"""
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "site")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        check=True,
    )
