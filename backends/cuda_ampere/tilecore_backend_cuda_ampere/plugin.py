"""Hook implementations of the cuda_ampere backend. NVRTC and the driver are loaded when asked."""

from __future__ import annotations

from collections.abc import Sequence

from tilecore.hooks.records import (
    Artifact,
    CompileOptions,
    DeviceInfo,
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
    """From compute capability 8.0 on."""
    from .target import describe_targets

    return describe_targets()


@hookimpl
def tilecore_probe_device(target: Target) -> DeviceInfo | None:
    """A device that runs the target's machine code, and no better target's."""
    from .device import probe_device
    from .target import describe_targets

    return probe_device(target, [known.arch for known in describe_targets()])


@hookimpl
def tilecore_probe_toolchain(target: Target) -> ToolchainInfo:
    """NVRTC, from its PyPI distribution or a CUDA installation."""
    from .toolchain import probe_toolchain

    return probe_toolchain()


@hookimpl
def tilecore_toolchain_fingerprint(target: Target) -> str:
    """NVRTC's version and the device headers' content."""
    from .toolchain import toolchain_fingerprint

    return toolchain_fingerprint()


@hookimpl
def tilecore_compile(source: Source, target: Target, options: CompileOptions) -> Artifact:
    """A cubin."""
    from .toolchain import compile_cubin

    return compile_cubin(source, target, options)


@hookimpl
def tilecore_create_launcher(
    program: Program, source: Source, artifact: Artifact, target: Target
) -> Launcher:
    """Machine code is loaded on a device by the first launch there."""
    from .launch import CudaLauncher

    return CudaLauncher(program, source, artifact, target)


@hookimpl
def tilecore_synchronize(target: Target) -> bool:
    """Wait for every device."""
    from .launch import synchronize

    synchronize()
    return True
