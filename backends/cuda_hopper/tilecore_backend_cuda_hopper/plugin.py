"""Hook implementations of the cuda_hopper backend; what is not here, cuda_ampere answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilecore.hooks.records import (
    Artifact,
    AsyncCopyRequest,
    BulkCopyPlan,
    CompileOptions,
    DeviceInfo,
    EmitRule,
    EmulatorSupport,
    LayoutRequest,
    MmaAtom,
    MmaRequest,
    PipelinePlan,
    PipelineRequest,
    Source,
)
from tilecore.hooks.specs import hookimpl
from tilecore.ir.layout import Layout
from tilecore.ir.program import Level, Program
from tilecore.target import Target

TILECORE_HOOK_API = 1
TILECORE_BASE_BACKENDS = ("cuda_ampere",)


@hookimpl
def tilecore_describe_targets() -> Sequence[Target]:
    """Compute capability 9.0."""
    from .target import describe_targets

    return describe_targets()


@hookimpl
def tilecore_probe_device(target: Target) -> DeviceInfo | None:
    """The first device of compute capability 9.0."""
    from tilecore_backend_cuda_ampere.device import probe_device

    return probe_device(target, [target.arch])


@hookimpl
def tilecore_select_mma(request: MmaRequest) -> MmaAtom | None:
    """wgmma where warpgroups divide the tile."""
    from .mma import select_mma

    return select_mma(request)


@hookimpl
def tilecore_choose_layout(request: LayoutRequest) -> Layout | None:
    """Swizzled panels for operands of wgmma."""
    from .layout import choose_layout

    return choose_layout(request)


@hookimpl
def tilecore_plan_pipeline(request: PipelineRequest) -> PipelinePlan | None:
    """Producer warps for loops around gemms."""
    from .copy import plan_pipeline

    return plan_pipeline(request)


@hookimpl
def tilecore_plan_bulk_copy(request: AsyncCopyRequest) -> BulkCopyPlan | None:
    """Boxes of the tensor memory accelerator."""
    from .copy import plan_bulk_copy

    return plan_bulk_copy(request)


@hookimpl
def tilecore_emit_rules(target: Target) -> Mapping[str, EmitRule]:
    """Names of the ``hopper`` namespace."""
    from .emit import emit_rules

    return emit_rules()


@hookimpl
def tilecore_emit(program: Program, target: Target, options: CompileOptions) -> Source | None:
    """C++ with tensor maps as parameters."""
    from .emit import emit

    return emit(program, target, options) if program.level is Level.LANE else None


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
