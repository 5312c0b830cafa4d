"""Tensor maps of images: the copy engine walks windows and brings one pixel of each.

A load gives the first window's first pixel (which may lie in the border), the distance from it to
the pixel that is read, and a channel. The engine goes on from window to window, row to row, image
to image, and fills zeros for pixels outside of the image.

Limits are those of ``cuTensorMapEncodeIm2col`` in the CUDA driver API's documentation, and of the
instruction's offsets (PTX ISA, "Im2col mode"), for images with two axes of pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Expr
from tilecore.ir.windows import Windows
from tilecore.passes.async_copies import strides_of
from tilecore_backend_cuda_hopper.tensor_map import TensorMap, driver_api, encoded, promotion_of

MAX_PIXELS = 1024
MAX_STRIDE = 8
MAX_OFFSET = 255
"""Pixels from a window's first to the one that is read."""
CORNERS = (-128, 127)
"""Of the box of first pixels, against the image's corners."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Where windows begin, as the encoder wants it, alike along height and width.

    Attributes:
        lower: the first window's first pixel.
        upper: the last pixel where a window may begin, from the image's last one.
        stride: from one window to the next.
    """

    lower: int
    upper: int
    stride: int


def walk_of(windows: Windows) -> Walk:
    """The walk over the windows of an image."""
    return Walk(-windows.pad, windows.pad - (windows.reach - 1), windows.stride)


def over_limit(windows: Windows) -> str:
    """What of the windows is more than the engine takes; empty when all is within its limits."""
    walk = walk_of(windows)
    if windows.stride > MAX_STRIDE:
        return f"a stride of {windows.stride} pixels, at most {MAX_STRIDE}"
    if windows.reach - 1 > MAX_OFFSET:
        return f"a window of {windows.reach} pixels, at most {MAX_OFFSET + 1}"
    for corner in (walk.lower, walk.upper):
        if not CORNERS[0] <= corner <= CORNERS[1]:
            return f"a corner of {corner} pixels, {CORNERS[0]} to {CORNERS[1]}"
    return ""


@dataclass(frozen=True, slots=True)
class WindowMap:
    """How tiles of windows of one image are copied.

    Attributes:
        tensor: the image, with a box of one pixel's channels.
        walk: of the windows.
        pixels: of one copy: so many windows.
    """

    tensor: TensorMap
    walk: Walk
    pixels: int

    @property
    def buffer(self) -> str:
        """The buffer's name."""
        return self.tensor.buffer

    @property
    def channels(self) -> int:
        """Of one pixel, in one copy."""
        return self.tensor.box[-1]

    def encode(self, address: int, sizes: dict[str, int]) -> bytes:
        """The 128 bytes for an image at `address`; zeros for one without windows.

        Raises:
            LaunchError: the address or a stride is misaligned, or an extent is over 2^32.
            ToolchainError: there is no driver to encode with.
        """
        facts = self.tensor.checked(address, sizes)
        if facts is None:
            return bytes(128)
        shape, strides = facts
        if min(shape[1:3]) - 1 + self.walk.upper < self.walk.lower:
            return bytes(128)  # no window fits
        api = driver_api()
        answer = api.cuTensorMapEncodeIm2col(
            self.tensor.driver_dtype(api),
            len(shape),
            address,
            [api.cuuint64_t(extent) for extent in reversed(shape)],
            [api.cuuint64_t(stride) for stride in reversed(strides)],
            [self.walk.lower] * 2,
            [self.walk.upper] * 2,
            self.channels,
            self.pixels,
            [api.cuuint32_t(step) for step in (1, self.walk.stride, self.walk.stride, 1)],
            api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            self.tensor.driver_swizzle(api),
            promotion_of(api, self.tensor.l2_bytes, (address, *strides)),
            api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        return encoded(answer, f"windows of {self.buffer}")


def window_map(windows: Windows, pixels: int, channels: int, swizzle_bytes: int) -> WindowMap:
    """The map for boxes of so many windows by so many channels of one pixel."""
    image = windows.image
    shape: tuple[Expr, ...] = image.shape
    dtype: DType = image.dtype
    strides = strides_of(shape, image.strides)
    tensor = TensorMap(image.name, dtype, shape, strides, (1, 1, 1, channels), swizzle_bytes)
    return WindowMap(tensor, walk_of(windows), pixels)
