"""The targets of this backend: the CPU it runs on."""

from __future__ import annotations

from tilecore.hooks.records import DeviceInfo
from tilecore.target import Target

from .host import HostCpu, detect_host
from .threads import available_cores, requested_threads

BACKEND = "cpu_llvm"


def describe(cpu: HostCpu) -> Target:
    """The target record of one CPU."""
    capabilities = {f"vector{cpu.vector_bits}"}
    for name, is_on in (
        ("bf16_dot", cpu.has_bf16_dot),
        ("tile_bf16", cpu.has_amx_bf16),
        ("tile_int8", cpu.has_amx_int8),
    ):
        if is_on:
            capabilities.add(name)
    return Target(
        BACKEND,
        cpu.name,
        capabilities=frozenset(capabilities),
        cache_bytes=(cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes),
        parallel_blocks=requested_threads(),
    )


def targets() -> tuple[Target, ...]:
    """The host."""
    return (describe(detect_host()),)


def device() -> DeviceInfo:
    """The host as a device."""
    cpu = detect_host()
    details = (
        ("vectors", f"{cpu.vector_bits} bits"),
        (
            "caches",
            ", ".join(
                f"L{level} {size >> 10} KiB"
                for level, size in enumerate((cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes), 1)
            ),
        ),
        ("bf16", "tiles" if cpu.has_amx_bf16 else ("dot" if cpu.has_bf16_dot else "widened")),
    )
    return DeviceInfo(f"{cpu.name} CPU", cpu.name, available_cores(), 0, details)
