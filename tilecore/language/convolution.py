"""T.im2col: the operand tile of a convolution that is computed as a matrix product."""

from __future__ import annotations

import dataclasses
from typing import Any

from tilecore.ir.windows import Windows
from tilecore.language import operators as ops
from tilecore.language.locate import caller_loc, fail
from tilecore.language.regions import region_of
from tilecore.language.tile_ops import tile_builder
from tilecore.language.values import BufferValue, Scalar


def im2col(
    img: Any,
    col: Any,
    nhw_step: Any,
    c_step: Any,
    kernel: int,
    stride: int,
    dilation: int,
    pad: int,
    eviction_policy: str | None = None,
    annotations: Any = None,
) -> None:
    """Gather a tile of windows: rows are output pixels, columns are (window, channel).

    Args:
        img: global image, (batch, height, width, channels).
        col: tile (rows, columns) that is filled; outside the image it gets 0.
        nhw_step: number of the tile along the output pixels.
        c_step: number of the tile along window and channels.
        kernel: height and width of the window.
        stride: step of the window.
        dilation: step inside the window.
        pad: border of zeros around the image.
        eviction_policy: advice to the caches, not needed here.
        annotations: further advice, not needed here.
    """
    del eviction_policy, annotations
    builder = tile_builder("T.im2col")
    if not isinstance(img, BufferValue) or img.ndim != 4:
        fail("T.im2col takes an image", expected="(n, h, w, c)", got=ops.describe(img))
    target = region_of(col, "result of T.im2col")
    if len(target.axes) != 2:
        fail("result of T.im2col is no matrix", expected="2 axes", got=len(target.axes))
    rows, columns = target.shape
    row, column = (
        ops.as_index(Scalar(ops.as_index(step)) * Scalar(extent))
        for step, extent in ((nhw_step, rows), (c_step, columns))
    )
    windows = Windows(
        img.buffer,
        ops.static_int(kernel, "window of T.im2col"),
        ops.static_int(stride, "stride of T.im2col"),
        ops.static_int(dilation, "dilation of T.im2col"),
        ops.static_int(pad, "border of T.im2col", at_least=0),
    )
    builder.emit(dataclasses.replace(windows.fill(target, row, column), loc=caller_loc()))


c2d_im2col = im2col
