"""The devices that are present."""

from __future__ import annotations

from typing import Any

from tilecore.hooks.records import DeviceInfo
from tilecore.target import Target

from .hip_api import device_properties, text_of


def probe_device(target: Target) -> DeviceInfo | None:
    """The first device of the target's architecture; None without a ROCm runtime."""
    try:
        from hip import hip
    except ImportError:
        return None
    try:
        count = _checked(hip.hipGetDeviceCount())
    except RuntimeError:  # the binding's error for a missing libamdhip64, and ours below
        return None
    for ordinal in range(count):
        properties = _checked(device_properties(hip, ordinal))
        # "gfx942:sramecc+:xnack-": the name, then its settings.
        arch, *settings = text_of(properties.gcnArchName).split(":")
        if arch == target.arch:
            return DeviceInfo(
                name=text_of(properties.name),
                arch=arch,
                processors=properties.multiProcessorCount,
                memory_bytes=properties.totalGlobalMem,
                details=(("ordinal", str(ordinal)), ("settings", " ".join(settings))),
            )
    return None


def why_no_device() -> str:
    """One sentence on why no device fits; for when none does."""
    try:
        from hip import hip

        count = _checked(hip.hipGetDeviceCount())
    except ImportError:
        return "hip-python is not installed (it needs Linux)"
    except RuntimeError:
        return "the ROCm runtime (libamdhip64.so) cannot be loaded or does not answer"
    return f"{count} ROCm devices, none of this architecture" if count else "ROCm sees no device"


def _checked(answer: tuple[Any, ...]) -> Any:
    """The result of a HIP call.

    Raises:
        RuntimeError: the call failed.
    """
    status, result, *_ = answer
    if int(status) != 0:
        raise RuntimeError(f"HIP call failed: {status}")
    return result
