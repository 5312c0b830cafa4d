"""What a kernel is compiled for. A target is data; the backend that describes it gives it meaning.

Core reads only the numbers and the capability names; architecture strings are opaque to it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to compile for.

    Attributes:
        backend: entry-point name of the backend, e.g. ``"cpu_llvm"``.
        arch: the backend's own name of the architecture; core never interprets it.
        lanes_per_warp: lanes that execute in lockstep (1 on a CPU).
        max_threads: most threads of one block; 0 means that threads are not a resource.
        smem_bytes: most shared memory of one block, in bytes; 0 means unlimited.
        registers_per_thread: most 32-bit registers of one thread; 0 means not a resource.
        grid_limits: most blocks along each grid axis.
        capabilities: named abilities, e.g. ``"async_copy"``; names are the backends' business.
        cache_bytes: caches of one core in bytes, nearest first; empty where unknown.
        parallel_blocks: blocks that run at the same time; 0 where unknown.
        cluster_blocks: most blocks of one cluster; 1 where blocks go alone.
        device: ``"native"`` or ``"emulator"``: where the code is meant to run.
    """

    backend: str
    arch: str
    lanes_per_warp: int = 1
    max_threads: int = 0
    smem_bytes: int = 0
    registers_per_thread: int = 0
    grid_limits: tuple[int, int, int] = (2**31 - 1, 2**31 - 1, 2**31 - 1)
    capabilities: frozenset[str] = frozenset()
    device: str = "native"
    cache_bytes: tuple[int, ...] = ()
    parallel_blocks: int = 0
    cluster_blocks: int = 1

    def has(self, capability: str) -> bool:
        """True when the target has this named ability."""
        return capability in self.capabilities

    def __str__(self) -> str:
        suffix = "" if self.device == "native" else f" ({self.device})"
        return f"{self.backend}/{self.arch}{suffix}"
