"""Blocks that stay and take one tile after the other.

    grid (bx, by); body
      ->  grid (first), as many blocks as the device runs at once (the launcher's business)
          for round in range(tiles of this block):
            tile = first + round * blocks;  bx, by = tile's place;  body

Tiles are walked in panels of a few rows, so that those in flight share operands in the second-level
cache. While consumer warps store one tile, producer warps already fill slots for the next one.
"""

from __future__ import annotations

import dataclasses

from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Call, Const, Expr, Var, binary, const, free_vars
from tilecore.ir.program import BlockOrder, Kernel
from tilecore.ir.stmts import Block, For, Gemm, If, Let, LoopKind, Stmt
from tilecore.passes.consumer_schedule import asynchronous, slots_of, wait_for
from tilecore.passes.producer_schedule import load_group
from tilecore.passes.ring import Group, rebuffered
from tilecore.passes.scopes import Names, with_hint

DEFAULT_PANEL = 8
"""Rows of a panel where the author asks for no order (measured, docs/performance-log.md)."""

BLOCKS = binary("max", const(1), Call("launch.blocks", (), int32))
"""How many blocks were launched; not less than the one that asks."""


def may_persist(kernel: Kernel, loop: For, lets: tuple[Let, ...]) -> bool:
    """True when all tiles of a kernel make equally many steps, on a plain grid."""
    if len(kernel.grid) > 2 or kernel.cluster != (1, 1, 1):
        return False
    changing = set(kernel.grid_vars) | {let.var for let in lets}
    simple = loop.start == const(0, loop.var.dtype) and loop.step == const(1, loop.var.dtype)
    return simple and loop.var.dtype == int32 and not free_vars(loop.extent) & changing


def persistent_kernel(kernel: Kernel, names: Names) -> tuple[Kernel, Var]:
    """The kernel with a grid of one axis, and the variable of that axis."""
    tiles: Expr = const(1)
    for extent in kernel.grid:
        tiles = binary("mul", tiles, extent)
    first = Var(names.fresh("first_tile"))
    changed = dataclasses.replace(
        kernel,
        grid_vars=(first,),
        grid=(tiles,),
        block_order=None,
        hints=with_hint(kernel.hints, "persistent", True),
    )
    return changed, first


def tile_loop(kernel: Kernel, first: Var, round_: Var, names: Names, body: Block) -> For:
    """`body`, which is written for the grid of `kernel`, for every tile of a block."""
    tiles: Expr = const(1)
    for extent in kernel.grid:
        tiles = binary("mul", tiles, extent)
    tile = Var(names.fresh("tile"))
    left = binary("add", binary("sub", tiles, first), binary("sub", BLOCKS, const(1)))
    count = binary("floordiv", left, BLOCKS)
    value = binary("add", first, binary("mul", round_, BLOCKS))
    place = _places(kernel, tile, names)
    whole = (Let(tile, value), *place, *body)
    return For(round_, const(0), count, const(1), whole, loc=kernel.loc)


def _places(kernel: Kernel, tile: Var, names: Names) -> Block:
    """The grid's variables from the number of a tile."""
    if len(kernel.grid) == 1:
        return (Let(kernel.grid_vars[0], tile),)
    order = kernel.block_order or BlockOrder(DEFAULT_PANEL)
    along, across = (0, 1) if order.order == "row" else (1, 0)
    length, width = kernel.grid[along], kernel.grid[across]
    size = const(order.panel)
    panel_tiles = binary("mul", length, size)
    panel = Var(names.fresh("panel"))
    inside = Var(names.fresh("in_panel"))
    begin = binary("mul", panel, size)
    rows: Expr = binary("min", size, binary("sub", width, begin))
    at = binary("add", begin, binary("floormod", inside, rows))
    if isinstance(width, Const) and int(width.value) % order.panel == 0:
        at = binary("add", begin, binary("floormod", inside, size))
        rows = size
    else:  # in words that range analysis follows: it is inside the grid anyway
        at = binary("max", const(0), binary("min", at, binary("sub", width, const(1))))
    along_at = binary("min", binary("floordiv", inside, rows), binary("sub", length, const(1)))
    return (
        Let(panel, binary("floordiv", tile, panel_tiles)),
        Let(inside, binary("floormod", tile, panel_tiles)),
        Let(kernel.grid_vars[across], at),
        Let(kernel.grid_vars[along], binary("max", const(0), along_at)),
    )


def chained_tile(loop: For, group: Group, round_: Var, names: Names) -> tuple[Stmt, ...]:
    """The consumers' loop of one gemm, counting steps over all rounds; nothing is left running."""
    ring = group.ring
    base = Var(names.fresh("step_base"))
    step = binary("add", base, loop.var)
    body: list[Stmt] = []
    after: list[Stmt] = []
    slots = slots_of([group], step)
    for stmt in loop.body:
        if any(stmt is copy for copy in group.copies):
            continue
        new = rebuffered(stmt, slots)
        if not isinstance(new, Gemm):
            body.append(new)
            continue
        body += [ring.wait_full(step), asynchronous(new), wait_for(1, new)]
        body.append(If(binary("gt", loop.var, const(0)), (ring.release(step, -1),)))
        after.append(wait_for(0, new))
    last = binary("add", base, binary("sub", loop.extent, const(1)))
    after.append(If(binary("gt", loop.extent, const(0)), (ring.release(last, 0),)))
    new_loop = For(
        loop.var, const(0), loop.extent, const(1), tuple(body),
        LoopKind.SERIAL, None, loop.hints, loop.loc,
    )  # fmt: skip
    return (Let(base, binary("mul", round_, loop.extent)), new_loop, *after)


def loading_tile(loop: For, group: Group, round_: Var, names: Names) -> tuple[Stmt, ...]:
    """The producer's loop of one tile, counting steps over all rounds."""
    base = Var(names.fresh("step_base"))
    own = Var(names.fresh(f"{loop.var.name}_ahead"))
    loads = tuple(load_group(loop, group, own, binary("add", base, own)))
    new_loop = For(own, const(0), loop.extent, const(1), loads, loc=loop.loc)
    return (Let(base, binary("mul", round_, loop.extent)), new_loop)
