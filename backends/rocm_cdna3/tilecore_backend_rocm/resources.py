"""What a kernel uses of a compute unit, from the metadata that clang writes into its assembly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilecore.hooks.records import KernelResources, KernelSource

# AMD "CDNA 3 Instruction Set Architecture" and LLVM's "User Guide for AMDGPU Backend", gfx942.
VECTOR_REGISTERS = 512  # of one SIMD's lane, ordinary and accumulation ones together
REGISTER_GRANULE = 8
LDS_BYTES = 64 * 1024  # of one compute unit
SIMDS = 4
MOST_WAVES = 8  # on one SIMD

_KERNEL = re.compile(r"^  - \.agpr_count:.*?(?=^  - \.agpr_count:|^amdhsa\.)", re.M | re.S)
_FIELD = re.compile(r"^ {2}(?:- | {2})\.(?P<name>\w+): +(?P<value>\S+)$", re.M)


@dataclass(frozen=True, slots=True)
class Figures:
    """The compiler's figures of one kernel.

    Attributes:
        vector: vector registers of a lane, accumulation registers included.
        accumulation: those of them.
        scalar: scalar registers of a wavefront.
        lds_bytes: LDS that the code itself declares; dynamic LDS comes on top.
        scratch_bytes: memory of a lane for spills and arrays.
        spilled: vector and scalar registers spilled.
    """

    vector: int
    accumulation: int
    scalar: int
    lds_bytes: int
    scratch_bytes: int
    spilled: int


def read_figures(assembly: str) -> dict[str, Figures]:
    """The figures of every kernel in an assembly listing, by name."""
    found: dict[str, Figures] = {}
    start = assembly.find("amdhsa.kernels:")
    for match in _KERNEL.finditer(assembly, max(start, 0)):
        fields = dict(_FIELD.findall(match[0]))
        found[fields["name"]] = Figures(
            vector=int(fields["vgpr_count"]),
            accumulation=int(fields["agpr_count"]),
            scalar=int(fields["sgpr_count"]),
            lds_bytes=int(fields["group_segment_fixed_size"]),
            scratch_bytes=int(fields["private_segment_fixed_size"]),
            spilled=int(fields["vgpr_spill_count"]) + int(fields["sgpr_spill_count"]),
        )
    return found


def waves_per_simd(figures: Figures, threads: int, lds_bytes: int) -> int:
    """Wavefronts of this kernel that one SIMD holds at once (its occupancy)."""
    registers = -(-max(1, figures.vector) // REGISTER_GRANULE) * REGISTER_GRANULE
    by_registers = min(MOST_WAVES, VECTOR_REGISTERS // registers)
    waves = -(-threads // 64)
    blocks = by_registers * SIMDS // waves
    total = figures.lds_bytes + lds_bytes
    if total:
        blocks = min(blocks, LDS_BYTES // total)
    return -(-blocks * waves // SIMDS)


def read_resources(assembly: str, kernels: Sequence[KernelSource]) -> tuple[KernelResources, ...]:
    """One record per kernel. Spills and scratch are remarks: they cost speed."""
    found = read_figures(assembly)
    records: list[KernelResources] = []
    for kernel in kernels:
        figures = found[kernel.name]
        notes: list[str] = []
        if figures.spilled:
            notes.append(f"spills {figures.spilled} registers to memory")
        elif figures.scratch_bytes:
            notes.append(f"keeps {figures.scratch_bytes} bytes a lane in memory (scratch)")
        records.append(
            KernelResources(
                name=kernel.name,
                threads=kernel.threads,
                registers=figures.vector,
                smem_bytes=figures.lds_bytes + kernel.smem_bytes,
                stack_bytes=figures.scratch_bytes,
                spill_bytes=4 * figures.spilled,
                notes=tuple(notes),
            )
        )
    return tuple(records)


def describe(assembly: str, kernels: Sequence[KernelSource]) -> tuple[str, ...]:
    """One line per kernel, for logs."""
    found = read_figures(assembly)
    lines: list[str] = []
    for kernel in kernels:
        figures = found[kernel.name]
        occupancy = waves_per_simd(figures, kernel.threads, kernel.smem_bytes)
        lds_bytes = figures.lds_bytes + kernel.smem_bytes
        lines.append(
            f"{kernel.name}: {figures.vector} vector registers ({figures.accumulation} of them for "
            f"accumulation), {figures.scalar} scalar, {lds_bytes} bytes of LDS, "
            f"{figures.scratch_bytes} of scratch, {figures.spilled} spilled, occupancy {occupancy} "
            f"waves a SIMD"
        )
    return tuple(lines)
