"""Programs and kernels: what is compiled, hashed for the cache, and launched."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tilecore.errors import Loc
from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Expr, Var
from tilecore.ir.layout import FragmentLayout, Layout
from tilecore.ir.stmts import Block, Hints


class Level(enum.Enum):
    """How far down a program is. The verifier knows what is legal at each."""

    TILE = "tile"
    SCHEDULED = "scheduled"
    LANE = "lane"

    def __str__(self) -> str:
        return self.value


OVERLAPPED = "overlapped"
"""Hint of kernels that start before the one in front of them has ended: what other kernels write,
parameters too, changes while they are there."""


@dataclass(frozen=True, slots=True)
class BlockOrder:
    """In which order blocks walk the grid (T.use_swizzle).

    Panels of `panel` rows (``row``) or columns (``column``) of blocks are walked one after the
    other, so that neighbouring blocks share operands in the second-level cache.
    """

    panel: int
    order: str = "row"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch: a grid of blocks, each running `body`.

    Attributes:
        name: identifier in generated code.
        grid_vars: block index along each axis (1 to 3), first axis fastest.
        grid: extents; expressions over constants and the program's dynamic sizes.
        threads: threads of one block (the product if the author gave several).
        body: statements of one block.
        layouts: on-chip buffer name -> layout; filled by layout inference, and by the author's
            T.annotate_layout before it. Sorted by name.
        block_order: T.use_swizzle, or None.
        cluster: blocks of one cluster along each grid axis; (1, 1, 1) is none.
        hints: advice such as min_blocks_per_sm.
    """

    name: str
    grid_vars: tuple[Var, ...]
    grid: tuple[Expr, ...]
    threads: int
    body: Block
    layouts: tuple[tuple[str, Layout | FragmentLayout], ...] = ()
    block_order: BlockOrder | None = None
    cluster: tuple[int, int, int] = (1, 1, 1)
    hints: Hints = ()
    loc: Loc | None = field(default=None, compare=False)

    def layout_of(self, buffer: Buffer) -> Layout | FragmentLayout | None:
        """The layout chosen for an on-chip buffer, or None when there is none yet."""
        return dict(self.layouts).get(buffer.name)


Param = Buffer | Var
"""A global buffer, or a scalar."""


@dataclass(frozen=True, slots=True)
class Program:
    """What T.prim_func makes: parameters, and kernels that run one after the other.

    Attributes:
        name: the function's name.
        params: in call order; dynamic sizes are not parameters, they are read off the shapes.
        symbols: dynamic sizes that shapes, strides and grids use, sorted by name.
        workspaces: global buffers that live only during the call (T.alloc_global).
        kernels: launches, in order; a later one sees what an earlier one wrote.
        outputs: indices of `params` that the caller does not pass: allocated and returned.
        level: how far down the program is.
    """

    name: str
    params: tuple[Param, ...]
    kernels: tuple[Kernel, ...]
    symbols: tuple[Var, ...] = ()
    workspaces: tuple[Buffer, ...] = ()
    outputs: tuple[int, ...] = ()
    level: Level = Level.TILE
    loc: Loc | None = field(default=None, compare=False)
