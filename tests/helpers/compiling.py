"""The installed backends, and kernels of them that run on this machine."""

from __future__ import annotations

from typing import Any

import tilecore
from tilecore.hooks.manager import installed_backends

HOST = "cpu_llvm"
EMULATED = [n for n in ("cuda_ampere", "cuda_hopper", "rocm_cdna3") if n in installed_backends()]
BACKENDS = [HOST, *EMULATED] if HOST in installed_backends() else EMULATED


def kernel_on(backend: str, program: Any, **options: Any) -> Any:
    """A program's kernel on a backend, or in the reference interpreter."""
    if backend == "reference":
        return tilecore.compile(program, device="reference", **options)
    device = "native" if backend == HOST else "emulator"
    return tilecore.compile(program, backend, device=device, **options)
