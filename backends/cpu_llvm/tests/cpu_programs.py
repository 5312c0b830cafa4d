"""Running IR text on the CPU backend, without the cache or any other part of the driver."""

from __future__ import annotations

import functools

import numpy as np

from tilecore.hooks.records import Artifact, CompileOptions
from tilecore.ir.parser import parse_program
from tilecore_backend_cpu.host import HostCpu, describe_cpu, detect_host
from tilecore_backend_cpu.jit import compile_object
from tilecore_backend_cpu.kernel_emitter import emit_program
from tilecore_backend_cpu.launcher import CpuLauncher
from tilecore_backend_cpu.scheduling import schedule_program


@functools.lru_cache(maxsize=256)
def build(text: str, cpu: HostCpu | None = None) -> CpuLauncher:
    """Compile a program for this CPU, or for one whose instructions this CPU has too."""
    target = cpu or detect_host()
    program = schedule_program(parse_program(text), target)
    source = emit_program(program, target, CompileOptions())
    return CpuLauncher(program, source, Artifact(compile_object(source.text, target), "object"))


def call(text: str, *arguments: np.ndarray | int | float, cpu: HostCpu | None = None) -> None:
    """Run a program; arrays are passed by address."""
    launcher = build(text, cpu)
    launcher(tuple(a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments))


def without_avx512() -> HostCpu:
    """This CPU as if it had 256-bit vectors only."""
    host = detect_host()
    features = frozenset(name for name in host.features if not name.startswith(("avx512", "amx")))
    name = "haswell" if host.arch == "x86_64" else host.name
    return describe_cpu(name, host.arch, features, False)


def without_tiles() -> HostCpu:
    """This CPU as if the system had refused its tile registers."""
    host = detect_host()
    features = frozenset(name for name in host.features if not name.startswith("amx"))
    return describe_cpu(host.name, host.arch, features, False)


CPUS = {"host": None, "no tiles": without_tiles(), "no avx512": without_avx512()}
