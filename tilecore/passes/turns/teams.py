"""Teams: equal groups of a block's warps that run one program side by side.

A kernel of teams (hint ``teams`` = how many) is written for the lanes of one: `Kernel.threads`,
layouts and barriers are a team's, and shared memory belongs to all. The variable that
`team_of` finds tells which one runs; it is the same in all of a team's lanes.
"""

from __future__ import annotations

from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Call, Expr, Var, const
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Let

TEAM_OP = "block.team"
"""Call of (lanes of a team, teams): the number of the team that runs."""
TEAMS_HINT = "teams"
TEAMS = 2
"""Teams of the kernels that `take_turns` writes and `turns_schedule` schedules."""


def teams_of(kernel: Kernel) -> int:
    """How many teams a kernel is written for; 1 where it is written for the whole block."""
    return int(dict(kernel.hints).get(TEAMS_HINT, 1))


def team_call(lanes: int, teams: int) -> Call:
    """The number of the team, as an expression."""
    return Call(TEAM_OP, (const(lanes), const(teams)), int32)


def team_of(kernel: Kernel) -> Var | None:
    """The variable of the team's number; None in a kernel without teams."""
    for stmt in kernel.body:
        if isinstance(stmt, Let) and is_team(stmt.value):
            return stmt.var
    return None


def is_team(value: Expr) -> bool:
    """True for the number of the team."""
    return isinstance(value, Call) and value.op == TEAM_OP
