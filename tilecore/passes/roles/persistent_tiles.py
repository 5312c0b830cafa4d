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

from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Call, Const, Expr, Load, Var, binary, const, free_vars
from tilecore.ir.program import BlockOrder, Kernel
from tilecore.ir.stmts import Allocate, Block, For, Gemm, If, Let, LoopKind, Stmt, Store
from tilecore.passes.roles.consumer_schedule import plain_steps
from tilecore.passes.roles.deferred_store import DeferredStore
from tilecore.passes.roles.producer_schedule import load_group
from tilecore.passes.roles.ring import Group, rebuffered
from tilecore.passes.roles.schedule_pieces import (
    RunsBeside,
    asynchronous,
    renamed,
    slots_of,
    wait_for,
)
from tilecore.passes.roles.storer_schedule import Leaving
from tilecore.passes.scopes import Names, ceil_div, with_hint

DEFAULT_PANEL = 8
"""Rows of a panel where the author asks for no order (measured, docs/performance-log.md)."""

LONG_AXIS = 16
"""Rows of tiles from which on one row of padding for whole clusters does not matter."""

LAUNCHED = Call("launch.blocks", (), int32)
BLOCKS = binary("max", const(1), LAUNCHED)
"""How many blocks were launched; not less than the one that asks."""


def may_persist(kernel: Kernel, loop: For) -> bool:
    """True when the tiles of a kernel are places of a plain grid, with a plain loop each."""
    if len(kernel.grid) > 3 or kernel.cluster != (1, 1, 1):
        return False
    simple = loop.start == const(0, loop.var.dtype) and loop.step == const(1, loop.var.dtype)
    return simple and loop.var.dtype == int32


def makes_equal_steps(kernel: Kernel, loop: For, lets: tuple[Let, ...]) -> bool:
    """True when all tiles make equally many steps."""
    changing = set(kernel.grid_vars) | {let.var for let in lets}
    return not free_vars(loop.extent) & changing


def step_counts(names: Names) -> tuple[Buffer, Buffer]:
    """How many steps the producer, and a consumer, made in the tiles so far."""
    loaded, used = (
        names.buffer(f"steps_{side}", (), int32, Scope.LOCAL) for side in ("loaded", "used")
    )
    return loaded, used


def at_zero(done: Buffer | None) -> Block:
    """The declaration of a count, if there is one."""
    return () if done is None else (Allocate(done, const(0)),)


def step_base(loop: For, round_: Var, done: Buffer | None) -> Expr:
    """The number of a tile's first step: all tiles so far made as many, or `done` counts them."""
    if done is None:
        return binary("mul", round_, loop.extent)
    return binary("max", const(0), Load(done, ()))


def count_steps(loop: For, base: Var, done: Buffer | None) -> Block:
    """Add the tile's steps to those `done`."""
    if done is None:
        return ()
    steps = binary("max", const(0), loop.extent)
    return (Store(done, (), binary("add", base, steps), loop.loc),)


def cluster_axis(kernel: Kernel) -> int | None:
    """The axis along which neighbouring blocks may form a cluster: the second, if it is long."""
    return 1 if len(kernel.grid) in (2, 3) and may_pair(kernel.grid[1]) else None


def may_pair(rows: Expr) -> bool:
    """True when padding an axis to whole clusters costs nothing or little."""
    if not isinstance(rows, Const) or int(rows.value) < 2:
        return False
    return int(rows.value) % 2 == 0 or int(rows.value) >= LONG_AXIS


def place_of(first: Var, cluster: int) -> tuple[Expr, Expr]:
    """(number of the block's cluster, clusters that were launched)."""
    if cluster == 1:
        return first, BLOCKS
    clusters = binary("max", const(1), binary("floordiv", LAUNCHED, const(cluster)))
    return binary("floordiv", first, const(cluster)), clusters


def _tiles(kernel: Kernel, cluster: int) -> tuple[Expr, ...]:
    """Extents of the grid of clusters."""
    if cluster == 1:
        return kernel.grid
    length, rows, *matrices = kernel.grid
    return (length, ceil_div(rows, cluster), *matrices)


def persistent_kernel(kernel: Kernel, names: Names, cluster: int) -> tuple[Kernel, Var]:
    """The kernel with a grid of one axis, and the variable of that axis."""
    tiles: Expr = const(cluster)
    for extent in _tiles(kernel, cluster):
        tiles = binary("mul", tiles, extent)
    first = Var(names.fresh("first_tile"))
    changed = dataclasses.replace(
        kernel,
        grid_vars=(first,),
        grid=(tiles,),
        block_order=None,
        cluster=(cluster, 1, 1),
        hints=with_hint(kernel.hints, "persistent", True),
    )
    return changed, first


def tile_count(kernel: Kernel, cluster: int) -> Expr:
    """Tiles of a kernel, or clusters of them."""
    tiles: Expr = const(1)
    for extent in _tiles(kernel, cluster):
        tiles = binary("mul", tiles, extent)
    return tiles


def tile_loop(
    kernel: Kernel, first: Var, round_: Var, names: Names, body: Block, cluster: int
) -> For:
    """`body`, which is written for the grid of `kernel`, for every tile of a block.

    The blocks of a cluster take neighbours along the second axis.
    """
    own, blocks = place_of(first, cluster)
    tile = Var(names.fresh("tile"))
    left = binary("sub", tile_count(kernel, cluster), own)
    count = binary("floordiv", binary("add", left, binary("sub", blocks, const(1))), blocks)
    value = binary("add", own, binary("mul", round_, blocks))
    whole = (Let(tile, value), *tile_place(kernel, first, tile, names, cluster), *body)
    return For(round_, const(0), count, const(1), whole, loc=kernel.loc)


def tile_place(kernel: Kernel, first: Var, tile: Var, names: Names, cluster: int) -> Block:
    """The grid's variables from the number of a tile."""
    grid = _tiles(kernel, cluster)
    at, before = tile, ()
    if len(grid) == 3:  # one matrix after the other
        at = Var(names.fresh("tile_of_matrix"))
        one = binary("mul", grid[0], grid[1])
        last = binary("sub", grid[2], const(1))
        number = binary("max", const(0), binary("min", binary("floordiv", tile, one), last))
        before = (Let(at, binary("floormod", tile, one)), Let(kernel.grid_vars[2], number))
    if cluster == 1:
        return (*before, *_places(kernel, grid[:2], kernel.grid_vars[:2], at, names))
    pair = Var(names.fresh("cluster_row"))
    variables = (kernel.grid_vars[0], pair)
    row = binary("add", binary("mul", pair, const(cluster)), rank_of(first, cluster))
    place = _places(kernel, grid[:2], variables, at, names, cluster)
    return (*before, *place, Let(kernel.grid_vars[1], row))


def rank_of(first: Var, cluster: int) -> Expr:
    """The block's number in its cluster."""
    return binary("floormod", first, const(cluster))


def _places(
    kernel: Kernel,
    grid: tuple[Expr, ...],
    variables: tuple[Var, ...],
    tile: Var,
    names: Names,
    cluster: int = 1,
) -> Block:
    """The grid's variables from the number of a tile."""
    if len(grid) == 1:
        return (Let(variables[0], tile),)
    order = kernel.block_order or BlockOrder(DEFAULT_PANEL * cluster)
    along, across = (0, 1) if order.order == "row" else (1, 0)
    length, width = grid[along], grid[across]
    panel_size = max(1, order.panel // cluster) if across == 1 else order.panel
    size = const(panel_size)
    panel_tiles = binary("mul", length, size)
    panel = Var(names.fresh("panel"))
    inside = Var(names.fresh("in_panel"))
    begin = binary("mul", panel, size)
    rows: Expr = binary("min", size, binary("sub", width, begin))
    at = binary("add", begin, binary("floormod", inside, rows))
    whole = isinstance(width, Const) and int(width.value) % panel_size == 0
    if whole:
        at = binary("add", begin, binary("floormod", inside, size))
        rows = size
    if not whole or not isinstance(length, Const):
        # In words that range analysis follows: it is inside the grid anyway.
        at = binary("max", const(0), binary("min", at, binary("sub", width, const(1))))
    along_at = binary("min", binary("floordiv", inside, rows), binary("sub", length, const(1)))
    return (
        Let(panel, binary("floordiv", tile, panel_tiles)),
        Let(inside, binary("floormod", tile, panel_tiles)),
        Let(variables[across], at),
        Let(variables[along], binary("max", const(0), along_at)),
    )


def chained_tile(
    loop: For,
    group: Group,
    round_: Var,
    names: Names,
    late: DeferredStore | None = None,
    done: Buffer | None = None,
) -> tuple[Stmt, ...]:
    """The consumers' loop of one gemm, counting steps over all rounds; nothing is left running.

    Parts of the store `late` of the round before go under the first steps. `done` counts steps
    where tiles make unequally many.
    """
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
    first, loops = 0, []
    if late is not None:
        first = late.rounds
        held = If(binary("gt", round_, const(0)), tuple(late.part(loop.var)))
        begin = For(
            loop.var, const(0), const(first), const(1), (*body, held),
            LoopKind.UNROLL, None, (), loop.loc,
        )  # fmt: skip
        loops += renamed((begin,), names)
    left = binary("sub", loop.extent, const(first))
    new_loop = For(
        loop.var, const(first), left, const(1), tuple(body),
        LoopKind.SERIAL, None, loop.hints, loop.loc,
    )  # fmt: skip
    start = Let(base, step_base(loop, round_, done))
    return (start, *loops, new_loop, *after, *count_steps(loop, base, done))


def plain_tile(
    loop: For,
    groups: list[Group],
    runs_beside: RunsBeside,
    round_: Var,
    names: Names,
    done: Buffer | None = None,
    sent: list[Leaving] | None = None,
) -> tuple[Stmt, ...]:
    """The consumers' plain loop, counting steps over all rounds; a storer makes the additions that
    are `sent`."""
    base = Var(names.fresh("step_base"))
    body = plain_steps(loop, groups, runs_beside, binary("add", base, loop.var), sent)
    new_loop = dataclasses.replace(loop, body=tuple(body), kind=LoopKind.SERIAL, pipeline=None)
    start = Let(base, step_base(loop, round_, done))
    return (start, new_loop, *count_steps(loop, base, done))


def loading_tile(
    loop: For, groups: list[Group], round_: Var, names: Names, done: Buffer | None = None
) -> tuple[Stmt, ...]:
    """The producer's loop of one tile, counting steps over all rounds."""
    base = Var(names.fresh("step_base"))
    own = Var(names.fresh(f"{loop.var.name}_ahead"))
    step = binary("add", base, own)
    loads = tuple(s for group in groups for s in load_group(loop, group, own, step))
    new_loop = For(own, const(0), loop.extent, const(1), loads, loc=loop.loc)
    start = Let(base, step_base(loop, round_, done))
    return (start, new_loop, *count_steps(loop, base, done))
