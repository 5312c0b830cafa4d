"""The devices that are present, and what fits them."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from tilecore.errors import LaunchError
from tilecore.hooks.records import DeviceInfo
from tilecore.target import Target
from tilecore_backend_cuda_ampere.driver import get_driver

_ARCH = re.compile(r"sm_(?P<number>\d+)(?P<suffix>[af]?)")


def capability_of(arch: str) -> tuple[int, int]:
    """Compute capability of an architecture: ``"sm_86"`` is (8, 6), ``"sm_120"`` is (12, 0).

    Raises:
        ValueError: not an architecture's name.
    """
    match = _ARCH.fullmatch(arch)
    if match is None:
        raise ValueError(f"not an architecture: {arch!r}")
    return divmod(int(match["number"]), 10)


def runs_on(arch: str, capability: tuple[int, int]) -> bool:
    """Whether machine code for `arch` runs on a device of this compute capability.

    CUDA C++ Programming Guide, "Binary Compatibility": within one major version, from the
    architecture's minor version up. Code with a suffix (``sm_90a``) runs on that version only.
    """
    major, minor = capability_of(arch)
    if arch[-1].isalpha():
        return (major, minor) == capability
    return major == capability[0] and minor <= capability[1]


def best_arch(archs: Sequence[str], capability: tuple[int, int]) -> str | None:
    """Of some architectures the newest whose machine code runs on a device, or None."""
    fitting = [arch for arch in archs if runs_on(arch, capability)]
    return max(fitting, key=capability_of, default=None)


def probe_device(target: Target, archs: Sequence[str]) -> DeviceInfo | None:
    """The first device for which `target.arch` is the best of `archs`; None without a driver."""
    for ordinal in range(device_count()):
        if best_arch(archs, device_capability(ordinal)) == target.arch:
            return describe_device(ordinal, target.arch)
    return None


def describe_device(ordinal: int, arch: str) -> DeviceInfo:
    """What is worth showing of a device."""
    driver = get_driver()
    major, minor = device_capability(ordinal)
    details = (
        ("ordinal", str(ordinal)),
        ("compute capability", f"{major}.{minor}"),
        ("shared memory per block", f"{max_smem_bytes(ordinal)} bytes"),
        ("driver supports CUDA", driver.driver_version()),
    )
    return DeviceInfo(
        name=driver.device_name(ordinal),
        arch=arch,
        processors=driver.attribute(ordinal, "MULTIPROCESSOR_COUNT"),
        memory_bytes=driver.memory_bytes(ordinal),
        details=details,
    )


@functools.lru_cache(maxsize=1)
def device_count() -> int:
    """Devices of this process; 0 when there is no driver. Never raises."""
    try:
        return get_driver().device_count()
    except LaunchError:
        return 0


@functools.lru_cache(maxsize=64)
def device_capability(ordinal: int) -> tuple[int, int]:
    """Compute capability of a device."""
    driver = get_driver()
    return (
        driver.attribute(ordinal, "COMPUTE_CAPABILITY_MAJOR"),
        driver.attribute(ordinal, "COMPUTE_CAPABILITY_MINOR"),
    )


@functools.lru_cache(maxsize=64)
def max_smem_bytes(ordinal: int) -> int:
    """Most shared memory that a kernel of this device may opt in to, in bytes."""
    return get_driver().attribute(ordinal, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")


def why_no_device() -> str:
    """One sentence on why no device fits; for when none does."""
    try:
        count = get_driver().device_count()
    except LaunchError as error:
        return f"{error.reason} ({error.got})" if error.got else error.reason
    if count == 0:
        return "the driver sees no device"
    found = (device_capability(ordinal) for ordinal in range(count))
    return "devices here have compute capability " + ", ".join(f"{a}.{b}" for a, b in found)
