"""Packing launch arguments: memory laid out once, a generated function that fills it per call.

The driver takes an array of pointers to the parameters' values, and a configuration (grid, block,
shared memory, stream, attributes). Both are prepared here; a call only writes addresses into 8-byte
slots, and the stream into the configuration. Several threads may launch at once, so prepared memory
is taken from a pool and put back.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Protocol

import numpy as np

from tilecore.errors import LaunchError
from tilecore.hooks.records import KernelSource
from tilecore.ir.buffers import Buffer
from tilecore.ir.dtypes import DType, numpy_dtype
from tilecore.ir.signature import Argument
from tilecore.runtime.launcher import BoundLaunch, InlineLaunch
from tilecore_backend_cuda_ampere.counters import TileCounters

# CUlaunchConfig of cuda.h: seven 32-bit extents and padding, stream, attributes, their count.
_CONFIG_WORDS = 7
_STREAM_WORD = 4
_CLUSTER_ATTRIBUTE = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_OVERLAP_ATTRIBUTE = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_ATTRIBUTE_BYTES = 72  # CUlaunchAttribute: 4 bytes of id, 4 of padding, 64 of value
_DESCRIPTOR_BYTES = 128  # CUtensorMap
_PARTS = ("config", "config_at", "params_at", "encoded")  # what `_Packer` makes for each kernel
_BUILTINS = {"IndexError": IndexError}
_INVALID_CONTEXT = 201  # the thread has no current context yet


class Descriptor(Protocol):
    """A parameter of 128 bytes that the host encodes from a buffer's address (a tensor map).

    `KernelSource.extra` holds them under ``"descriptors"``; they follow the other parameters.
    """

    @property
    def buffer(self) -> str:
        """Name of the program's buffer whose address is encoded."""
        ...

    def encode(self, address: int, sizes: dict[str, int]) -> bytes:
        """The 128 bytes for a buffer at `address`, given the dynamic sizes by name."""
        ...


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel launch of a program, with its grid settled.

    `kernel.extra` may hold ``"descriptors"`` (see `Descriptor`), ``"overlap"`` (true: may start
    while the kernel before it drains; the kernel waits itself) and ``"counter"`` (true: the last
    parameter is the address of a counter, see `counters`).
    """

    kernel: KernelSource
    function: int
    grid: tuple[int, ...]

    @property
    def descriptors(self) -> tuple[Descriptor, ...]:
        """Parameters that the host encodes."""
        found: Any = dict(self.kernel.extra).get("descriptors", ())
        return tuple(found)

    @property
    def has_counter(self) -> bool:
        """Whether its blocks take tiles from a counter."""
        return bool(dict(self.kernel.extra).get("counter"))


class LaunchMaker:
    """Makes launch functions for one program; the generated code is compiled once.

    Args:
        arguments: parameters and workspaces, in the order in which values will come.
        driver: gives the launch call and contexts.
        explain: makes the error of a failed launch.
    """

    def __init__(
        self,
        arguments: Sequence[Argument],
        driver: Any,
        explain: Callable[[int, KernelSource, tuple[int, ...]], LaunchError],
    ) -> None:
        self._arguments = tuple(arguments)
        self._driver = driver
        self._explain = explain
        self._codes: dict[tuple[str, ...], CodeType] = {}  # by their statements
        self._counters: dict[int, TileCounters] = {}  # by device; whatever the sizes

    def make(
        self,
        calls: Sequence[KernelCall],
        sizes: dict[str, int],
        device: int,
        stream_of: Callable[[int], int],
    ) -> BoundLaunch:
        """A function of the values of the arguments that launches `calls` in order.

        Args:
            calls: kernels with non-empty grids.
            sizes: dynamic sizes by name; they are written once.
            device: ordinal of the device.
            stream_of: tells the current stream of a device.
        """
        if not calls:
            return lambda *values: None
        packer = _Packer(calls, self._arguments, sizes)
        attributes, attribute_count = packer.attributes(0)
        pool: list[Any] = []
        namespace: dict[str, Any] = {
            "launch_take": pool.pop,
            "launch_give": pool.append,
            "launch_make": packer.make,
            # One call for stream, attributes and all slots costs half of an assignment for each.
            "launch_pack": struct.Struct(f"={3 + len(self._arguments)}Q").pack_into,
            "launch_attributes": attributes,
            "launch_attribute_count": attribute_count,
            "launch_encode": packer.encode,
            "launch_start": self._driver.launch_kernel_ex,
            "launch_stream_of": stream_of,
            "launch_device": device,
            "launch_recover": _Recovery(calls, device, self._driver, self._explain),
            "launch_bits": _float_bits,
            **{f"launch_dtype{i}": a.dtype for i, a in enumerate(self._arguments)},
        }
        if any(call.has_counter for call in calls):
            if device not in self._counters:
                self._counters[device] = TileCounters(self._driver, device)
            namespace["launch_counter"] = self._counters[device].of
        for index, call in enumerate(calls):
            namespace[f"launch_function{index}"] = _handle(call.function)
        lines = launch_lines(calls, self._arguments)
        launch = self._function(lines, namespace)
        if self._driver.device_count() > 1:
            namespace["launch_current_device"] = _current_device(self._driver)
            namespace["launch_elsewhere"] = _elsewhere(launch, device, self._driver)
            lines = lines_on_device(lines, len(self._arguments))
            launch = self._function(lines, namespace)
        launch.inline = InlineLaunch(lines, namespace)
        return launch

    def _function(self, lines: tuple[str, ...], namespace: dict[str, Any]) -> Any:
        """A function of the arguments' values with these statements; compiled once."""
        if lines not in self._codes:
            parameters = ", ".join(f"v{index}" for index in range(len(self._arguments)))
            module: dict[str, Any] = {}
            source = "\n".join([f"def launch({parameters}):", "    at = None", *lines])
            exec(compile(source, "<launch>", "exec"), module)
            self._codes[lines] = module["launch"].__code__
        return FunctionType(self._codes[lines], {"__builtins__": _BUILTINS, **namespace})


def launch_lines(calls: Sequence[KernelCall], arguments: Sequence[Argument]) -> tuple[str, ...]:
    """Statements that launch these kernels with the values ``v0``, ``v1``, ... of the arguments.

    What is in the memory already, from a call with the same values (`at`), is not written again.
    """
    unpacked = [f"{part}{index}" for index in range(len(calls)) for part in _PARTS]
    lines = [
        "    try:",
        "        memory = launch_take()",
        "    except IndexError:",
        "        memory = launch_make()",
        f"    {', '.join(unpacked)}, packed_at, packed_stream = memory",
        "    stream = launch_stream_of(launch_device)",
        "    if at is None or at is not packed_at or stream != packed_stream:",
        *_pack_lines(calls, arguments),
        "        memory[-2:] = at, stream",
    ]
    if any(call.has_counter for call in calls):
        lines.append("    config0[-1] = launch_counter(stream)")
    for index in range(len(calls)):
        start = f"launch_start(config_at{index}, launch_function{index}, params_at{index}, None)"
        lines.append(f"    status = {start}")
        lines.append(f"    if status: launch_recover(status, {index}, memory)")
    return (*lines, "    launch_give(memory)")


def _pack_lines(calls: Sequence[KernelCall], arguments: Sequence[Argument]) -> list[str]:
    """Statements that write stream, slots and descriptors."""
    places = {argument.name: index for index, argument in enumerate(arguments)}
    values = "".join(f", {_slot_value(a, f'v{i}')}" for i, a in enumerate(arguments))
    lines = [
        f"        launch_pack(config0, {8 * _STREAM_WORD}, stream, launch_attributes,"
        f" launch_attribute_count{values})",
    ]
    for index, call in enumerate(calls):
        for number, descriptor in enumerate(call.descriptors):
            value = f"v{places[descriptor.buffer]}"
            lines.append(f"        if encoded{index}[{number}] != {value}:")
            lines.append(f"            launch_encode({index}, {number}, {value}, encoded{index})")
        if index:
            lines.append(f"        config{index}[{_STREAM_WORD}] = stream")
    return lines


def lines_on_device(lines: Sequence[str], values: int) -> tuple[str, ...]:
    """The same statements where several devices are, so that another one may be current."""
    passed = ", ".join(f"v{index}" for index in range(values))
    return (
        "    if launch_current_device() != launch_device:",
        f"        launch_elsewhere({passed})",
        "    else:",
        *(f"    {line}" for line in lines),
    )


def _current_device(driver: Any) -> Callable[[], int]:
    """The cheapest function that tells this thread's device."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
    return driver.current_device


def _elsewhere(launch: BoundLaunch, device: int, driver: Any) -> BoundLaunch:
    """The same launch from a thread in which another device is current."""

    def launch_there(*values: int | float) -> None:
        with driver.current(device):
            launch(*values)

    return launch_there


class _Recovery:
    """What to do when the launch call fails."""

    def __init__(self, calls: Sequence[KernelCall], device: int, driver: Any, explain: Any) -> None:
        self._calls = calls
        self._device = device
        self._driver = driver
        self._explain = explain

    def __call__(self, status: int, index: int, memory: Any) -> None:
        """Give a new thread its context and launch again, or raise."""
        call = self._calls[index]
        if status == _INVALID_CONTEXT:
            self._driver.make_current(self._device)
            _, config_at, params_at, _ = memory[len(_PARTS) * index :][: len(_PARTS)]
            function = _handle(call.function)
            status = self._driver.launch_kernel_ex(config_at, function, params_at, None)
        if status:
            raise self._explain(int(status), call.kernel, call.grid)


class _Packer:
    """Makes the memory of one launch: slots, and configuration and pointers of each kernel."""

    def __init__(
        self, calls: Sequence[KernelCall], arguments: Sequence[Argument], sizes: dict[str, int]
    ) -> None:
        self._calls = calls
        self._places = {argument.name: index for index, argument in enumerate(arguments)}
        self._sizes = sizes
        for offset, name in enumerate(sizes):
            self._places[name] = len(arguments) + offset
        self._first_size = _CONFIG_WORDS + len(arguments)
        self._attributes = tuple(_attributes(call.kernel) for call in calls)
        self._encoded: dict[tuple[int, int, int], bytes] = {}

    def attributes(self, index: int) -> tuple[int, int]:
        """Address of a kernel's attributes and how many there are; zeros without any."""
        records = self._attributes[index]
        if records is None:
            return 0, 0
        return ctypes.addressof(records), len(records) // _ATTRIBUTE_BYTES

    def make(self) -> list[Any]:
        """For each kernel `_PARTS`: its configuration, that one's address, the parameters' address,
        and its encoded descriptors. Behind them, which values are packed, and for which stream.

        The slots follow the first kernel's configuration, so that one call writes stream and slots.
        An address of `byref` holds what it points at; the packer itself holds the attributes.
        """
        count = _CONFIG_WORDS + len(self._places) + 1  # the last one is the counter's
        first = (ctypes.c_uint64 * count)()
        for offset, size in enumerate(self._sizes.values()):
            first[self._first_size + offset] = size & 0xFFFFFFFFFFFFFFFF
        base = ctypes.addressof(first) + 8 * _CONFIG_WORDS
        made: list[Any] = []
        for index, call in enumerate(self._calls):
            config = (ctypes.c_uint64 * _CONFIG_WORDS)() if index else first
            made += self._make_kernel(index, call, config, base)
        return [*made, None, None]

    def _make_kernel(self, index: int, call: KernelCall, config: Any, base: int) -> tuple[Any, ...]:
        kernel = call.kernel
        addresses = [base + 8 * self._places[argument.name] for argument in kernel.arguments]
        encoded = _EncodedDescriptors(len(call.descriptors))
        addresses += encoded.addresses
        if call.has_counter:
            addresses.append(base + 8 * len(self._places))
        params = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        struct.pack_into(
            "<7I4xQQI", config, 0, *call.grid, kernel.threads, 1, 1, kernel.smem_bytes, 0,
            *self.attributes(index),
        )  # fmt: skip
        return config, ctypes.byref(config), ctypes.byref(params), encoded

    def encode(self, kernel: int, number: int, address: int, encoded: _EncodedDescriptors) -> None:
        """Put the descriptor of a buffer at `address` in place; encoded once per address."""
        key = (kernel, number, address)
        content = self._encoded.get(key)
        if content is None:
            if len(self._encoded) >= 4096:
                self._encoded.clear()
            content = self._calls[kernel].descriptors[number].encode(address, self._sizes)
            self._encoded[key] = content
        encoded.put(number, address, content)


class _EncodedDescriptors:
    """128-byte parameters and the addresses that they were encoded for; reads like a list."""

    __slots__ = ("_memory", "_of", "addresses")

    def __init__(self, count: int) -> None:
        # cuda.h: a CUtensorMap is aligned to 64 bytes.
        self._memory = (ctypes.c_uint8 * (_DESCRIPTOR_BYTES * count + 64))()
        start = -(-ctypes.addressof(self._memory) // 64) * 64
        self.addresses = [start + _DESCRIPTOR_BYTES * number for number in range(count)]
        self._of: list[int | None] = [None] * count

    def __getitem__(self, number: int) -> int | None:
        return self._of[number]

    def put(self, number: int, address: int, content: bytes) -> None:
        """Store one descriptor."""
        ctypes.memmove(self.addresses[number], content, _DESCRIPTOR_BYTES)
        self._of[number] = address


def _handle(function: int) -> Any:
    """A kernel's handle as an argument that ctypes has converted already, like those of `byref`.

    ctypes makes a new object of every boxed pointer at every call: 0.03 microseconds each.
    """
    return ctypes.c_void_p.from_param(function)


def _attributes(kernel: KernelSource) -> Any:
    """CUlaunchAttribute records of a kernel, or None."""
    records = b""
    if max(kernel.cluster) > 1:
        records += struct.pack("<I4x3I52x", _CLUSTER_ATTRIBUTE, *kernel.cluster)
    if dict(kernel.extra).get("overlap"):
        records += struct.pack("<I4xi60x", _OVERLAP_ATTRIBUTE, 1)
    return (ctypes.c_uint8 * len(records)).from_buffer_copy(records) if records else None


def _slot_value(argument: Argument, value: str) -> str:
    """Python text that turns an argument's value into its slot's 64 bits."""
    if isinstance(argument, Buffer):
        return value
    if argument.dtype.is_float:
        return f"launch_bits({value}, launch_dtype{value[1:]})"
    return f"{value} & 0xFFFFFFFFFFFFFFFF"  # two's complement; the kernel reads the low bytes


def _float_bits(value: float, dtype: DType) -> int:
    """The bits of a float scalar in its dtype."""
    if dtype.bits == 32:
        return int.from_bytes(struct.pack("<f", value), "little")
    if dtype.bits == 64:
        return int.from_bytes(struct.pack("<d", value), "little")
    return int.from_bytes(np.array(value).astype(numpy_dtype(dtype)).tobytes(), "little")
