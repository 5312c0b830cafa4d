"""Loading a code object and launching its kernels on the current stream.

Machine code is loaded once per device. A bound launch has its grids settled; a call writes values
into 8-byte slots, to which the parameter arrays of all kernels point. Launches are captured into
graphs like any other: nothing but launches is enqueued.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

from tilecore.errors import LaunchError
from tilecore.forking import FreshLock
from tilecore.hooks.records import Artifact, KernelSource, Source
from tilecore.ir.buffers import Buffer
from tilecore.ir.program import Program
from tilecore.ir.signature import Argument, program_arguments
from tilecore.runtime.grids import launch_grid
from tilecore.runtime.idle_kernels import idle_kernels
from tilecore.runtime.launcher import BoundLaunch
from tilecore.runtime.scalar_grids import call_sizes, grid_scalars, launch_sizes
from tilecore.runtime.sizes import Sizes, compile_sizes
from tilecore.target import Target

from .hip_api import HipApi, get_api

SLOT_BYTES = 8
_FORMATS = {
    "int64": "q", "uint64": "Q", "float64": "d", "int32": "i4x", "uint32": "I4x", "float32": "f4x",
    "int16": "h6x", "uint16": "H6x", "float16": "e6x", "int8": "b7x", "uint8": "B7x", "bool": "?7x",
}  # fmt: skip


class HipLauncher:
    """A loaded program on CDNA3 devices; see `tilecore.runtime.launcher.BindableLauncher`.

    Args:
        program: the program, for its parameters.
        source: its kernels' launch facts.
        artifact: the code object.
        target: what it was compiled for.
        api: the HIP runtime, or a stand-in for tests.

    Raises:
        LaunchError: no runtime.
    """

    device_kind = "rocm"
    alignment_bytes = 16  # accesses of 16 bytes a lane

    def __init__(
        self,
        program: Program,
        source: Source,
        artifact: Artifact,
        target: Target,
        api: HipApi | None = None,
    ) -> None:
        self._api = get_api() if api is None else api
        self._program = program
        self._source = source
        self._artifact = artifact
        self._target = target
        self._arguments = program_arguments(program)
        self._pack = struct.Struct("<" + "".join(_format_of(a) for a in self._arguments))
        self.scalars = grid_scalars(program)
        given = launch_sizes(program)
        self._grids = tuple(compile_sizes(k.grid, given) for k in source.kernels)
        self._is_idle = idle_kernels(program)
        self._loaded: dict[int, tuple[Any, ...]] = {}
        self._guard = FreshLock()
        self._memory = threading.local()

    def bind(self, sizes: Sizes, device: int) -> BoundLaunch:
        """A launch with these sizes on the current stream of device `device`.

        Raises:
            ResourceError: a grid is over the target's limit.
            LaunchError: the code object does not fit the device.
        """
        return self._make(sizes, device, stream_getter())

    def __call__(self, arguments: tuple[int | float, ...], stream: int = 0) -> None:
        """Launch with flat arguments on `stream`, or on the current device's current stream."""
        count = len(self._program.symbols)
        sizes = call_sizes(arguments, count, self.scalars)
        getter = functools.partial(_given, stream) if stream else stream_getter()
        self._make(sizes, self._api.current_device(), getter)(*arguments[: len(arguments) - count])

    def _make(self, sizes: Sizes, device: int, stream_of: Callable[[int], int]) -> BoundLaunch:
        calls: list[tuple[Any, tuple[int, ...], KernelSource]] = []
        functions = self._load(device)
        for kernel, function, grid_of in zip(
            self._source.kernels, functions, self._grids, strict=True
        ):
            grid = launch_grid(kernel, grid_of(sizes), self._target)
            if grid is not None and not self._is_idle(kernel.name, sizes):
                calls.append((function, grid, kernel))
        api, pack = self._api, self._pack
        symbols = sizes[: len(self._program.symbols)]  # scalars that grids follow come behind

        def launch(*values: int | float) -> None:
            slots, parameters = self._thread_memory()
            pack.pack_into(slots, 0, *values, *symbols)
            stream = stream_of(device)
            with api.on_device(device):
                for function, grid, kernel in calls:
                    api.launch(
                        function, grid, kernel.threads, kernel.smem_bytes, stream,
                        ctypes.addressof(parameters[kernel.name]),
                    )  # fmt: skip

        return launch

    def _thread_memory(self) -> tuple[Any, Any]:
        """The calling thread's slots, and for each kernel its array of pointers into them."""
        memory = self._memory
        if not hasattr(memory, "slots"):
            memory.slots = ctypes.create_string_buffer(SLOT_BYTES * max(1, len(self._arguments)))
            base = ctypes.addressof(memory.slots)
            places = {a.name: base + SLOT_BYTES * k for k, a in enumerate(self._arguments)}
            memory.parameters = {
                kernel.name: (ctypes.c_void_p * max(1, len(kernel.arguments)))(
                    *(places[a.name] for a in kernel.arguments)
                )
                for kernel in self._source.kernels
            }
        return memory.slots, memory.parameters

    def _load(self, device: int) -> tuple[Any, ...]:
        """Kernels on a device, loaded once."""
        with self._guard:
            if device not in self._loaded:
                arch = self._api.arch(device)
                if arch != self._target.arch:
                    raise LaunchError(
                        f"{self._program.name} was compiled for another device",
                        expected=self._target.arch,
                        got=f"rocm:{device} is {arch}",
                        hint="move the tensors to a device of that architecture",
                    )
                with self._api.on_device(device):
                    module = self._api.load_module(self._artifact.data)
                    self._loaded[device] = tuple(
                        self._api.function(module, kernel.name) for kernel in self._source.kernels
                    )
            return self._loaded[device]


def _format_of(argument: Argument) -> str:
    """How one argument fills its slot."""
    if isinstance(argument, Buffer):
        return "Q"
    if argument.dtype.name not in _FORMATS:
        raise LaunchError(f"a launch takes no scalar of dtype {argument.dtype}: {argument.name}")
    return _FORMATS[argument.dtype.name]


def _given(stream: int, device: int) -> int:
    """A stream that the caller names, whatever the device's current one is."""
    return stream


def stream_getter() -> Callable[[int], int]:
    """Device ordinal -> handle of its current stream: torch's where torch is, else the default."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.version.hip is not None and torch.cuda.is_available():
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        return raw or (lambda ordinal: torch.cuda.current_stream(ordinal).cuda_stream)
    return lambda ordinal: 0


def synchronize() -> None:
    """Wait for all devices."""
    get_api().synchronize()
