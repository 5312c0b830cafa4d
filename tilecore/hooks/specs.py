"""Hook specifications, in the order in which a compilation calls them.

All hooks are called per target, on the plugin chain of that target's backend: core's defaults
answer last, the backend's bases before them, the backend itself first. So an implementation never
asks whether a request is meant for it. "Stops at first non-None result" hooks pass on by
returning None. Arguments are frozen records; hooks return, they never mutate. Implementations may
name only the arguments they use. Results are checked; an illegal one is a `BackendError` that names
the plugin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from tilecore.hooks.model import PerformanceModel
    from tilecore.hooks.records import (
        Artifact,
        AsyncCopyAtom,
        AsyncCopyRequest,
        BulkCopyPlan,
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
    from tilecore.ir.layout import Layout
    from tilecore.ir.program import Program
    from tilecore.target import Target

HOOK_API = 1
"""Version of these specifications; a plugin may state ``TILECORE_HOOK_API`` to be checked."""

hookspec = pluggy.HookspecMarker("tilecore")
hookimpl = pluggy.HookimplMarker("tilecore")

# --- discovery ---------------------------------------------------------------------------------


@hookspec(firstresult=True)
def tilecore_describe_targets() -> Sequence[Target] | None:
    """Every architecture that this backend can compile for, best first.

    Called once at discovery. Must not touch a device. Stops at first non-None result.
    """


@hookspec(firstresult=True)
def tilecore_probe_device(target: Target) -> DeviceInfo | None:
    """The device of `target`'s kind that is present here, or None when there is none.

    Must not raise when drivers are missing. Stops at first non-None result.
    """


@hookspec(firstresult=True)
def tilecore_explain_absence(target: Target) -> str | None:
    """Why there is no device of `target`'s kind: one sentence for people, such as a missing driver.

    Called only after `tilecore_probe_device` found none. Must not raise. None when there is nothing
    to add. Stops at first non-None result.
    """


@hookspec(firstresult=True)
def tilecore_probe_toolchain(target: Target) -> ToolchainInfo | None:
    """What compiles for `target` here; `missing` says what to install.

    Must not raise. Stops at first non-None result.
    """


# --- scheduling --------------------------------------------------------------------------------


@hookspec(firstresult=True)
def tilecore_select_mma(request: MmaRequest, target: Target) -> MmaAtom | None:
    """Choose the MMA atom of one gemm; None falls to scalar multiply-add.

    Stops at first non-None result.
    """


@hookspec(firstresult=True)
def tilecore_choose_layout(request: LayoutRequest, target: Target) -> Layout | None:
    """Choose the memory layout of one shared buffer, given its uses. Row-major by default.

    The layout must be injective and cover the buffer's shape. Stops at first non-None result.
    """


@hookspec(firstresult=True)
def tilecore_plan_pipeline(request: PipelineRequest, target: Target) -> PipelinePlan | None:
    """Plan one pipelined loop: stages, order, warp roles; must fit the shared memory.

    Core's default runs the loop without overlap. Stops at first non-None result.
    """


@hookspec(firstresult=True)
def tilecore_lower_async_copy(request: AsyncCopyRequest, target: Target) -> AsyncCopyAtom | None:
    """Say how one global-to-shared copy is issued asynchronously; None keeps it synchronous.

    Stops at first non-None result.
    """


@hookspec(firstresult=True)
def tilecore_matrix_stores(target: Target) -> tuple[MatrixStore, ...] | None:
    """The warp-wide stores of small matrices that fragments may take to shared memory.

    Core takes the first that fits a nest's layouts. Stops at first non-None result.
    """


@hookspec(firstresult=True)
def tilecore_plan_bulk_copy(request: AsyncCopyRequest, target: Target) -> BulkCopyPlan | None:
    """Say how a copy engine moves one global-to-shared copy, or the copy of a fragment to global
    memory; None when it cannot.

    Asked only for loops whose pipeline plan sets producer warps apart, and again when the copy is
    lowered: the answer may depend on layouts, but not on anything that changes in between.
    Stops at first non-None result.
    """


@hookspec(firstresult=True)
def tilecore_schedule(program: Program, target: Target, options: CompileOptions) -> Program | None:
    """Take over all of scheduling for targets whose execution core's passes do not model.

    Gets the canonical tile-level program and returns one at the scheduled level. Core's default
    is its own list of passes. Stops at first non-None result.
    """


# --- code --------------------------------------------------------------------------------------


@hookspec
def tilecore_emit_rules(target: Target) -> Mapping[str, EmitRule] | None:
    """How this backend's own operations become text, by operation name.

    Of two rules with one name the later registered backend's wins.
    """


@hookspec(firstresult=True)
def tilecore_emit(program: Program, target: Target, options: CompileOptions) -> Source | None:
    """Turn a fully lowered program into source text. Stops at first non-None result."""


@hookspec(firstresult=True)
def tilecore_model(
    program: Program, target: Target, options: CompileOptions
) -> PerformanceModel | None:
    """Predict a fully lowered program's speed by counting, with all assumptions named.

    Needs no toolchain and no device. None means that the backend has no model.
    Stops at first non-None result.
    """


@hookspec(firstresult=True)
def tilecore_emulator_support(target: Target) -> EmulatorSupport | None:
    """The headers that implement this backend's operations over emulated lanes.

    None means that kernels of this backend cannot be emulated. Stops at first non-None result.
    """


@hookspec(firstresult=True)
def tilecore_toolchain_fingerprint(target: Target) -> str | None:
    """Everything outside the source that changes the binary; it goes into the cache key.

    Must be cheap: it is called for every compilation that misses the memory cache.
    Stops at first non-None result.
    """


@hookspec(firstresult=True)
def tilecore_compile(source: Source, target: Target, options: CompileOptions) -> Artifact | None:
    """Turn source into a loadable binary.

    Raises ToolchainError with the log and the place of the kept source. Stops at first non-None
    result.
    """


@hookspec(firstresult=True)
def tilecore_create_launcher(
    program: Program, source: Source, artifact: Artifact, target: Target
) -> Launcher | None:
    """Load the binary on the current device and return a callable that launches it.

    Stops at first non-None result.
    """


@hookspec(firstresult=True)
def tilecore_synchronize(target: Target) -> bool | None:
    """Wait for all launched work; True when done. Used by profiling and by tests.

    Stops at first non-None result.
    """
