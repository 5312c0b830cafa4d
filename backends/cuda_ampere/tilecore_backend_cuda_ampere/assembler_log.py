"""Reading what the assembler (``ptxas -v``) prints about each kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tilecore.hooks.records import KernelResources, KernelSource

_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)'")
_FUNCTION = re.compile(r"Function properties for (?P<name>\S+)")
_STACK = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads"
)
_REGISTERS = re.compile(r"Used (?P<registers>\d+) registers")
_SHARED = re.compile(r"(?P<bytes>\d+) bytes smem")
# "(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to ..."
_REMARK = re.compile(
    r"ptxas (?:info|warning)\s*:\s*(?P<text>\(C\d+\).*|.*[Pp]erformance [Ll]oss.*)"
)
_IGNORED = re.compile(r"ptxas (?:info|warning)\s*:\s*(?P<text>.*\bignored\b.*)")


@dataclass(slots=True)
class _Kernel:
    """What was read of one kernel so far."""

    registers: int | None = None
    stack_bytes: int | None = None
    spill_bytes: int | None = None
    static_bytes: int = 0
    notes: list[str] = field(default_factory=list)


def parse_log(log: str, kernels: Sequence[KernelSource]) -> tuple[KernelResources, ...]:
    """One record per kernel, in the given order.

    Remarks that cost speed are kept with the kernel that they name, or with all kernels when they
    name none: serialised WGMMA, an ignored setmaxnreg, spills.
    """
    found = {kernel.name: _Kernel() for kernel in kernels}
    current: _Kernel | None = None
    for line in log.splitlines():
        entry = _ENTRY.search(line) or _FUNCTION.search(line)
        if entry is not None:
            current = found.get(entry["name"])
            continue
        remark = _REMARK.search(line) or _IGNORED.search(line)
        if remark is not None:
            for kernel in _named_in(remark["text"], found):
                kernel.notes.append(remark["text"].strip())
        elif current is not None:
            _read_usage(line, current)
    return tuple(_resources(kernel, found[kernel.name]) for kernel in kernels)


def _read_usage(line: str, kernel: _Kernel) -> None:
    if stack := _STACK.search(line):
        kernel.stack_bytes = int(stack["stack"])
        kernel.spill_bytes = int(stack["stores"]) + int(stack["loads"])
    if registers := _REGISTERS.search(line):
        kernel.registers = int(registers["registers"])
        shared = _SHARED.search(line)
        kernel.static_bytes = int(shared["bytes"]) if shared else 0


def _named_in(text: str, found: dict[str, _Kernel]) -> Iterable[_Kernel]:
    words = set(re.findall(r"\w+", text))
    named = [kernel for name, kernel in found.items() if name in words]
    return named or found.values()


def _resources(kernel: KernelSource, read: _Kernel) -> KernelResources:
    notes = list(dict.fromkeys(read.notes))
    if read.spill_bytes:
        notes.append(f"spills {read.spill_bytes} bytes of registers to memory")
    return KernelResources(
        name=kernel.name,
        threads=kernel.threads,
        registers=read.registers,
        smem_bytes=read.static_bytes + kernel.smem_bytes,
        stack_bytes=read.stack_bytes,
        spill_bytes=read.spill_bytes,
        notes=tuple(notes),
    )
