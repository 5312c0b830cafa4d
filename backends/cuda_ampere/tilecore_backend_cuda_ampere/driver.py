"""The few driver calls that loading and launching need, behind one object.

Everything goes through cuda.bindings except the launch with attributes: the binding would turn its
configuration from Python objects into memory at every call, so it is called through ctypes with
memory that was written once. Tests put an object with the same methods in its place.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from tilecore.errors import LaunchError
from tilecore.forking import FreshLock

LaunchEx = Callable[[Any, Any, Any, Any], int]
"""``cuLaunchKernelEx(config, function, parameters, extra) -> CUresult``, taking ctypes pointers."""


# CUDA C++ Programming Guide: contexts do not survive a fork.
_FORKED = (
    "this process was forked from one that used the device, after which CUDA works no more: "
    'fork before the first use, or start processes by "spawn"'
)


class DriverError(LaunchError):
    """A driver call failed.

    Attributes:
        code: the CUresult.
        name: its name, such as ``"CUDA_ERROR_INVALID_CONTEXT"``.
    """

    def __init__(self, call: str, code: int, name: str, text: str) -> None:
        super().__init__(f"{call} failed: {name} ({text})")
        self.code = code
        self.name = name


class Driver:
    """The CUDA driver of this process.

    Raises:
        LaunchError: no driver, or no device.
    """

    def __init__(self) -> None:
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise LaunchError(
                f"cuda.bindings does not import: {error}", hint="pip install cuda-bindings"
            ) from error
        self._api: Any = driver
        library = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
        try:
            self._call(driver.cuInit, 0)
            self._library = ctypes.CDLL(library)
        except DriverError:
            raise
        except Exception as error:  # the binding's own error for a missing library, or OSError
            raise LaunchError(
                f"the NVIDIA driver ({library}) cannot be loaded",
                got=str(error).splitlines()[0] if str(error) else type(error).__name__,
                hint='install the driver, or run with device="emulator"',
            ) from error
        self._process = os.getpid()
        self._contexts: dict[int, Any] = {}
        self._guard = FreshLock()

    @property
    def launch_kernel_ex(self) -> LaunchEx:
        """``cuLaunchKernelEx``, called with four addresses that were boxed before.

        The binding's ``cuLaunchKernel`` unboxes eleven arguments and makes a tuple of the answer:
        0.17 microseconds more a launch.
        """
        return self._library.cuLaunchKernelEx

    def device_count(self) -> int:
        """Devices that this process sees."""
        return int(self._call(self._api.cuDeviceGetCount))

    def device_name(self, ordinal: int) -> str:
        """The vendor's name of a device."""
        raw: bytes = self._call(self._api.cuDeviceGetName, 256, self._device(ordinal))
        return raw.split(b"\0")[0].decode()

    def memory_bytes(self, ordinal: int) -> int:
        """Total memory of a device."""
        return int(self._call(self._api.cuDeviceTotalMem, self._device(ordinal)))

    def attribute(self, ordinal: int, name: str) -> int:
        """A device attribute by the driver's name without ``CU_DEVICE_ATTRIBUTE_``."""
        kind = getattr(self._api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._call(self._api.cuDeviceGetAttribute, kind, self._device(ordinal)))

    def driver_version(self) -> str:
        """The newest CUDA version that the driver supports, such as ``"13.0"``."""
        number = int(self._call(self._api.cuDriverGetVersion))
        return f"{number // 1000}.{number % 1000 // 10}"

    @contextmanager
    def current(self, ordinal: int) -> Generator[None]:
        """Make a device's primary context current in this thread; it is torch's context too."""
        self._call(self._api.cuCtxPushCurrent, self._context(ordinal))
        try:
            yield
        finally:
            self._call(self._api.cuCtxPopCurrent)

    def make_current(self, ordinal: int) -> None:
        """As `current`, but for good: for threads that have no context yet."""
        self._call(self._api.cuCtxSetCurrent, self._context(ordinal))

    def current_device(self) -> int:
        """The device of this thread's context; -1 when it has none."""
        context = self._call(self._api.cuCtxGetCurrent)
        return -1 if int(context) == 0 else int(self._call(self._api.cuCtxGetDevice))

    def load_module(self, cubin: bytes) -> Any:
        """Load machine code into the current context."""
        return self._call(self._api.cuModuleLoadData, cubin)

    def function(self, module: Any, name: str) -> int:
        """The handle of a kernel."""
        return int(self._call(self._api.cuModuleGetFunction, module, name.encode()))

    def function_attribute(self, function: int, name: str) -> int:
        """A kernel attribute by the driver's name without ``CU_FUNC_ATTRIBUTE_``."""
        kind = getattr(self._api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        handle = self._api.CUfunction(function)
        return int(self._call(self._api.cuFuncGetAttribute, kind, handle))

    def set_function_attribute(self, function: int, name: str, value: int) -> None:
        """Set a kernel attribute."""
        kind = getattr(self._api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        self._call(self._api.cuFuncSetAttribute, self._api.CUfunction(function), kind, value)

    def synchronize(self, ordinal: int) -> None:
        """Wait for all work of a device."""
        with self.current(ordinal):
            self._call(self._api.cuCtxSynchronize)

    def zeroed_words(self, ordinal: int, count: int) -> int:
        """The address of `count` 32-bit zeros on a device; they are never freed."""
        with self.current(ordinal):
            address = self._call(self._api.cuMemAlloc, 4 * count)
            self._call(self._api.cuMemsetD32, address, 0, count)
            self._call(self._api.cuCtxSynchronize)
        return int(address)

    def is_capturing(self, stream: int) -> bool:
        """True when launches on `stream` go into a graph now."""
        status = ctypes.c_int(0)
        self._library.cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status))
        return status.value != 0

    def error_text(self, code: int) -> tuple[str, str]:
        """Name and description of a CUresult."""
        try:
            status = self._api.CUresult(code)
        except ValueError:
            return f"CUresult {code}", "unknown to this cuda.bindings"
        _, raw = self._api.cuGetErrorString(status)
        text = raw.decode() if raw else "no description"
        return status.name, text if os.getpid() == self._process else f"{text}; {_FORKED}"

    def _device(self, ordinal: int) -> Any:
        return self._call(self._api.cuDeviceGet, ordinal)

    def _context(self, ordinal: int) -> Any:
        with self._guard:
            if ordinal not in self._contexts:
                # Retained once and never released: torch holds the same context all along.
                self._contexts[ordinal] = self._call(
                    self._api.cuDevicePrimaryCtxRetain, self._device(ordinal)
                )
            return self._contexts[ordinal]

    def _call(self, function: Any, *arguments: Any) -> Any:
        """The result of a binding's call without its status."""
        status, *results = function(*arguments)
        if int(status) != 0:
            name, text = self.error_text(int(status))
            raise DriverError(function.__name__, int(status), name, text)
        return results[0] if results else None


@functools.lru_cache(maxsize=1)
def get_driver() -> Driver:
    """The driver, loaded on first use.

    Raises:
        LaunchError: no driver, or no device.
    """
    return Driver()
