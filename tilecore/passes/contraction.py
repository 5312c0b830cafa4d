"""A gemm on an MMA atom: how warps divide the output tile, and the layouts that follow.

Warp groups of ``atom.lanes`` lanes are numbered along m first. When atoms times groups do not
divide a side, the tile is padded: the padded rows or columns are computed from repeated operand
rows and never stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.errors import LoweringError
from tilecore.hooks.context import Context
from tilecore.hooks.records import MmaAtom, MmaRequest
from tilecore.ir.layout import FragmentLayout
from tilecore.ir.stmts import Gemm, WarpPolicy
from tilecore.passes.scopes import static
from tilecore.passes.spread import tile_atom


@dataclass(frozen=True, slots=True)
class TiledMma:
    """An atom with its repeats.

    Attributes:
        atom: the instruction.
        groups_m, groups_n: lane groups along m and n; their product is all of the block's.
        tiles_m, tiles_n, tiles_k: atoms that one group runs along each side.
    """

    atom: MmaAtom
    groups_m: int
    groups_n: int
    tiles_m: int
    tiles_n: int
    tiles_k: int

    @property
    def c_layout(self) -> FragmentLayout:
        """Layout of the accumulator over (m, n)."""
        return tile_atom(
            self.atom.c,
            (self.tiles_m, self.tiles_n),
            (self.groups_m, self.groups_n),
            (1, 0),
            group_strides=(1, self.groups_m),
        )

    @property
    def a_layout(self) -> FragmentLayout | None:
        """Layout of operand A over (m, k) in registers; None when the atom reads memory."""
        if self.atom.a is None:
            return None
        return tile_atom(
            self.atom.a,
            (self.tiles_m, self.tiles_k),
            (self.groups_m, 1),
            (1, 0),
            copies=self.groups_n,
            copy_stride=self.groups_m,
        )

    @property
    def b_layout(self) -> FragmentLayout | None:
        """Layout of operand B over (k, n) in registers; None when the atom reads memory."""
        if self.atom.b is None:
            return None
        return tile_atom(
            self.atom.b,
            (self.tiles_k, self.tiles_n),
            (1, self.groups_n),
            (1, 0),
            copies=self.groups_m,
            copy_stride=1,
            group_strides=(1, self.groups_m),
        )


def gemm_shape(gemm: Gemm) -> tuple[int, int, int]:
    """(m, n, k) of a gemm."""
    m, n = static(gemm.c)
    return m, n, static(gemm.a)[0 if gemm.transpose_a else 1]


def select_atom(gemm: Gemm, threads: int, context: Context) -> MmaAtom | None:
    """The backend's atom for a gemm, or None."""
    request = MmaRequest(gemm, threads)
    return context.hooks.call("tilecore_select_mma", request=request, target=context.target)


def tile_mma(gemm: Gemm, atom: MmaAtom, threads: int) -> TiledMma:
    """Divide the gemm's tile among the block's lane groups, by its policy.

    Raises:
        LoweringError: k is no multiple of the atom's, or there are too few lanes.
    """
    m, n, k = gemm_shape(gemm)
    if k % atom.k or threads % atom.lanes:
        raise LoweringError(
            f"gemm does not fit the atom {atom.name}",
            expected=f"k a multiple of {atom.k}, threads a multiple of {atom.lanes}",
            got=f"k = {k}, {threads} threads",
            loc=gemm.loc,
        )
    groups = threads // atom.lanes
    groups_m, groups_n = _divide(m, n, atom, groups, gemm.policy)
    return TiledMma(
        atom,
        groups_m,
        groups_n,
        -(-m // (atom.m * groups_m)),
        -(-n // (atom.n * groups_n)),
        k // atom.k,
    )


def _divide(m: int, n: int, atom: MmaAtom, groups: int, policy: WarpPolicy) -> tuple[int, int]:
    """The best (groups along m, groups along n).

    Least padding first; then the policy's wish; then the least operand traffic.
    """

    def cost(pair: tuple[int, int]) -> tuple[int, int, int, int]:
        along_m, along_n = pair
        padded_m = -(-m // (atom.m * along_m)) * atom.m * along_m
        padded_n = -(-n // (atom.n * along_n)) * atom.n * along_n
        wish = {WarpPolicy.FULL_ROW: along_n, WarpPolicy.FULL_COL: along_m}.get(policy, 0)
        traffic = padded_m * along_n + padded_n * along_m
        return padded_m * padded_n, wish, traffic, along_n

    pairs = [(d, groups // d) for d in range(1, groups + 1) if groups % d == 0]
    return min(pairs, key=cost)
