"""What the emulator needs to run this backend's kernels on the CPU."""

from __future__ import annotations

from pathlib import Path

from tilecore.emulator import EmulatorSupport
from tilecore_backend_cuda_ampere.emulation import SUPPORT as BASE

HEADERS = Path(__file__).parent / "headers"

SUPPORT = EmulatorSupport(
    header="hopper_emulated.h",
    include_directories=(HEADERS, *BASE.include_directories),
    sources=(
        *BASE.sources,
        HEADERS / "hopper_emulated.cpp",
        HEADERS / "hopper_emulated_tma.cpp",
    ),
    lanes_per_warp=32,
)
"""The base backend's intrinsics, and wgmma, transaction barriers and the copy engine."""
