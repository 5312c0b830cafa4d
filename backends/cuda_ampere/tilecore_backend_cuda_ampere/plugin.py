"""Hook implementations of the cuda_ampere backend. NVRTC and the driver are loaded when asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilecore.hooks.records import (
    Artifact,
    AsyncCopyAtom,
    AsyncCopyRequest,
    CompileOptions,
    DeviceInfo,
    EmitRule,
    EmulatorSupport,
    Launcher,
    LayoutRequest,
    MatrixStore,
    MmaAtom,
    MmaRequest,
    PipelinePlan,
    PipelineRequest,
    Source,
    ToolchainInfo,
)
from tilecore.hooks.specs import hookimpl
from tilecore.ir.layout import Layout
from tilecore.ir.program import Level, Program
from tilecore.target import Target

TILECORE_HOOK_API = 1
TILECORE_LANGUAGE = ("cuda", "tilecore_backend_cuda_ampere.language")


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
def tilecore_explain_absence(target: Target) -> str:
    """No driver, no device, or only devices of other architectures."""
    from .device import why_no_device

    return why_no_device()


@hookimpl
def tilecore_probe_toolchain(target: Target) -> ToolchainInfo:
    """NVRTC, from its PyPI distribution or a CUDA installation."""
    from .toolchain import probe_toolchain

    return probe_toolchain()


@hookimpl
def tilecore_select_mma(request: MmaRequest, target: Target) -> MmaAtom | None:
    """mma.sync."""
    from .mma import select_mma

    return select_mma(request, target)


@hookimpl
def tilecore_choose_layout(request: LayoutRequest) -> Layout | None:
    """Swizzled where a gemm reads."""
    from .layout import choose_layout

    return choose_layout(request)


@hookimpl
def tilecore_plan_pipeline(request: PipelineRequest) -> PipelinePlan | None:
    """Copies run ahead."""
    from .copy import plan_pipeline

    return plan_pipeline(request)


@hookimpl
def tilecore_lower_async_copy(request: AsyncCopyRequest) -> AsyncCopyAtom | None:
    """cp.async."""
    from .copy import lower_async_copy

    return lower_async_copy(request)


@hookimpl
def tilecore_matrix_stores(target: Target) -> tuple[MatrixStore, ...] | None:
    """stmatrix, from compute capability 9.0 on."""
    from .mma import MATRIX_STORES

    return MATRIX_STORES if target.has("stmatrix") else None


@hookimpl
def tilecore_emit_rules(target: Target) -> Mapping[str, EmitRule]:
    """Names of the ``ampere`` namespace."""
    from .emit import emit_rules

    return emit_rules()


@hookimpl
def tilecore_emit(program: Program, target: Target, options: CompileOptions) -> Source | None:
    """Core's C++."""
    from tilecore.codegen.simt import emit_program

    from .emit import DIALECT

    return emit_program(program, target, options, DIALECT) if program.level is Level.LANE else None


@hookimpl
def tilecore_emulator_support(target: Target) -> EmulatorSupport:
    """The emulated headers."""
    from .emulation import SUPPORT

    return SUPPORT


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
