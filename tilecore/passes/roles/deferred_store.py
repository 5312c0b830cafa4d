"""A tile's store, put off until the next tile's contraction runs.

    for round: loop of contractions; C leaves through staging
      ->
    for round:
      for r in unroll(0, R): step r of the loop; if round > 0: part r of what is held leaves
      the loop's other steps
      held = C, rounded to the destination's type; its place is kept
    all parts of what is held leave

The matrix units then work while warps stage and hand over the tile before. Applies to blocks that
stay, whose only store is their last statement, where the loop makes at least as many steps as a
store has parts, and where lanes have registers for both (`BulkCopyPlan.rounds`, the backend's).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import int32, uint32
from tilecore.ir.expr import Const, Expr, Load, Var, const
from tilecore.ir.layout import FragmentLayout
from tilecore.ir.stmts import Allocate, For, Intrinsic, Let, Stmt, Store
from tilecore.passes.scopes import Names, whole


@dataclass(frozen=True, slots=True)
class DeferredStore:
    """One fragment on its way.

    Attributes:
        store: the ``bulk.store_fragment`` that it replaces.
        rounds: parts in which it leaves.
        held: the rounded fragment, as 32-bit words of a lane.
        places: the destination's first element, axis by axis.
        names: for the variables of a part.
    """

    store: Intrinsic
    rounds: int
    held: Buffer
    places: tuple[Buffer, ...]
    names: Names

    def declarations(self) -> list[Stmt]:
        """Registers that live through all rounds."""
        places = (Allocate(place, const(0)) for place in self.places)
        return [Allocate(self.source), Allocate(self.held), *places]

    @property
    def source(self) -> Buffer:
        """The fragment."""
        src = self.store.args[0]
        assert isinstance(src, Region)
        return src.buffer

    def declares(self, stmt: Stmt) -> bool:
        """True for the author's declaration of the fragment, which moves before the rounds."""
        return isinstance(stmt, Allocate) and stmt.buffer == self.source

    def keep(self) -> list[Stmt]:
        """Round the fragment, and note where it goes."""
        src, dst, _ = self.store.args
        assert isinstance(src, Region) and isinstance(dst, Region)
        hold = Intrinsic("bulk.hold_fragment", (src, whole(self.held), dst), (), self.store.loc)
        kept = [Store(p, (), at) for p, at in zip(self.places, dst.starts, strict=True)]
        return [hold, *kept]

    def part(self, number: Expr) -> list[Stmt]:
        """Part `number` of what is held leaves."""
        src, dst, staging = self.store.args
        assert isinstance(src, Region) and isinstance(dst, Region)
        at = tuple(Var(self.names.fresh("held_at")) for _ in self.places)
        lets: list[Stmt] = [Let(v, Load(p, ())) for v, p in zip(at, self.places, strict=True)]
        to = Region(dst.buffer, at, dst.extents)
        args = (src, whole(self.held), to, staging, number)
        return [*lets, Intrinsic("bulk.store_held", args, self.store.hints, self.store.loc)]


def deferred_store(
    loop: For, rest: list[Stmt], layout: FragmentLayout | None, rounds: int, names: Names
) -> DeferredStore | None:
    """The store at the end of `rest`, if it can be put off under the first steps of `loop`.

    Args:
        loop: the chain of contractions.
        rest: a tile's statements, stores lowered to ``bulk.store_fragment``.
        layout: of the fragment that the last statement stores.
        rounds: parts of that store, as its plan says.
        names: unused names.
    """
    stores = [s for s in rest if isinstance(s, Intrinsic) and s.op == "bulk.store_fragment"]
    if len(stores) != 1 or rest[-1] is not stores[0] or rounds < 1 or layout is None:
        return None
    if not isinstance(loop.extent, Const) or int(loop.extent.value) < rounds:
        return None
    src, dst, _ = stores[0].args
    assert isinstance(src, Region) and isinstance(dst, Region)
    words = layout.registers * dst.dtype.bytes // 4
    held = names.buffer(f"{src.buffer.name}_held", (words,), uint32, Scope.LOCAL)
    places = tuple(
        names.buffer(f"{src.buffer.name}_place", (), int32, Scope.LOCAL) for _ in dst.starts
    )
    return DeferredStore(stores[0], rounds, held, places, names)


def is_held(stmt: Stmt) -> bool:
    """True for statements after which stores are under way."""
    return isinstance(stmt, Intrinsic) and stmt.op in ("bulk.store_fragment", "bulk.hold_fragment")
