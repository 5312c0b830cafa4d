"""The architectures that this backend compiles for."""

from __future__ import annotations

from tilecore.target import Target

BACKEND = "cuda_ampere"

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": most shared memory
# of one block, in bytes.
_SMEM_BYTES = {
    "sm_80": 163 * 1024,
    "sm_86": 99 * 1024,
    "sm_87": 163 * 1024,
    "sm_89": 99 * 1024,
    "sm_90": 227 * 1024,
    "sm_100": 227 * 1024,
    "sm_120": 99 * 1024,
}

# Ampere's instructions run on all later devices too; on those they are compiled for the device
# itself, because machine code does not cross major versions.
_COMMON = frozenset({"async_copy", "mma", "ldmatrix", "bfloat16", "tfloat32"})
# "float8": mma.sync multiplies 8-bit floats. One instruction (QMMA) where "float8_mma" stands, too;
# for sm_90 and sm_100 ptxas makes two of float16 of it, with conversions before each.
_CAPABILITIES = {
    "sm_89": frozenset({"float8", "float8_mma"}),
    "sm_90": frozenset({"float8", "stmatrix"}),
    "sm_100": frozenset({"float8", "stmatrix"}),
    "sm_120": frozenset({"float8", "float8_mma", "stmatrix"}),
}


def make_target(arch: str, backend: str = BACKEND) -> Target:
    """The target of one architecture, such as ``"sm_80"``."""
    return Target(
        backend=backend,
        arch=arch,
        lanes_per_warp=32,
        max_threads=1024,
        smem_bytes=_SMEM_BYTES[arch],
        registers_per_thread=255,
        grid_limits=(2**31 - 1, 65535, 65535),
        capabilities=_COMMON | _CAPABILITIES.get(arch, frozenset()),
    )


def describe_targets() -> tuple[Target, ...]:
    """All targets. The first one is what is compiled for where no device is present."""
    others = ("sm_90", "sm_89", "sm_86", "sm_87", "sm_100", "sm_120")
    return tuple(make_target(arch) for arch in ("sm_80", *others))
