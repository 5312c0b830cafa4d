"""Hook implementations of the CPU backend. LLVM is loaded when something is compiled."""

from __future__ import annotations

from collections.abc import Sequence

from tilecore.hooks.records import (
    Artifact,
    CompileOptions,
    DeviceInfo,
    KernelResources,
    Launcher,
    Source,
    ToolchainInfo,
)
from tilecore.hooks.specs import hookimpl
from tilecore.ir.program import Program
from tilecore.target import Target

TILECORE_HOOK_API = 1


@hookimpl
def tilecore_describe_targets() -> Sequence[Target]:
    """The CPU that runs this process."""
    from .target import targets

    return targets()


@hookimpl
def tilecore_probe_device(target: Target) -> DeviceInfo:
    """It is always here."""
    from .target import device

    return device()


@hookimpl
def tilecore_probe_toolchain(target: Target) -> ToolchainInfo:
    """LLVM comes inside llvmlite, a dependency."""
    from .jit import toolchain_fingerprint

    name, _, version = toolchain_fingerprint().partition(" ")
    return ToolchainInfo(name, version)


@hookimpl
def tilecore_schedule(program: Program, target: Target, options: CompileOptions) -> Program:
    """One thread runs a block in order: only layouts are to be chosen."""
    from .host import detect_host
    from .scheduling import schedule_program

    return schedule_program(program, detect_host())


@hookimpl
def tilecore_emit(program: Program, target: Target, options: CompileOptions) -> Source:
    """LLVM IR text."""
    from .host import detect_host
    from .kernel_emitter import emit_program

    return emit_program(program, detect_host(), options)


@hookimpl
def tilecore_toolchain_fingerprint(target: Target) -> str:
    """LLVM's version and every feature of the CPU."""
    from .host import detect_host
    from .jit import toolchain_fingerprint

    cpu = detect_host()
    return f"{toolchain_fingerprint()} {cpu.name} {cpu.feature_string}"


@hookimpl
def tilecore_compile(source: Source, target: Target, options: CompileOptions) -> Artifact:
    """Object code; what a kernel uses is its scratch memory."""
    from .jit import compile_object

    resources = tuple(
        KernelResources(kernel.name, smem_bytes=int(str(dict(kernel.extra)["scratch_bytes"])))
        for kernel in source.kernels
    )
    return Artifact(compile_object(source.text), "object", resources)


@hookimpl
def tilecore_create_launcher(program: Program, source: Source, artifact: Artifact) -> Launcher:
    """Link the object code into this process."""
    from .launcher import CpuLauncher

    return CpuLauncher(program, source, artifact)


@hookimpl
def tilecore_synchronize(target: Target) -> bool:
    """Calls return when the work is done."""
    return True
