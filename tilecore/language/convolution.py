"""T.im2col: the operand tile of a convolution that is computed as a matrix product."""

from __future__ import annotations

from typing import Any

from tilecore.ir.buffers import Buffer
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Load, Var
from tilecore.ir.stmts import Parallel
from tilecore.language import operators as ops
from tilecore.language.locate import caller_loc, fail
from tilecore.language.regions import region_of
from tilecore.language.tile_ops import tile_builder
from tilecore.language.values import BufferValue, Scalar, extent_value


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
    i, j = (Var(builder.unique(name), int32) for name in "ij")
    frame = builder.push("parallel", (i.name, j.name))
    row = Scalar(ops.as_index(nhw_step)) * Scalar(rows) + Scalar(i)
    column = Scalar(ops.as_index(c_step)) * Scalar(columns) + Scalar(j)
    value = _pixel(img.buffer, row, column, (kernel, stride, dilation, pad))
    builder.store(target.buffer, target.indices((i, j)), value)
    body = builder.pop(frame)
    builder.emit(Parallel((i, j), (rows, columns), body, (), caller_loc()))


def _pixel(img: Buffer, row: Any, column: Any, window: tuple[int, int, int, int]) -> Scalar:
    """``img`` at the window position `column` of output pixel `row`, or 0."""
    kernel, stride, dilation, pad = window
    batch, height, width, channels = (extent_value(extent) for extent in img.shape)
    reach = dilation * (kernel - 1) + 1
    out_h = (height + 2 * pad - reach) // stride + 1
    out_w = (width + 2 * pad - reach) // stride + 1
    n = row // (out_h * out_w)
    y = row % (out_h * out_w) // out_w * stride + column // (kernel * channels) * dilation - pad
    x = row % out_w * stride + column // channels % kernel * dilation - pad
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    inside = inside & (n < batch) & (column < kernel * kernel * channels)
    indices = tuple(ops.as_index(index) for index in (n, y, x, column % channels))
    return Scalar(ops.select(inside, Scalar(Load(img, indices)), 0))


c2d_im2col = im2col
