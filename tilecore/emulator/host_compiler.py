"""The C++ compiler of this machine: which one it is, and what it takes."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tilecore.errors import ToolchainError

_COMPILERS = ("g++", "clang++", "c++")


@dataclass(frozen=True, slots=True)
class HostCompiler:
    """A C++17 compiler.

    Attributes:
        command: path of its program.
        version: first line of what it says about itself.
        flags: of those that every translation unit wishes, the ones that it accepts.
    """

    command: str
    version: str
    flags: tuple[str, ...]

    @property
    def finds_precompiled_headers(self) -> bool:
        """Whether ``X.h.gch`` in a folder is taken for ``X.h``: GCC's way of it."""
        return "clang" not in self.version.lower()


@functools.cache
def find_compiler() -> HostCompiler:
    """``TILECORE_CXX``, or the first of g++, clang++, c++ on PATH.

    Raises:
        ToolchainError: there is none.
    """
    wanted = os.environ.get("TILECORE_CXX")
    names = (wanted,) if wanted else _COMPILERS
    command = next((path for name in names if (path := shutil.which(name))), None)
    if command is None or os.name != "posix":
        raise ToolchainError(
            "the emulator needs a C++17 compiler on a POSIX system",
            expected=" or ".join(names),
            got="none on PATH" if command is None else os.name,
            hint="install g++ or clang++, or set TILECORE_CXX",
        )
    version = _version(command)
    # Poison in local arrays finds registers that are read before they are written.
    wished = ("-march=native", "-ftrivial-auto-var-init=pattern")
    flags = tuple(flag for flag in wished if _accepts(command, flag))
    return HostCompiler(command, version, flags)


def _version(command: str) -> str:
    """The first line of what a compiler says about itself.

    Raises:
        ToolchainError: it says nothing, or does not run.
    """
    try:
        told = subprocess.run(
            [command, "--version"], capture_output=True, text=True, errors="replace", check=False
        ).stdout.splitlines()
    except OSError as error:
        told, reason = [], error.strerror
    else:
        reason = "it tells no version"
    if not told:
        raise ToolchainError(
            f"{command} is no C++ compiler",
            expected="a C++17 compiler",
            got=reason,
            hint="set TILECORE_CXX to another one",
        )
    return told[0]


@functools.cache
def cpu_fingerprint() -> str:
    """What ``-march=native`` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {features}"


def _accepts(command: str, flag: str) -> bool:
    probe = [command, flag, "-Werror", "-fsyntax-only", "-x", "c++", os.devnull]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0
