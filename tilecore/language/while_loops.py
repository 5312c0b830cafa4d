"""Loops whose rounds only the run decides: of the block, and of one iteration of ``T.Parallel``."""

from __future__ import annotations

from typing import Any

from tilecore.errors import Loc
from tilecore.ir.dtypes import int64
from tilecore.ir.expr import TRUE, Const, Expr, Var, const
from tilecore.ir.stmts import Block, Break, For, If, While
from tilecore.language import operators as ops
from tilecore.language.builder import Builder, Frame, current
from tilecore.language.locate import caller_loc, fail
from tilecore.language.values import Operators, Scalar

ROUNDS = 1 << 62
"""More than any loop makes: an iteration of a nest is left by a break, never by its count."""


def is_runtime(value: Any) -> bool:
    """True when the truth of `value` is known only when the program runs."""
    return isinstance(value, Operators) and not isinstance(value.to_expr(), Const)


def may_break(body: Block) -> bool:
    """Whether some way through a loop's body leaves that loop."""
    return any(
        isinstance(stmt, Break)
        or (isinstance(stmt, If) and (may_break(stmt.then) or may_break(stmt.otherwise)))
        for stmt in body
    )


def emit_while(builder: Builder, condition: Expr, body: Block, loc: Loc | None) -> None:
    """A loop of the block; inside ``T.Parallel`` one of each iteration, which leaves it alone."""
    if not builder.inside("parallel"):
        builder.emit(While(condition, body, loc))
        return
    rounds = Var(builder.unique("round"), int64)
    if condition != TRUE:
        ends = If(ops.logical_not(Scalar(condition)), (Break(loc),), (), loc)
        body = (ends, *body)
    zero, one, most = (const(value, int64) for value in (0, 1, ROUNDS))
    builder.emit(For(rounds, zero, most, one, body, loc=loc))


class WhileBlock:
    """``with T.While(condition):`` for authors who write the loop as a block.

    The condition is the one that was passed: it is evaluated anew in each round.
    """

    def __init__(self, condition: Any) -> None:
        self.builder = current()
        self.builder.require_kernel("T.While")
        if not is_runtime(condition):
            fail(
                "T.While needs a condition of the program",
                expected="a value that the body changes",
                got=repr(condition),
                hint="write a Python `while` for what is known while tracing",
            )
        self.loc = caller_loc()
        self.condition = ops.truth(condition)
        self.frame: Frame | None = None

    def __enter__(self) -> None:
        self.frame = self.builder.push("while")

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is None and self.frame is not None:
            emit_while(self.builder, self.condition, self.builder.pop(self.frame), self.loc)
