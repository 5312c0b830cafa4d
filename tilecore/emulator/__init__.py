"""Runs generated SIMT kernels on the CPU, lane by lane, and finds their faults.

``build_kernel`` compiles a kernel's text, ``launch`` runs it. README.md lists the functions that
generated text may call and what is checked.
"""

from __future__ import annotations

from tilecore.emulator.build import EmulatedKernel, build_kernel, header_directory
from tilecore.emulator.memory import EmulatedMemory
from tilecore.emulator.report import KernelFault, KernelFaults, LaunchReport, SharedAccess
from tilecore.emulator.run import LaunchShape, RunOptions, launch
from tilecore.hooks.records import EmulatorSupport

__all__ = [
    "EmulatedKernel",
    "EmulatedMemory",
    "EmulatorSupport",
    "KernelFault",
    "KernelFaults",
    "LaunchReport",
    "LaunchShape",
    "RunOptions",
    "SharedAccess",
    "build_kernel",
    "header_directory",
    "launch",
]
