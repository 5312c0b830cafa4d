"""Hook implementations of the rocm_cdna3 backend. HIP is loaded when a device is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from tilecore.errors import ToolchainError
from tilecore.hooks.records import DeviceInfo, ToolchainInfo
from tilecore.hooks.specs import hookimpl
from tilecore.target import Target

TILECORE_HOOK_API = 1


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
    """Says that source is as far as this release goes."""
    from .toolchain import probe_toolchain

    return probe_toolchain()


@hookimpl
def tilecore_toolchain_fingerprint(target: Target) -> str:
    """Raises: there is no toolchain whose version could be told."""
    from .toolchain import probe_toolchain

    raise ToolchainError(
        probe_toolchain().missing, hint="tilecore.lower(program, ...) gives the source"
    )
