"""What this CPU can do: vector width, instruction sets, caches, and what the system lets us use."""

from __future__ import annotations

import ctypes
import platform
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

# arch_prctl(2) sub-function and state component of Linux' dynamic XSAVE features
# (Documentation/arch/x86/xstate.rst of the kernel): tile data is component 18.
_SYS_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18

_FALLBACK_CACHE_BYTES: tuple[int, ...] = (32 << 10, 1 << 20, 8 << 20)


@dataclass(frozen=True, slots=True)
class HostCpu:
    """One CPU model as the code generator sees it.

    `vector_bits` is the widest vector the model executes, `vector_registers` how many of them
    there are, `features` LLVM's feature names that are on. Cache sizes are bytes per core (L1
    data, L2) and per socket (L3).
    """

    name: str
    arch: str
    features: frozenset[str]
    vector_bits: int
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    has_tile_permission: bool = False

    def lanes(self, element_bits: int) -> int:
        """Elements of `element_bits` in one vector register."""
        return max(1, self.vector_bits // element_bits)

    @property
    def has_avx512(self) -> bool:
        """AVX-512 with the byte/word, doubleword and vector-length extensions."""
        return {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= self.features

    @property
    def has_bf16_dot(self) -> bool:
        """A vector dot product of bfloat16 pairs into fp32 (vdpbf16ps)."""
        return self.has_avx512 and "avx512bf16" in self.features

    @property
    def has_amx_bf16(self) -> bool:
        """bfloat16 tile multiplication, present in the CPU and granted by the system."""
        return {"amx-tile", "amx-bf16"} <= self.features and self.has_tile_permission

    @property
    def has_amx_int8(self) -> bool:
        """int8 tile multiplication, present in the CPU and granted by the system."""
        return {"amx-tile", "amx-int8"} <= self.features and self.has_tile_permission

    @property
    def feature_string(self) -> str:
        """LLVM's target feature string (sorted, so that equal CPUs give equal cache keys)."""
        return ",".join(f"+{name}" for name in sorted(self.features))


def _cache_sizes() -> tuple[int, int, int]:
    """L1 data, L2 and L3 bytes as Linux lists them; fixed guesses where the system does not say."""
    sizes: dict[int, int] = dict(enumerate(_FALLBACK_CACHE_BYTES, 1))
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind = (folder / "type").read_text().strip()
            level = int((folder / "level").read_text())
            size = (folder / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and size.endswith("K"):
            sizes[level] = int(size[:-1]) << 10
    return sizes[1], sizes[2], sizes[3]


def request_tile_permission() -> bool:
    """Ask Linux to let this process use AMX tile data; False where it refuses or does not know."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_long(_ARCH_REQ_XCOMP_PERM), ctypes.c_long(_XFEATURE_XTILEDATA))
    return libc.syscall(ctypes.c_long(_SYS_ARCH_PRCTL), *arguments) == 0


def describe_cpu(name: str, arch: str, features: frozenset[str], tiles: bool) -> HostCpu:
    """Derive vector width and register count from the feature names."""
    bits, registers = 128, 16
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= features:
        bits, registers = 512, 32
    elif "avx2" in features:
        bits, registers = 256, 16
    elif arch in ("aarch64", "arm64"):
        bits, registers = 128, 32
    return HostCpu(
        name, arch, features, bits, registers, *_cache_sizes(), has_tile_permission=tiles
    )


@lru_cache(maxsize=1)
def detect_host() -> HostCpu:
    """The CPU this process runs on. Called once; later calls return the same record."""
    import llvmlite.binding as llvm

    features = frozenset(key for key, is_on in llvm.get_host_cpu_features().items() if is_on)
    tiles = "amx-tile" in features and request_tile_permission()
    if not tiles:
        features = frozenset(name for name in features if not name.startswith("amx"))
    return describe_cpu(llvm.get_host_cpu_name(), platform.machine(), features, tiles)
