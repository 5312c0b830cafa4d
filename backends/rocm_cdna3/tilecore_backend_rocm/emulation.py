"""What the emulator needs to run this backend's kernels on the CPU."""

from __future__ import annotations

from pathlib import Path

from tilecore.emulator import EmulatorSupport

HEADERS = Path(__file__).parent / "headers"

SUPPORT = EmulatorSupport(
    header="cdna3_emulated.h",
    include_directories=(HEADERS,),
    sources=(HEADERS / "cdna3_emulated.cpp",),
    lanes_per_warp=64,
)
