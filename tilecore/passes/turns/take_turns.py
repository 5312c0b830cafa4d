"""Chained contractions by turns: each tile of scores is one team's, all teams add it up.

For a loop whose second contraction takes its left operand from the first through shared memory, and
whose result is too wide for one group of warps, all warps divide the columns of both:

    for k: copy K; scores = q K^T; work on scores; copy scores -> weights (shared);
           out = f(out); out += weights K

Scores of a few columns a warp read shared memory faster than it delivers, and nothing runs under
the work on them. With two teams of warps, each of which owns half of the columns of `out`:

    for k: copy K
      if k is this team's:  scores = q K^T; work; weights and what is carried go to shared memory
                            out = f(out); out += (weights in registers) K, the team's columns
      else:                 what is carried comes from shared memory
                            out = f(out); out += weights K, the team's columns

Both add up all tiles in order, so that results and their rounding stay. What is carried from tile
to tile (maxima, sums) passes from team to team and must be small. `turns_schedule` says what runs
when; a kernel that cannot be scheduled so (tried here to the end) is left as it is.
"""

from __future__ import annotations

import dataclasses

from tilecore.errors import LoweringError, ResourceError
from tilecore.hooks.context import Context
from tilecore.ir.buffers import Scope
from tilecore.ir.expr import Var, binary, const
from tilecore.ir.lane_dependence import mentions_lane
from tilecore.ir.program import Kernel, Program
from tilecore.ir.stmts import Allocate, Block, Copy, Gemm, If, Intrinsic, Let, Stmt, WarpScope
from tilecore.ir.visit import destinations, walk_stmts
from tilecore.passes.choose_layouts import choose_layouts
from tilecore.passes.contraction import select_atom, tile_mma
from tilecore.passes.infer_layouts import infer_layouts
from tilecore.passes.plan_shared_memory import plan_shared_memory
from tilecore.passes.reduction_plan import reduction_plan
from tilecore.passes.roles.specialize_warps import specialize_warps
from tilecore.passes.scopes import Names, loads_in, per_kernel, static, whole, with_hint
from tilecore.passes.stage_fragments import stage_fragments
from tilecore.passes.turns.team_columns import NarrowColumns
from tilecore.passes.turns.teams import TEAMS, TEAMS_HINT, team_call
from tilecore.passes.turns.turn_parts import TurnParts, parts_of


def take_turns(program: Program, context: Context) -> Program:
    """See the module's text."""
    names = Names(program)

    def visit(kernel: Kernel) -> Kernel:
        parts = parts_of(kernel)
        if parts is None or mentions_lane(kernel.body) or not _divides(kernel, parts, context):
            return kernel
        candidate = _Rewriter(kernel, parts, names, context).run()
        return (
            candidate if candidate is not None and _works(candidate, program, context) else kernel
        )

    return per_kernel(program, visit)


def _divides(kernel: Kernel, parts: TurnParts, context: Context) -> bool:
    """True where both contractions run beside their warps, and one group of lanes a team divides
    their columns."""
    for gemm in (parts.first, parts.last):
        atom = select_atom(gemm, kernel.threads, context)
        if atom is None or atom.b is not None or atom.lanes * TEAMS != kernel.threads:
            return False
        if tile_mma(gemm, atom, kernel.threads).groups_n != TEAMS:
            return False
    return True


def _works(candidate: Kernel, program: Program, context: Context) -> bool:
    """True when the kernel can be scheduled to the end."""
    trial = dataclasses.replace(program, kernels=(candidate,))
    try:
        for one in (
            infer_layouts, stage_fragments, reduction_plan, choose_layouts, specialize_warps,
            plan_shared_memory,
        ):  # fmt: skip
            trial = one(trial, context)
    except (LoweringError, ResourceError):
        return False
    (kernel,) = trial.kernels
    # Scratch that lanes exchange data through would be one for both teams.
    scratch = any(name.startswith("staged.") for name, _ in kernel.hints) or any(
        isinstance(s, Intrinsic) and s.op == "tile.reduce" for s in walk_stmts(kernel.body)
    )
    return not scratch and any(isinstance(s, WarpScope) for s in kernel.body)


class _Rewriter:
    """Writes a kernel for one team."""

    def __init__(self, kernel: Kernel, parts: TurnParts, names: Names, context: Context) -> None:
        self.kernel = kernel
        self.parts = parts
        self.names = names
        self.context = context
        self.team = Var(names.fresh("team"))
        self.lanes = kernel.threads // TEAMS
        self.columns = NarrowColumns(parts.out, TEAMS, self.team, names)

    def run(self) -> Kernel | None:
        """The kernel of one team; None where something cannot be divided."""
        parts = self.parts
        before = self.around(parts.before)
        after = self.around(parts.after)
        tail = self.narrowed(parts.tail)
        if before is None or after is None or tail is None:
            return None
        rows, columns = static(parts.weights)
        own = self.names.buffer(
            f"{parts.weights.name}_own", (rows, columns), parts.weights.dtype, Scope.FRAGMENT
        )
        places = [
            (buffer, self.names.buffer(f"{buffer.name}_turn", static(buffer), buffer.dtype,
             Scope.SHARED))
            for buffer in parts.carried
        ]  # fmt: skip
        leave = [Copy(whole(buffer), whole(place)) for buffer, place in places]
        take = [Copy(whole(place), whole(buffer)) for buffer, place in places]
        handed = parts.handed
        mine: Block = (
            self.for_team(parts.first), *parts.work, Copy(handed.src, whole(own), (), handed.loc),
            Copy(whole(own), handed.dst, (), handed.loc), *leave, *tail,
            self.for_team(self.columns.gemm(parts.last, whole(own))),
        )  # fmt: skip
        others: Block = (*take, *tail, self.for_team(self.columns.gemm(parts.last, parts.last.a)))
        var = parts.loop.var
        turn = binary("floormod", var, const(TEAMS, var.dtype))
        mine_now = binary("eq", turn, self.team)
        body = (*parts.head, If(mine_now, mine, others, parts.last.loc))
        loop = dataclasses.replace(parts.loop, body=body)
        hints = with_hint(self.kernel.hints, TEAMS_HINT, TEAMS)
        new = [Allocate(own), *(Allocate(place) for _, place in places)]
        first = Let(self.team, team_call(self.lanes, TEAMS))
        return dataclasses.replace(
            self.kernel, threads=self.lanes, hints=hints,
            body=(first, *before, *new, loop, *after),
        )  # fmt: skip

    def for_team(self, gemm: Gemm) -> Gemm:
        """A gemm with the atom that one team runs."""
        atom = select_atom(gemm, self.lanes, self.context)
        name = "fma" if atom is None else atom.name
        return dataclasses.replace(gemm, hints=with_hint(gemm.hints, "atom", name))

    def around(self, block: Block) -> Block | None:
        """Statements that stand around the loop, for one team."""
        result = [self.around_one(stmt) for stmt in block]
        return None if None in result else tuple(s for s in result if s is not None)

    def around_one(self, old: Stmt) -> Stmt | None:
        """One of these statements."""
        if isinstance(old, If) and self.columns.touches(old):
            then, otherwise = self.around(old.then), self.around(old.otherwise)
            if then is None or otherwise is None or loads_in(old.condition):
                return None  # a fragment that a condition reads may be another for each team
            return dataclasses.replace(old, then=then, otherwise=otherwise)
        new = self.columns.stmt(old)
        if new is None:
            return None
        scopes = _written(new)
        if Scope.SHARED in scopes and not (isinstance(new, Copy) and new.fills_shared):
            return None  # both teams would write it
        if self.columns.touches(old) or Scope.GLOBAL not in scopes:
            return new
        # All teams have it; one stores it.
        return If(binary("eq", self.team, const(0)), (new,))

    def narrowed(self, block: Block) -> Block | None:
        """`block` with the team's columns of the result; None where they cannot be told apart."""
        result = [self.columns.stmt(stmt) for stmt in block]
        return None if None in result else tuple(s for s in result if s is not None)


def _written(stmt: Stmt) -> set[Scope]:
    """Scopes of the buffers that a statement writes."""
    return {buffer.scope for inner in walk_stmts((stmt,)) for buffer in destinations(inner)}
