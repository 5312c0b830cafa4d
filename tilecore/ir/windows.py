"""Windows of an image as the rows of a matrix: what a convolution multiplies by its weights.

The intrinsic ``tile.windows(image, dst, row, column)`` with hints dilation, kernel, pad and stride
fills a tile: rows are output pixels (n, y, x), columns are (window row, window column, channel).
Its meaning is the nest that `nest` gives; targets whose copy engine walks windows take it whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Region
from tilecore.ir.dtypes import DType, int64
from tilecore.ir.expr import (
    Expr,
    Load,
    Select,
    Var,
    all_of,
    as_dtype,
    binary,
    const,
    dtype_of_expr,
)
from tilecore.ir.stmts import Hints, Intrinsic, Parallel, Store

WINDOWS = "tile.windows"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an element of the matrix lies in the image.

    Attributes:
        n: number of the image.
        y, x: of the window's first pixel; negative in the border.
        dy, dx: of the element's pixel in the window, dilation counted.
        c: channel.
        column_fits: the column is one of a window's.
    """

    n: Expr
    y: Expr
    x: Expr
    dy: Expr
    dx: Expr
    c: Expr
    column_fits: Expr


@dataclass(frozen=True, slots=True)
class Windows:
    """How windows go over an image.

    Attributes:
        image: (batch, height, width, channels).
        kernel: height and width of a window.
        stride: from one window to the next.
        dilation: from one pixel of a window to the next.
        pad: border of zeros around the image.
    """

    image: Buffer
    kernel: int
    stride: int
    dilation: int
    pad: int

    @property
    def reach(self) -> int:
        """Pixels from a window's first to its last, both counted."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def outputs(self) -> tuple[Expr, Expr]:
        """Windows along height and width."""
        _, height, width, _ = self.image.shape
        return self._windows(height), self._windows(width)

    @property
    def columns(self) -> Expr:
        """Elements of one window."""
        channels = self.image.shape[3]
        return binary("mul", channels, const(self.kernel**2, dtype_of_expr(channels)))

    def _windows(self, extent: Expr) -> Expr:
        dtype = dtype_of_expr(extent)
        free = binary("add", extent, const(2 * self.pad - self.reach, dtype))
        steps = binary("floordiv", free, const(self.stride, dtype))
        return binary("add", steps, const(1, dtype))

    def place(self, row: Expr, column: Expr) -> Place:
        """Where element (row, column) of the matrix lies; all results are of one dtype."""
        wide = any(dtype_of_expr(value).bits == 64 for value in (row, column, *self.image.shape))
        dtype: DType = int64 if wide else dtype_of_expr(row)
        row, column = as_dtype(row, dtype), as_dtype(column, dtype)
        height, width = (as_dtype(extent, dtype) for extent in self.outputs)
        channels = as_dtype(self.image.shape[3], dtype)

        def of(op: str, a: Expr, b: Expr | int) -> Expr:
            return binary(op, a, const(b, dtype) if isinstance(b, int) else b)

        pixels = of("mul", height, width)
        y = of("floordiv", of("floormod", row, pixels), width)
        pixel = of("floordiv", column, channels)
        return Place(
            n=of("floordiv", row, pixels),
            y=of("sub", of("mul", y, self.stride), self.pad),
            x=of("sub", of("mul", of("floormod", row, width), self.stride), self.pad),
            dy=of("mul", of("floordiv", column, of("mul", channels, self.kernel)), self.dilation),
            dx=of("mul", of("floormod", pixel, self.kernel), self.dilation),
            c=of("floormod", column, channels),
            column_fits=of("lt", column, as_dtype(self.columns, dtype)),
        )

    def value(self, row: Expr, column: Expr) -> Expr:
        """The element, 0 outside of the image."""
        at = self.place(row, column)
        dtype = dtype_of_expr(at.n)
        y, x = binary("add", at.y, at.dy), binary("add", at.x, at.dx)
        batch, height, width, _ = (as_dtype(extent, dtype) for extent in self.image.shape)
        zero = const(0, dtype)
        inside = all_of(
            (
                binary("ge", y, zero), binary("lt", y, height), binary("ge", x, zero),
                binary("lt", x, width), binary("lt", at.n, batch), at.column_fits,
            )
        )  # fmt: skip
        loaded = Load(self.image, (at.n, y, x, at.c))
        return Select(inside, loaded, const(0, self.image.dtype), self.image.dtype)

    def fill(self, dst: Region, row: Expr, column: Expr) -> Intrinsic:
        """The statement that fills `dst`, whose first element is (row, column)."""
        starts = tuple(const(0, dtype_of_expr(extent)) for extent in self.image.shape)
        image = Region(self.image, starts, self.image.shape)
        hints = (
            ("dilation", self.dilation), ("kernel", self.kernel), ("pad", self.pad),
            ("stride", self.stride),
        )  # fmt: skip
        return Intrinsic(WINDOWS, (image, dst, row, column), hints)


def windows_of(stmt: Intrinsic) -> tuple[Windows, Region, Expr, Expr]:
    """The windows, the tile, its first row and column of an intrinsic that `Windows.fill` made."""
    image, dst, row, column = stmt.args[:4]
    assert isinstance(image, Region) and isinstance(dst, Region)
    assert isinstance(row, Expr) and isinstance(column, Expr)
    return windows_by(image.buffer, stmt.hints), dst, row, column


def windows_by(image: Buffer, hints: Hints) -> Windows:
    """The windows of an image that hints tell."""
    facts = {name: int(value) for name, value in hints if isinstance(value, int)}
    return Windows(image, *(facts[name] for name in ("kernel", "stride", "dilation", "pad")))


def nest(stmt: Intrinsic, variables: tuple[Var, Var]) -> Parallel:
    """What a ``tile.windows`` means, with these variables for rows and columns."""
    windows, dst, row, column = windows_of(stmt)
    i, j = variables
    value = windows.value(binary("add", row, i), binary("add", column, j))
    body = (Store(dst.buffer, dst.indices(variables), as_dtype(value, dst.dtype), stmt.loc),)
    return Parallel(variables, dst.shape, body, (), stmt.loc)
