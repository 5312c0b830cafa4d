"""Hook implementations of the cuda_hopper backend; what is not here, cuda_ampere answers."""

from __future__ import annotations

from collections.abc import Sequence

from tilecore.hooks.records import DeviceInfo
from tilecore.hooks.specs import hookimpl
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
