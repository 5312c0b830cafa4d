"""The few calls of the HIP runtime that loading and launching make, through hip-python.

Written to HIP's documentation; exercised by tests against a stand-in, not run on hardware so far.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator
from typing import Any

from tilecore.errors import LaunchError


class HipError(LaunchError):
    """A HIP call that failed.

    Attributes:
        status: HIP's number.
    """

    def __init__(self, call: str, status: Any) -> None:
        super().__init__(f"{call} failed: {getattr(status, 'name', status)}")
        self.status = int(status)


class HipApi:
    """Calls with their status checked.

    Args:
        binding: the module ``hip.hip`` of hip-python, or a stand-in.

    Raises:
        LaunchError: hip-python or the runtime library is missing.
    """

    def __init__(self, binding: Any | None = None) -> None:
        if binding is None:
            try:
                from hip import hip as binding
            except ImportError as error:
                raise LaunchError(
                    "hip-python is not installed", hint="pip install hip-python"
                ) from error
        self._hip = binding
        try:
            self.device_count = int(self._call("hipGetDeviceCount"))
        except RuntimeError as error:  # the binding's error for a library that cannot be loaded
            raise LaunchError("the ROCm runtime (libamdhip64.so) cannot be loaded") from error

    def current_device(self) -> int:
        """Ordinal of the thread's current device."""
        return int(self._call("hipGetDevice"))

    def arch(self, ordinal: int) -> str:
        """A device's architecture, such as ``"gfx942"``."""
        status, properties = device_properties(self._hip, ordinal)
        if int(status) != 0:
            raise HipError("hipGetDeviceProperties", status)
        return text_of(properties.gcnArchName).split(":")[0]

    @contextlib.contextmanager
    def on_device(self, ordinal: int) -> Generator[None, None, None]:
        """Make a device current for a while."""
        before = self.current_device()
        if before != ordinal:
            self._call("hipSetDevice", ordinal)
        try:
            yield
        finally:
            if before != ordinal:
                self._call("hipSetDevice", before)

    def load_module(self, code_object: bytes) -> Any:
        """Load machine code on the current device."""
        return self._call("hipModuleLoadData", code_object)

    def function(self, module: Any, name: str) -> Any:
        """A kernel of a loaded module."""
        return self._call("hipModuleGetFunction", module, name.encode())

    def launch(
        self, function: Any, grid: tuple[int, ...], threads: int, lds_bytes: int, stream: int,
        parameters: int,
    ) -> None:  # fmt: skip
        """Enqueue one kernel; `parameters`: address of an array of pointers to their values."""
        (status,) = self._hip.hipModuleLaunchKernel(
            function, *grid, threads, 1, 1, lds_bytes, stream, parameters, None
        )
        if int(status) != 0:
            raise HipError("hipModuleLaunchKernel", status)

    def synchronize(self) -> None:
        """Wait for everything on every device."""
        for ordinal in range(self.device_count):
            with self.on_device(ordinal):
                self._call("hipDeviceSynchronize")

    def _call(self, name: str, *arguments: Any) -> Any:
        """The result of a call without its status.

        Raises:
            HipError: the status is not success.
        """
        status, *results = getattr(self._hip, name)(*arguments)
        if int(status) != 0:
            raise HipError(name, status)
        return results[0] if results else None


def device_properties(binding: Any, ordinal: int) -> tuple[Any, Any]:
    """(status, hipDeviceProp_t) of a device.

    hip-python of ROCm 10 makes the record itself; before, the caller did.
    """
    try:
        status, properties = binding.hipGetDeviceProperties(ordinal)
    except TypeError:
        properties = binding.hipDeviceProp_t()
        (status,) = binding.hipGetDeviceProperties(properties, ordinal)
    return status, properties


def text_of(value: str | bytes) -> str:
    """Text of a record, which is bytes before ROCm 10."""
    return value.decode() if isinstance(value, bytes) else value


@functools.lru_cache(maxsize=1)
def get_api() -> HipApi:
    """The runtime, loaded on first use.

    Raises:
        LaunchError: hip-python or the runtime library is missing.
    """
    return HipApi()
