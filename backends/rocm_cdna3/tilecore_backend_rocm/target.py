"""The architecture that this backend compiles for."""

from __future__ import annotations

from tilecore.target import Target

BACKEND = "rocm_cdna3"
ARCH = "gfx942"


def describe_targets() -> tuple[Target, ...]:
    """One target: CDNA3 (MI300X, MI300A, MI325X).

    AMD "CDNA 3 Instruction Set Architecture": wavefronts of 64 lanes, 64 KiB of LDS for a
    workgroup, 512 vector registers for a lane (256 of them accumulation registers).
    """
    return (
        Target(
            backend=BACKEND,
            arch=ARCH,
            lanes_per_warp=64,
            max_threads=1024,
            smem_bytes=64 * 1024,
            registers_per_thread=512,
            grid_limits=(2**31 - 1, 65535, 65535),
            capabilities=frozenset(
                {"mma", "bfloat16", "float8_fnuz", "bounded_access", "waits_in_registers"}
            ),
        ),
    )
