"""Buffers and regions: named storage, and rectangular pieces of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tilecore.errors import Loc
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Const, Expr


class Scope(enum.Enum):
    """Where a buffer lives and who sees it."""

    GLOBAL = "global"  # device memory: parameters and workspaces
    SHARED = "shared"  # one per block, seen by all its lanes
    FRAGMENT = "fragment"  # one per block, spread over its lanes' registers by a layout
    LOCAL = "local"  # one per lane (alloc_local, and alloc_var with shape ())

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Buffer:
    """Named storage of a rectangular array.

    Attributes:
        name: unique within the program; also the name in generated code.
        shape: extents; constants except in global buffers, where they may be dynamic.
        dtype: element type.
        scope: where it lives.
        strides: element strides of a global buffer; None means row-major and compact. Buffers
            on the chip have none: their layout is chosen by the compiler (`Kernel.layouts`).
        safe_value: what a read outside the shape gives in copies (T.annotate_safe_value).
    """

    name: str
    shape: tuple[Expr, ...]
    dtype: DType
    scope: Scope
    strides: tuple[Expr, ...] | None = None
    safe_value: float | int = 0
    loc: Loc | None = field(default=None, compare=False)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """Extents as integers, or None when one is dynamic."""
        if all(isinstance(extent, Const) for extent in self.shape):
            return tuple(int(extent.value) for extent in self.shape)  # type: ignore[attr-defined]
        return None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangular piece of a buffer, one entry per buffer axis.

    Axis k covers ``starts[k] <= i < starts[k] + extents[k]``; an extent of None means a single
    point, which drops the axis from the region's shape (``A[i, 0:64]`` has shape ``(64,)``).
    A region may reach over the buffer's edge: reads there give the buffer's safe value, writes
    are dropped (that is what makes ragged tiles correct). Starts may not be negative.
    """

    buffer: Buffer
    starts: tuple[Expr, ...]
    extents: tuple[Expr | None, ...]

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Extents of the axes that are not points."""
        return tuple(extent for extent in self.extents if extent is not None)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """`shape` as integers, or None when an extent is dynamic."""
        if all(isinstance(extent, Const) for extent in self.shape):
            return tuple(int(extent.value) for extent in self.shape)  # type: ignore[attr-defined]
        return None

    @property
    def axes(self) -> tuple[int, ...]:
        """The buffer axes that `shape` speaks of."""
        return tuple(k for k, extent in enumerate(self.extents) if extent is not None)

    @property
    def dtype(self) -> DType:
        """The buffer's element type."""
        return self.buffer.dtype

    def indices(self, coordinates: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Buffer indices of the element at `coordinates` (one per entry of `shape`)."""
        from tilecore.ir.expr import binary

        remaining = iter(coordinates)
        return tuple(
            start if extent is None else binary("add", start, next(remaining))
            for start, extent in zip(self.starts, self.extents, strict=True)
        )
