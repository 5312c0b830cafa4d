"""A stand-in for the few calls of ``hip.hip`` that loading and launching make; it records them.

What a launch would read is copied out of memory at the time of the call, as the runtime would.
"""

from __future__ import annotations

import ctypes
from typing import Any


class Properties:
    """hipDeviceProp_t, as far as it is read."""

    gcnArchName = b""
    name = b""


class FakeHip:
    """Devices by architecture; calls are in `calls`, launches in `launches`."""

    hipDeviceProp_t = Properties

    def __init__(self, archs: tuple[str, ...] = ("gfx942:sramecc+:xnack-",)) -> None:
        self.archs = archs
        self.device = 0
        self.calls: list[str] = []
        self.launches: list[dict[str, Any]] = []
        self.parameters: dict[str, int] = {}  # kernel -> how many parameters it reads
        self.launch_status = 0
        self.capturing: dict[int, list[dict[str, Any]]] = {}  # stream -> launches recorded so far

    def hipGetDeviceCount(self) -> tuple[int, int]:
        return 0, len(self.archs)

    def hipGetDevice(self) -> tuple[int, int]:
        return 0, self.device

    def hipSetDevice(self, ordinal: int) -> tuple[int]:
        self.device = ordinal
        return (0,)

    def hipGetDeviceProperties(self, properties: Properties, ordinal: int) -> tuple[int]:
        properties.gcnArchName = self.archs[ordinal].encode()
        return (0,)

    # hipErrorStreamCaptureUnsupported: what HIP answers to these while a stream is being captured.
    def _forbidden_in_capture(self) -> int:
        return 900 if self.capturing else 0

    def hipStreamBeginCapture(self, stream: int, mode: int) -> tuple[int]:
        self.capturing[stream] = []
        return (0,)

    def hipStreamEndCapture(self, stream: int) -> tuple[int, list[dict[str, Any]]]:
        return 0, self.capturing.pop(stream)

    def hipGraphLaunch(self, graph: list[dict[str, Any]], stream: int) -> tuple[int]:
        self.launches += [{**launch, "stream": stream} for launch in graph]
        return (0,)

    def hipModuleLoadData(self, data: bytes) -> tuple[int, Any]:
        if self._forbidden_in_capture():
            return 900, None
        self.calls.append(f"load {len(data)} on {self.device}")
        return 0, ("module", self.device)

    def hipModuleGetFunction(self, module: Any, name: bytes) -> tuple[int, Any]:
        return 0, (name.decode(), self.device)

    def hipModuleLaunchKernel(
        self, function: Any, gx: int, gy: int, gz: int, bx: int, by: int, bz: int,
        lds_bytes: int, stream: int, parameters: int, extra: Any,
    ) -> tuple[int]:  # fmt: skip
        name, loaded_on = function
        count = self.parameters[name]
        pointers = (ctypes.c_void_p * count).from_address(parameters)
        self.capturing.get(stream, self.launches).append(
            {
                "name": name, "grid": (gx, gy, gz), "block": (bx, by, bz), "lds": lds_bytes,
                "stream": stream, "device": self.device, "loaded_on": loaded_on,
                "values": [ctypes.string_at(p, 8) for p in pointers], "extra": extra,
            }
        )  # fmt: skip
        return (self.launch_status,)

    def hipDeviceSynchronize(self) -> tuple[int]:
        if self._forbidden_in_capture():
            return (900,)
        self.calls.append(f"synchronize {self.device}")
        return (0,)
