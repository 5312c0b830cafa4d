"""Finding a compiler for gfx942: a clang with the AMDGPU target, wherever it comes from.

In this order: what ``TILECORE_ROCM_CLANG`` names; ROCm's own (``ROCM_PATH``, ``/opt/rocm``); a
clang on ``PATH``; the one in the ``ziglang`` distribution. Only what really compiles for gfx942
counts.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENT = "TILECORE_ROCM_CLANG"
MISSING = (
    "no clang with the AMDGPU target: install ROCm, or pip install ziglang (it contains one), "
    f"or name one by {ENVIRONMENT}"
)


@dataclass(frozen=True, slots=True)
class Compiler:
    """How to run a compiler and a linker.

    Attributes:
        name: what people call it.
        clang: the command that compiles.
        linker: the command of LLVM's ELF linker.
        version: its first line of ``--version``.
    """

    name: str
    clang: tuple[str, ...]
    linker: tuple[str, ...]
    version: str


@functools.lru_cache(maxsize=1)
def find_compiler() -> Compiler | None:
    """The first that works, or None."""
    for name, clang, linker in _candidates():
        version = _version(clang)
        if version is not None and _knows_target(clang):
            return Compiler(name, clang, linker, version)
    return None


def _candidates() -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    named = os.environ.get(ENVIRONMENT)
    paths = [("clang", Path(named))] if named else []
    for root in (os.environ.get("ROCM_PATH"), "/opt/rocm"):
        if root:
            paths.append(("ROCm clang", Path(root) / "llvm" / "bin" / "clang"))
    on_path = shutil.which("clang")
    if on_path:
        paths.append(("clang", Path(on_path)))
    for name, clang in paths:
        linker = clang.resolve().parent / "ld.lld" if clang.exists() else clang
        found = str(linker) if linker.exists() else shutil.which("ld.lld")
        if clang.exists() and found:
            yield name, (str(clang),), (found,)
    zig = zig_binary()
    if zig is not None:
        yield "clang of ziglang", (str(zig), "clang"), (str(zig), "ld.lld")


def zig_binary() -> Path | None:
    """The executable of the ``ziglang`` distribution, if that is installed."""
    found = importlib.util.find_spec("ziglang")
    for place in (found.submodule_search_locations or ()) if found else ():
        for name in ("zig", "zig.exe"):
            if (Path(place) / name).exists():
                return Path(place) / name
    return None


def _version(clang: tuple[str, ...]) -> str | None:
    answer = _run((*clang, "--version"))
    return answer.splitlines()[0].strip() if answer else None


def _knows_target(clang: tuple[str, ...]) -> bool:
    flags = (
        "-x",
        "c",
        "-target",
        "amdgcn-amd-amdhsa",
        "-mcpu=gfx942",
        "-nogpulib",
        "-fsyntax-only",
    )
    return _run((*clang, *flags, os.devnull)) is not None


def _run(command: tuple[str, ...]) -> str | None:
    """Standard output of a command, or None when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
