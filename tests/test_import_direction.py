"""Imports go one way, so that any part can be read knowing only what stands below it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tilecore

ROOT = Path(tilecore.__file__).parent
BASE = {"errors", "forking", "target"}
MIDDLE = BASE | {"ir", "hooks"}
# What each part may import besides itself. Names are direct children of the package.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "forking": {"errors"},
    "target": set(),
    "ir": BASE,
    "hooks": BASE | {"ir"},
    "language": MIDDLE,
    "passes": MIDDLE,
    "codegen": MIDDLE,
    "runtime": MIDDLE,
    "emulator": MIDDLE,
    "reference": BASE | {"ir"},
    "testing": BASE | {"ir", "reference"},
}
TOP = {
    "compiler", "emulated", "driver", "kernel", "defaults", "targets", "cli", "__init__",
    "compat", "migrate",
}  # fmt: skip
# Doors to the top, opened inside a function at the time of use: (importer, imported).
LATE = {("hooks", "defaults"), ("language", "driver")}


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_parts(tree: ast.Module) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
            if node.module == "tilecore":
                names = [f"tilecore.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            pieces = name.split(".")
            if pieces[0] == "tilecore" and len(pieces) > 1:
                found.add((pieces[1], node.lineno))
    return found


FILES = sorted(path for path in ROOT.rglob("*.py"))


def test_every_part_is_known() -> None:
    assert {part_of(path) for path in FILES} <= set(ALLOWED) | TOP


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path: Path) -> None:
    part = part_of(path)
    if part in TOP:
        return
    wrong = [
        f"line {line}: {part} imports {other}"
        for other, line in sorted(imported_parts(ast.parse(path.read_text(encoding="utf-8"))))
        if other != part and other not in ALLOWED[part] and (part, other) not in LATE
    ]
    assert not wrong


def test_kernels_are_programs_not_compiler_parts() -> None:
    """Kernels may use the language, the public API, dtypes and target facts, nothing lower."""
    folder = ROOT.parent / "kernels" / "tilecore_kernels"
    wrong = [
        f"{path.name}:{line} imports tilecore.{other}"
        for path in sorted(folder.rglob("*.py"))
        for other, line in sorted(imported_parts(ast.parse(path.read_text(encoding="utf-8"))))
        if other in {"hooks", "passes", "codegen", "runtime", "emulator", "compiler"}
    ]
    assert not wrong
