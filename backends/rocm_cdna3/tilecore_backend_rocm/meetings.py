"""Named barriers, which this hardware has not: words of LDS at which wavefronts count themselves.

A workgroup has one barrier, which all of its wavefronts must reach. Where a program names barriers
(``T.sync_threads(3, 128)``), each gets a word that the kernel sets up at its beginning.
"""

from __future__ import annotations

import dataclasses

from tilecore.errors import UnsupportedError
from tilecore.ir.buffers import Region, Scope
from tilecore.ir.dtypes import int32, uint64
from tilecore.ir.expr import Const, Expr, const
from tilecore.ir.program import Kernel, Program
from tilecore.ir.stmts import Allocate, Intrinsic, Stmt
from tilecore.ir.visit import map_stmts, walk_stmts
from tilecore.passes.per_lane.lane_branches import check_waits
from tilecore.passes.scopes import Names

MEET, ARRIVE = "barrier.meet", "barrier.meet_arrive"
NUMBERS = 16
"""Names of barriers: 0 to 15, as many as other lane-parallel targets have."""
WAVEFRONT = 64

_NAMED = {"named_barrier.sync": MEET, "named_barrier.arrive": ARRIVE}


def with_meetings(program: Program) -> Program | None:
    """The program with words for the barriers that it names; None when it names none.

    Raises:
        UnsupportedError: a barrier of lanes that are no whole wavefronts, or without a number.
    """
    names = Names(program)
    kernels = tuple(_with_words(kernel, names) for kernel in program.kernels)
    if kernels == program.kernels:
        return None
    return dataclasses.replace(program, kernels=kernels)


def _with_words(kernel: Kernel, names: Names) -> Kernel:
    named = [s for s in walk_stmts(kernel.body) if isinstance(s, Intrinsic) and s.op in _NAMED]
    if not named:
        return kernel
    check_waits(kernel.body)
    numbers = sorted({_checked(stmt) for stmt in named})
    words = names.buffer("named_barriers", (len(numbers),), uint64, Scope.SHARED)

    def word(number: int) -> Region:
        return Region(words, (const(numbers.index(number), int32),), (None,))

    def meet(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Intrinsic) or stmt.op not in _NAMED:
            return None
        args = (word(_checked(stmt)), *stmt.args)
        return (dataclasses.replace(stmt, op=_NAMED[stmt.op], args=args),)

    inits = [Intrinsic("barrier.init", (word(one), const(1, int32))) for one in numbers]
    body = (Allocate(words), *inits, *map_stmts(kernel.body, meet))
    return dataclasses.replace(kernel, body=body)


def _checked(stmt: Intrinsic) -> int:
    number, lanes = stmt.args
    assert isinstance(number, Expr) and isinstance(lanes, Expr)
    if not isinstance(number, Const) or not 0 <= int(number.value) < NUMBERS:
        raise UnsupportedError(
            "a named barrier needs a constant number",
            expected=f"0 <= number < {NUMBERS}",
            got=number,
            loc=stmt.loc,
        )
    if not isinstance(lanes, Const) or int(lanes.value) % WAVEFRONT or not int(lanes.value):
        raise UnsupportedError(
            "this target's lanes meet in whole wavefronts",
            expected=f"a multiple of {WAVEFRONT} lanes",
            got=lanes,
            loc=stmt.loc,
        )
    return int(number.value)


__all__ = ["ARRIVE", "MEET", "NUMBERS", "WAVEFRONT", "with_meetings"]
