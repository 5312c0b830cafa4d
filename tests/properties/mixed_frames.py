"""Around a random program's tile: how blocks come to their tiles, and how its buffers lie."""

from __future__ import annotations

from mixed_tiles import TileWork
from program_text import indented

FRAMES = ("plain", "plain", "plain", "cluster", "persistent", "scheduler", "counter", "split")
WORKERS, SPLITS = 3, 2


class Frames(TileWork):
    """Draws what is around a tile's statements.

    Attributes:
        frame: one of `FRAMES`.
        is_dynamic: M and N are known only at the call.
    """

    frame: str
    is_dynamic: bool

    def framed(self, before: list[str], tile: list[str]) -> list[str]:
        """The kernel: allocations, then what is done for each tile (bx, by)."""
        columns, rows = "T.ceildiv(N, BN)", "T.ceildiv(M, BM)"
        if self.frame == "cluster":
            pairs = self.rng.choice(["2, 1", "1, 2", "2, 2"])
            first, second = pairs.split(", ")
            grid = (
                f"T.ceildiv({columns}, {first}) * {first}, T.ceildiv({rows}, {second}) * {second}"
            )
            head = f"with T.ClusterKernel({grid}, cluster_dims=({pairs}), threads=threads)"
            return [f"{head} as (bx, by):", *indented([*before, *tile])]
        if self.frame == "split":
            head = f"with T.Kernel({columns}, {rows}, {SPLITS}, threads=threads) as (bx, by, bz):"
            return [head, *indented([*before, *tile])]
        if self.frame == "plain":
            head = f"with T.Kernel({columns}, {rows}, threads=threads) as (bx, by):"
            return [head, *indented([*before, *tile])]
        if self.frame == "persistent":
            domain = f"[{rows}, {columns}], {WORKERS}, block, group_size={self.rng.choice([1, 2])}"
            loop = [f"for by, bx in T.Persistent({domain}):", *indented(tile)]
        elif self.frame == "scheduler":
            walk = f"swizzle_size={self.rng.choice([1, 2])}"
            loop = [
                f"tiles = T.PersistentTileScheduler({rows}, {columns}, {WORKERS}, {walk})",
                "tiles.init(block)",
                "while tiles.valid():",
                *indented(["by, bx = tiles.m_idx, tiles.n_idx", *tile, "tiles.next_tile()"]),
            ]
        else:
            take = "taken = T.atomic_add(count[0], 1, return_prev=True)"
            loop = [
                "taken = T.alloc_var('int32')",
                take,
                f"while taken < {columns} * {rows}:",
                *indented([f"bx, by = taken % {columns}, taken // {columns}", *tile, take]),
            ]
        head = f"with T.Kernel({WORKERS}, threads=threads) as block:"
        return [head, *indented([*before, *loop])]

    def layouts(self) -> list[str]:
        """Layouts that the author asks for."""
        if not self.chance(0.15):
            return []
        make = self.rng.choice(["T.make_swizzled_layout({})", "T.make_linear_layout({})"])
        named = self.rng.sample(["a", "b", "kept"], self.rng.randint(1, 3))
        return [f"T.annotate_layout({{{', '.join(f'{x}: {make.format(x)}' for x in named)}}})"]

    def viewed(self) -> list[str]:
        """Work on the kept tile by another shape."""
        rows = self.rng.choice(["BM * 2", "BM * BN", "BN"])
        size = f"BM * BN // ({rows})"
        if rows == "BM * 2" and self.odd_columns:
            rows, size = "BN", "BM"
        view, i, j = self.name("view"), self.name("i"), self.name("j")
        change = self.rng.choice(["-{x}", "T.min({x}, 1)", "{x}"])
        place = f"{view}[{i}, {j}]"
        return [
            f"{view} = T.view(kept, ({rows}, {size}))",
            f"for {i}, {j} in T.Parallel({rows}, {size}):",
            f"    {place} = {change.format(x=place)}",
        ]

    def apart(self) -> list[str]:
        """Work that some warps do while others do something else."""
        i, j = self.name("i"), self.name("j")
        group = self.rng.choice(["T.ws(0)", "T.warps(1, 2)", "T.warps(0, 1)"])
        return [
            f"with {group}:",
            f"    for {i}, {j} in T.Parallel(BM, BN):",
            f"        kept[{i}, {j}] = T.max(kept[{i}, {j}], {self.rng.randint(-2, 1)})",
        ]
