"""The tensor maps of a kernel: parameters of 128 bytes after the program's own.

On the device the driver encodes them (`tensor_map.py`); the emulated header reads a plain structure
with the same facts.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Var
from tilecore.ir.windows import Windows
from tilecore.passes.async_copies import strides_of
from tilecore.runtime.sizes import compile_sizes
from tilecore_backend_cuda_hopper.layout import CHUNK_BYTES
from tilecore_backend_cuda_hopper.tensor_map import TensorMap
from tilecore_backend_cuda_hopper.window_map import WindowMap, window_map


@dataclass(frozen=True, slots=True)
class KernelMap:
    """One tensor map as a kernel parameter (a `packing.Descriptor` of the launcher).

    Attributes:
        name: of the parameter.
        map: what it describes.
        symbols: the program's dynamic sizes.
    """

    name: str
    map: TensorMap | WindowMap
    symbols: tuple[Var, ...] = ()

    @property
    def buffer(self) -> str:
        """The program's buffer whose address is encoded."""
        return self.map.buffer

    def encode(self, address: int, sizes: dict[str, int]) -> bytes:
        """The driver's 128 bytes for a buffer at `address`."""
        return self.map.encode(address, sizes)

    def emulate(self, address: int, sizes: dict[str, int]) -> bytes:
        """The structure ``hopper::TensorMap`` of hopper_emulated.h."""
        one = self.map
        windows = (0, 0, 0, 0)
        if isinstance(one, WindowMap):
            windows = (one.walk.lower, one.walk.upper, one.walk.stride, one.pixels)
            one = one.tensor
        rank = len(one.shape)
        values = compile_sizes((*one.shape, *one.strides), self.symbols)(
            tuple(sizes[symbol.name] for symbol in self.symbols)
        )
        shape, strides = values[:rank], values[rank : 2 * rank - 1]
        in_bytes = [stride * one.dtype.bytes for stride in reversed(strides)]
        bits = (one.swizzle_bytes // CHUNK_BYTES).bit_length() - 1 if one.swizzle_bytes else 0
        packed = struct.pack(
            "<Q4Q5I5H3Bx3hH", address, *_padded(in_bytes, 4), *_padded(list(reversed(shape)), 5),
            *_padded(list(reversed(one.box)), 5), rank, one.dtype.bytes, bits, *windows,
        )  # fmt: skip
        return packed.ljust(128, b"\0")


def kernel_map(
    name: str, buffer: Buffer, box: tuple[int, ...], swizzle_bits: int, symbols: tuple[Var, ...]
) -> KernelMap:
    """The map of a global buffer; `box` is in the order of the buffer's axes."""
    strides = strides_of(buffer.shape, buffer.strides)
    swizzle_bytes = _swizzle_bytes(swizzle_bits)
    one = TensorMap(buffer.name, buffer.dtype, buffer.shape, strides, box, swizzle_bytes)
    return KernelMap(name, one, symbols)


def map_of_windows(
    name: str, windows: Windows, box: tuple[int, ...], swizzle_bits: int, symbols: tuple[Var, ...]
) -> KernelMap:
    """The map of an image; `box` is (windows, channels of one pixel)."""
    pixels, channels = box
    one = window_map(windows, pixels, channels, _swizzle_bytes(swizzle_bits))
    return KernelMap(name, one, symbols)


def _swizzle_bytes(bits: int) -> int:
    return CHUNK_BYTES << bits if bits else 0


def _padded(values: list[int], count: int) -> list[int]:
    return [*values, *([0] * (count - len(values)))]
