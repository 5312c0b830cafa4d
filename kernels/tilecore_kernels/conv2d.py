"""Convolution of images as a matrix product: ``Y = activation(windows(X) @ W^T + bias)``.

Images are stored pixel by pixel, (batch, height, width, channels). Rows of the product are output
pixels, its sums run over a window's pixels and their channels, which are never written out: a tile
of windows is brought to the block as it is needed.
"""

# Annotations are values of the tile language here, so they are not postponed.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.target import Target
from tilecore_kernels.activations import ACTIVATIONS, add_bias_and_activate
from tilecore_kernels.family import Arrays, Family
from tilecore_kernels.gemm_configs import GemmConfig, gemm_configs
from tilecore_kernels.tiles import dtype_bytes

LINE_BYTES = 128
"""The most that a copy engine's box has in a row."""


@dataclass(frozen=True, slots=True)
class Conv2dProblem:
    """One convolution; windows are square, and alike along height and width.

    Attributes:
        batch: images.
        height: of an image, in pixels.
        width: of an image, in pixels.
        channels: of a pixel.
        filters: channels of an output pixel.
        kernel: height and width of a window.
        stride: from one window to the next.
        dilation: from one pixel of a window to the next.
        pad: border of zeros around an image.
        dtype: element type of images, weights and bias.
        out_dtype: of the result; empty means as the images.
        has_bias: a vector of (filters,) is added.
        activation: name in `ACTIVATIONS`, applied last.
    """

    batch: int
    height: int
    width: int
    channels: int
    filters: int
    kernel: int = 3
    stride: int = 1
    dilation: int = 1
    pad: int = 1
    dtype: str = "float16"
    out_dtype: str = ""
    has_bias: bool = False
    activation: str = "identity"

    @property
    def out_shape(self) -> tuple[int, int]:
        """Height and width of the result; 0 where no window fits."""
        reach = self.dilation * (self.kernel - 1) + 1
        return (
            max(0, (self.height + 2 * self.pad - reach) // self.stride + 1),
            max(0, (self.width + 2 * self.pad - reach) // self.stride + 1),
        )

    @property
    def product(self) -> tuple[int, int, int]:
        """Rows, columns and length of the sums of the matrix product."""
        out_h, out_w = self.out_shape
        return self.batch * out_h * out_w, self.filters, self.kernel**2 * self.channels

    @property
    def result_dtype(self) -> str:
        """Element type of the result."""
        return self.out_dtype or self.dtype


def conv2d(problem: Conv2dProblem, config: GemmConfig) -> Any:
    """Tile program. Arguments: X (batch, height, width, channels), W (filters, kernel * kernel *
    channels), bias (filters,) if there is one, Y (batch * out height * out width, filters)."""
    rows, filters, length = problem.product
    dtype, out_dtype = problem.dtype, problem.result_dtype
    tile_m, tile_n, tile_k = config.block_m, config.block_n, config.block_k
    windows = (problem.kernel, problem.stride, problem.dilation, problem.pad)
    X_type = T.Tensor((problem.batch, problem.height, problem.width, problem.channels), dtype)
    W_type, Y_type = T.Tensor((filters, length), dtype), T.Tensor((rows, filters), out_dtype)
    Bias_type = T.Tensor((filters,), dtype) if problem.has_bias else None

    @T.prim_func
    def conv2d(X: X_type, W: W_type, Bias: Bias_type, Y: Y_type):
        with T.Kernel(
            T.ceildiv(filters, tile_n), T.ceildiv(rows, tile_m), threads=config.threads
        ) as (bx, by):
            x = T.alloc_shared((tile_m, tile_k), dtype)
            w = T.alloc_shared((tile_n, tile_k), dtype)
            y = T.alloc_fragment((tile_m, tile_n), "float32")
            T.use_swizzle(max(1, config.panel), enable=config.panel > 0)
            T.clear(y)
            for step in T.Pipelined(T.ceildiv(length, tile_k), num_stages=config.num_stages):
                T.im2col(X, x, by, step, *windows)
                T.copy(W[bx * tile_n, step * tile_k], w)
                T.gemm(x, w, y, transpose_B=True)
            add_bias_and_activate(y, Bias, bx * tile_n, problem.activation)
            T.copy(y, Y[by * tile_m, bx * tile_n])

    return conv2d


def reference(
    problem: Conv2dProblem, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None
) -> Arrays:
    """The convolution in float64."""
    rows, filters, _ = problem.product
    out_h, out_w = problem.out_shape
    border = (problem.pad, problem.pad)
    padded = np.pad(x.astype(np.float64), ((0, 0), border, border, (0, 0)))
    weights = w.astype(np.float64).reshape(filters, problem.kernel, problem.kernel, -1)
    total = np.zeros((problem.batch, out_h, out_w, filters))
    step, apart = problem.stride, problem.dilation
    for i in range(problem.kernel):
        for j in range(problem.kernel):
            pixels = padded[:, i * apart :, j * apart :][:, ::step, ::step][:, :out_h, :out_w]
            total += pixels @ weights[:, i, j].T
    if bias is not None:
        total = total + bias.astype(np.float64)
    return (ACTIVATIONS[problem.activation].reference(total.reshape(rows, filters)),)


def inputs(problem: Conv2dProblem, rng: np.random.Generator) -> Arrays:
    """Normally distributed values."""
    _, filters, length = problem.product
    image = (problem.batch, problem.height, problem.width, problem.channels)
    shapes = (image, (filters, length), (filters,))[: 3 if problem.has_bias else 2]
    dtype = numpy_dtype(dtype_of(problem.dtype))
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def configs(problem: Conv2dProblem, target: Target) -> Sequence[GemmConfig]:
    """Legal tiles, the first choice in front: as of a matrix product.

    Where a copy engine brings windows, rows of its boxes may not reach into the next pixel.
    """
    width = dtype_bytes(problem.dtype)
    found = gemm_configs(*problem.product, width, 4, target)
    if not target.has("window_copies"):
        return found
    return sorted(found, key=lambda c: problem.channels % min(c.block_k, LINE_BYTES // width) != 0)


def _bytes_moved(problem: Conv2dProblem) -> float:
    rows, filters, length = problem.product
    pixels = problem.batch * problem.height * problem.width * problem.channels
    read = (pixels + filters * length) * dtype_bytes(problem.dtype)
    return float(read + rows * filters * dtype_bytes(problem.result_dtype))


def _flops(problem: Conv2dProblem) -> float:
    rows, filters, length = problem.product
    return 2.0 * rows * filters * length


CONV2D = Family(
    name="conv2d",
    program=conv2d,
    inputs=inputs,
    outputs=lambda p: ((p.product[:2], p.result_dtype),),
    reference=reference,
    configs=configs,
    problems=(
        Conv2dProblem(32, 56, 56, 256, 256),
        Conv2dProblem(32, 56, 56, 64, 64),
        Conv2dProblem(32, 28, 28, 512, 512),
        Conv2dProblem(32, 56, 56, 256, 512, stride=2),
        Conv2dProblem(32, 28, 28, 512, 1024, kernel=1, pad=0),
        Conv2dProblem(32, 14, 14, 1024, 1024),
        Conv2dProblem(1, 28, 28, 64, 64, dtype="float32", has_bias=True, activation="relu"),
    ),
    flops=_flops,
    bytes_moved=_bytes_moved,
)
