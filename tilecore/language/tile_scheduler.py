"""T.PersistentTileScheduler: which tile a resident block works on next.

The tiles of a grid are put in one order, in panels along one axis so that neighbours share
operands, and dealt out: worker ``w`` takes numbers ``w, w + num_workers, ...``::

    tiles = T.PersistentTileScheduler(m_tiles, n_tiles, num_workers, swizzle_size=8)
    tiles.init(block)
    while tiles.valid():
        ... tile (tiles.m_idx, tiles.n_idx)
        tiles.next_tile()

It is plain Python that runs while the program is traced; its state is four variables.
"""

from __future__ import annotations

from typing import Any

from tilecore.language.allocate import alloc_var
from tilecore.language.builder import current
from tilecore.language.locate import fail
from tilecore.language.math_ops import ceildiv, maximum, minimum
from tilecore.language.operators import static_int
from tilecore.language.values import Cell, Scalar

_STATE = ("m_idx", "n_idx", "linear_idx", "current_iter")


class PersistentTileScheduler:
    """The tiles of an ``(num_m_tiles, num_n_tiles)`` grid, dealt out to resident blocks.

    Args:
        num_m_tiles: tiles along M, known or dynamic.
        num_n_tiles: tiles along N.
        num_workers: blocks (clusters) that share them.
        swizzle_size: width of a panel along the slow axis; 1 walks plainly.
        column_major: M is the fast axis; else N.
        cluster_size: tiles along M that one cluster takes together; ``m_idx`` counts clusters.
        stateful: keep the present tile in variables; False only offers `coord`.
        name: prefix of the variables' names.

    Raises:
        LanguageError: `num_workers` is left out, or a size is no positive constant.
    """

    def __init__(
        self,
        num_m_tiles: Any,
        num_n_tiles: Any,
        num_workers: Any = None,
        swizzle_size: int = 1,
        column_major: bool = True,
        cluster_size: int = 1,
        stateful: bool = True,
        name: str | None = None,
    ) -> None:
        what = "T.PersistentTileScheduler"
        current().require_kernel(what)
        if num_workers is None and stateful:
            fail(
                f"{what} needs num_workers",
                expected="the number of blocks that share the tiles",
                got="None",
                hint="pass the grid's extent: a program is not bound to one device's size",
            )
        self.num_workers = num_workers
        self.swizzle_size = static_int(swizzle_size, "swizzle_size")
        self.cluster_size = static_int(cluster_size, "cluster_size")
        self._column_major = bool(column_major)
        rows = ceildiv(num_m_tiles, self.cluster_size)
        self._total: Any = rows * num_n_tiles
        self._fast, self._slow = (rows, num_n_tiles) if column_major else (num_n_tiles, rows)
        self._state: dict[str, Cell] = {}
        prefix = "" if name is None else f"{name}_"
        for part in _STATE if stateful else ():
            current().hints = [f"{prefix}{part}"]
            cell = self._state[part] = alloc_var("int32")
            cell.fresh = False
        current().hints = []

    def _read(self, part: str) -> Scalar:
        if part not in self._state:
            fail(
                f"{part} of a stateless T.PersistentTileScheduler",
                expected="coord(tile) of stateful=False",
                got=part,
            )
        return Scalar(self._state[part].to_expr())

    @property
    def m_idx(self) -> Scalar:
        """The present tile along M (in clusters, where `cluster_size` is above 1)."""
        return self._read("m_idx")

    @property
    def n_idx(self) -> Scalar:
        """The present tile along N."""
        return self._read("n_idx")

    @property
    def linear_idx(self) -> Scalar:
        """The present tile's number in the common order."""
        return self._read("linear_idx")

    @property
    def current_iter(self) -> Scalar:
        """How many tiles this worker has left behind."""
        return self._read("current_iter")

    def coord(self, tile_id: Any) -> tuple[Any, Any]:
        """``(m, n)`` of a tile's number; panels at the end may be narrower."""
        band = self._fast * self.swizzle_size
        group = tile_id // band
        base = group * self.swizzle_size
        width = maximum(1, minimum(self.swizzle_size, self._slow - base))
        inside = tile_id - group * band
        fast, slow = inside // width, base + inside % width
        return (fast, slow) if self._column_major else (slow, fast)

    def init(self, worker_id: Any) -> None:
        """Begin at the worker's first tile."""
        self._read("current_iter")
        self._state["current_iter"].store(0)
        self._move(worker_id)

    def next_tile(self) -> None:
        """Go on to the worker's next tile."""
        self._state["current_iter"].store(self.current_iter + 1)
        self._move(self.linear_idx + self.num_workers)

    def valid(self) -> Any:
        """True while the present tile lies in the grid."""
        return self.linear_idx < self._total

    def _move(self, tile_id: Any) -> None:
        self._state["linear_idx"].store(tile_id)
        m, n = self.coord(self.linear_idx)
        self._state["m_idx"].store(m)
        self._state["n_idx"].store(n)
