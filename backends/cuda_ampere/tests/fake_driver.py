"""A driver that records: the few calls that loading and launching make, over real memory."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


def value_of(pointer: Any) -> int:
    """The address in an argument that ctypes has converted before (`ctypes.byref`)."""
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


@dataclass(frozen=True, slots=True)
class Launch:
    """One recorded launch, decoded from the memory that the driver would read."""

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_bytes: int
    stream: int
    attributes: tuple[bytes, ...]
    params: tuple[bytes, ...]
    device: int


class FakeDriver:
    """One or more devices of one compute capability; kernels are those of `parameter_bytes`.

    Args:
        parameter_bytes: kernel name -> size of each parameter.
        capability: compute capability of every device.
        devices: how many there are.
        registers: registers per lane that every kernel is said to use.
        statuses: results of the coming launches, first to last; 0 once they are used up.
    """

    def __init__(
        self,
        parameter_bytes: dict[str, list[int]],
        capability: tuple[int, int] = (8, 0),
        devices: int = 1,
        registers: int = 32,
        static_smem_bytes: int = 0,
        statuses: list[int] | None = None,
    ) -> None:
        self.parameter_bytes = parameter_bytes
        self.devices = devices
        self.statuses = statuses or []
        self.launches: list[Launch] = []
        self.loaded: list[tuple[int, bytes]] = []
        self.set_attributes: list[tuple[int, str, int]] = []
        self.made_current: list[int] = []
        self.context = [0]
        self.pages: list[tuple[int, int]] = []
        self.capturing: set[int] = set()
        self.answers = {
            "COMPUTE_CAPABILITY_MAJOR": capability[0],
            "COMPUTE_CAPABILITY_MINOR": capability[1],
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 166912,
            "MAX_REGISTERS_PER_BLOCK": 65536,
            "SHARED_SIZE_BYTES": static_smem_bytes,
            "NUM_REGS": registers,
        }

    def device_count(self) -> int:
        return self.devices

    def attribute(self, ordinal: int, name: str) -> int:
        assert 0 <= ordinal < self.devices
        return self.answers[name]

    @contextmanager
    def current(self, ordinal: int) -> Generator[None]:
        self.context.append(ordinal)
        try:
            yield
        finally:
            self.context.pop()

    def make_current(self, ordinal: int) -> None:
        self.made_current.append(ordinal)
        self.context[-1] = ordinal

    def current_device(self) -> int:
        return self.context[-1]

    def load_module(self, cubin: bytes) -> int:
        self.loaded.append((self.context[-1], cubin))
        return self.context[-1]

    def function(self, module: int, name: str) -> int:
        """Handles tell device and kernel: 1000 * (device + 1) + index of the kernel."""
        return 1000 * (module + 1) + list(self.parameter_bytes).index(name)

    def function_attribute(self, function: int, name: str) -> int:
        return self.answers[name]

    def set_function_attribute(self, function: int, name: str, value: int) -> None:
        self.set_attributes.append((function, name, value))

    def zeroed_words(self, ordinal: int, count: int) -> int:
        """Pages of words, one after the other."""
        start = self.pages[-1][1] if self.pages else 1 << 20
        self.pages.append((start, start + 4 * count))
        return start

    def is_capturing(self, stream: int) -> bool:
        return stream in self.capturing

    def error_text(self, code: int) -> tuple[str, str]:
        return f"CUDA_ERROR_{code}", "text of the driver"

    def launch_kernel_ex(self, config: Any, function: Any, params: Any, extra: Any) -> int:
        """cuLaunchKernelEx: reads the structures of cuda.h at the given addresses."""
        assert extra is None
        status = self.statuses.pop(0) if self.statuses else 0
        if status:
            return status
        raw = ctypes.string_at(value_of(config), 56)
        *extents, stream, attributes_at, count = struct.unpack("<7I4xQQI4x", raw)
        name = list(self.parameter_bytes)[value_of(function) % 1000]
        sizes = self.parameter_bytes[name]
        addresses = (ctypes.c_uint64 * len(sizes)).from_address(value_of(params)) if sizes else ()
        self.launches.append(
            Launch(
                function=value_of(function),
                grid=tuple(extents[:3]),
                block=tuple(extents[3:6]),
                smem_bytes=extents[6],
                stream=stream,
                attributes=tuple(
                    ctypes.string_at(attributes_at + 72 * number, 72) for number in range(count)
                ),
                params=tuple(
                    ctypes.string_at(address, size)
                    for address, size in zip(addresses, sizes, strict=True)
                ),
                device=self.context[-1],
            )
        )
        return 0
