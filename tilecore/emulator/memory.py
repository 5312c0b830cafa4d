"""Memory that emulated kernels see: copies of arrays, aligned and set apart from each other."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from tilecore.errors import ArgumentError

# Device allocations are at least this much aligned; a kernel's vector accesses rely on it.
ALIGNMENT_BYTES = 256
# Free space on both sides, so that a small overrun of one buffer never lands in another one.
GUARD_BYTES = 65536

Array = npt.NDArray[Any]


class EmulatedMemory:
    """One buffer of a launch.

    Args:
        array: C-contiguous; its bytes are copied in, and back by ``copy_back``.
        writable: whether the kernel may write it; by default whether the array can be written.
        misalignment_bytes: distance of the first byte from an aligned address, for views that
            start inside of an allocation.
    """

    def __init__(
        self, array: Array, *, writable: bool | None = None, misalignment_bytes: int = 0
    ) -> None:
        if not array.flags.c_contiguous:
            raise ArgumentError(
                "the emulator takes C-contiguous arrays",
                got=f"shape {array.shape} with strides {array.strides}",
            )
        self.array = array
        self.writable = bool(array.flags.writeable) if writable is None else writable
        self.bytes = array.nbytes
        self._storage = np.empty(self.bytes + 2 * GUARD_BYTES + ALIGNMENT_BYTES, np.uint8)
        start = self._storage.ctypes.data + GUARD_BYTES
        self.address = -(-start // ALIGNMENT_BYTES) * ALIGNMENT_BYTES + misalignment_bytes
        first = self.address - self._storage.ctypes.data
        self._view = self._storage[first : first + self.bytes]
        self._view[:] = array.reshape(-1).view(np.uint8)

    def copy_back(self) -> None:
        """Copies what the kernel wrote into the array, if it may have written."""
        if self.writable and self.bytes:
            self.array.reshape(-1).view(np.uint8)[:] = self._view


def argument_cell(value: object) -> ctypes.Array[ctypes.c_char]:
    """One kernel parameter by value, at a 64-byte aligned address.

    Args:
        value: a NumPy scalar, a ctypes value, or bytes of a structure.

    Raises:
        ArgumentError: for a Python number, whose width is unknown, and any other type.
    """
    if isinstance(value, EmulatedMemory):
        data = int(value.address).to_bytes(8, "little")
    elif isinstance(value, np.generic):
        data = value.tobytes()
    elif isinstance(value, bytes):
        data = value
    elif isinstance(value, (ctypes._SimpleCData, ctypes.Structure)):  # pyright: ignore[reportPrivateUsage]
        data = bytes(value)
    else:
        raise ArgumentError(
            "a kernel argument of unknown width",
            expected="an array, EmulatedMemory, NumPy scalar, ctypes value or bytes",
            got=f"{type(value).__name__} {value!r}",
        )
    storage = (ctypes.c_char * (len(data) + 64))()
    offset = -ctypes.addressof(storage) % 64
    cell = (ctypes.c_char * len(data)).from_buffer(storage, offset)
    cell[:] = data
    return cell
