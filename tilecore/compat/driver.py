"""Facts of the device that persistent kernels ask for."""

from __future__ import annotations

from tilecore.compat.settings import backend_for, settings
from tilecore.errors import LaunchError
from tilecore.targets import best_backend, present_device

EMULATED_PROCESSORS = 4
"""Of the device that the emulator stands for: few, so that persistent blocks take several tiles."""


def get_num_sms(device_id: int = 0) -> int:
    """Multiprocessors, compute units or cores of the device that programs run on.

    Raises:
        LaunchError: no such device is here.
    """
    if settings.device == "emulator":
        return EMULATED_PROCESSORS
    backend = backend_for(None) or best_backend()
    found = present_device(backend)
    if found is None:
        raise LaunchError(f"no device of backend {backend!r} is here")
    return max(1, found[1].processors)


__all__ = ["get_num_sms"]
