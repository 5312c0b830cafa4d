"""The installed backends, and kernels of them that run on this machine."""

from __future__ import annotations

from typing import Any

import devices

import tilecore
from tilecore.hooks.manager import installed_backends

HOST = "cpu_llvm"
EMULATED = [n for n in ("cuda_ampere", "cuda_hopper", "rocm_cdna3") if n in installed_backends()]
if devices.NAMES:  # the others were checked where there is no device
    EMULATED = [name for name in EMULATED if name in devices.NAMES]
BACKENDS = EMULATED if devices.NAMES or HOST not in installed_backends() else [HOST, *EMULATED]


def kernel_on(backend: str, program: Any, **options: Any) -> Any:
    """A program's kernel on a backend, or in the reference interpreter.

    Lanes are emulated, unless the backend's device was asked for (`--on-device`).
    """
    if backend == "reference":
        return tilecore.compile(program, device="reference", **options)
    if backend in devices.NAMES:
        return devices.OnDevice(tilecore.compile(program, backend, device="native", **options))
    device = "native" if backend == HOST else "emulator"
    return tilecore.compile(program, backend, device=device, **options)
