"""Hook implementations of the rocm_cdna3 backend. HIP and compilers are looked for when asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilecore.hooks.model import PerformanceModel
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
    MmaAtom,
    MmaRequest,
    PipelinePlan,
    PipelineRequest,
    Source,
    ToolchainInfo,
)
from tilecore.hooks.specs import hookimpl
from tilecore.ir.layout import Layout
from tilecore.ir.program import Program
from tilecore.target import Target

TILECORE_HOOK_API = 1
TILECORE_LANGUAGE = ("rocm", "tilecore_backend_rocm.language")


@hookimpl
def tilecore_describe_targets() -> Sequence[Target]:
    """CDNA3."""
    from .target import describe_targets

    return describe_targets()


@hookimpl
def tilecore_probe_device(target: Target) -> DeviceInfo | None:
    """The first CDNA3 device."""
    from .device import probe_device

    return probe_device(target)


@hookimpl
def tilecore_explain_absence(target: Target) -> str:
    """No binding, no runtime, or only devices of other architectures."""
    from .device import why_no_device

    return why_no_device()


@hookimpl
def tilecore_probe_toolchain(target: Target) -> ToolchainInfo:
    """A clang with the AMDGPU target, or hiprtc."""
    from .toolchain import probe_toolchain

    return probe_toolchain()


@hookimpl
def tilecore_select_mma(request: MmaRequest, target: Target) -> MmaAtom | None:
    """MFMA."""
    from .mma import select_mma

    return select_mma(request, target)


@hookimpl
def tilecore_choose_layout(request: LayoutRequest) -> Layout | None:
    """Swizzled where a gemm reads."""
    from .layout import choose_layout

    return choose_layout(request)


@hookimpl
def tilecore_plan_pipeline(request: PipelineRequest) -> PipelinePlan | None:
    """Copies wait in registers."""
    from .pipeline import plan_pipeline

    return plan_pipeline(request)


@hookimpl
def tilecore_lower_async_copy(request: AsyncCopyRequest) -> AsyncCopyAtom | None:
    """Direct loads to LDS, where asked for."""
    from .direct import lower_async_copy

    return lower_async_copy(request)


@hookimpl
def tilecore_schedule(program: Program, target: Target, options: CompileOptions) -> Program | None:
    """Core's passes, of programs that name barriers with words of memory for those."""
    from tilecore.compiler import schedule

    from .meetings import with_meetings

    planned = with_meetings(program)
    return None if planned is None else schedule(planned, target, options)


@hookimpl
def tilecore_emit_rules(target: Target) -> Mapping[str, EmitRule]:
    """Names of the ``cdna3`` namespace."""
    from .emit import emit_rules

    return emit_rules()


@hookimpl
def tilecore_emit(program: Program, target: Target, options: CompileOptions) -> Source | None:
    """Core's C++, with the planned occupancy."""
    from .emit import emit

    return emit(program, target, options)


@hookimpl
def tilecore_model(program: Program) -> PerformanceModel | None:
    """Cycles by counting, beside published figures."""
    from .model import model

    return model(program)


@hookimpl
def tilecore_emulator_support(target: Target) -> EmulatorSupport:
    """The emulated headers."""
    from .emulation import SUPPORT

    return SUPPORT


@hookimpl
def tilecore_toolchain_fingerprint(target: Target) -> str:
    """The compiler's version and the device headers' content."""
    from .toolchain import toolchain_fingerprint

    return toolchain_fingerprint()


@hookimpl
def tilecore_compile(source: Source, target: Target, options: CompileOptions) -> Artifact:
    """A linked code object."""
    from .toolchain import compile_code_object

    return compile_code_object(source, target, options)


@hookimpl
def tilecore_create_launcher(
    program: Program, source: Source, artifact: Artifact, target: Target
) -> Launcher:
    """The code object is loaded on a device by the first launch there."""
    from .launch import HipLauncher

    return HipLauncher(program, source, artifact, target)


@hookimpl
def tilecore_synchronize(target: Target) -> bool:
    """Wait for every device."""
    from .launch import synchronize

    synchronize()
    return True
