"""Statements of the block under conditions on the lane: who stands under it does not do it alone.

    if block.thread() < 32 {               let under = block.thread() < 32
      copy x[:] -> s[:]                    copy x[:] -> s[:]
      y[block.thread()] = 1        ->      if under { y[block.thread()] = 1 }
    }

A copy, nest, reduction or product has the same result whichever lanes share its work, so all
lanes of the block take part as soon as one lane gets there; what is a lane's own stays under
the condition. Warp scopes around such statements are conditions on the lane, too, where a
kernel is written per lane or warps of a scope synchronise; else scopes are advice: what is in
one is done for the block, once. That a lane gets there is decided here: conditions on the
lane's index may be joined with ones that are the same in all lanes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilecore.errors import LanguageError
from tilecore.ir import stmts as S
from tilecore.ir.buffers import Region, Scope
from tilecore.ir.dtypes import boolean, int32
from tilecore.ir.expr import TRUE, Call, Expr, Unary, Var, binary, const, transform
from tilecore.ir.lane_dependence import (
    LANE_INDEX,
    WARP,
    conditions_of,
    definitions_of,
    depends_on_lane,
    is_per_lane,
    lane_dependent_names,
    nested_blocks,
    parts_of_condition,
)
from tilecore.ir.program import Kernel, Program
from tilecore.ir.ranges import Ranges
from tilecore.ir.simplify import simplify
from tilecore.ir.visit import BODY_FIELDS, exprs_of, map_stmts, walk_stmts
from tilecore.ir.waiting import refuse_waits_out_of_order
from tilecore.passes.scopes import Names, per_kernel

_LANE = Call(LANE_INDEX, (), int32)
_TILES = (S.Parallel, S.Copy, S.Fill, S.Gemm, S.Reduce, S.Scan)


def lane_branches(program: Program, context: object = None) -> Program:
    """See the module's text; other kernels stay as they are.

    Raises:
        LanguageError: it cannot be said whether a lane reaches a statement of the block.
        UnsupportedError: warps wait for one another around statements of the block.
    """
    del context
    names = Names(program)

    def visit(kernel: Kernel) -> Kernel:
        if scopes_are_advice(kernel.body):
            return dataclasses.replace(kernel, body=_without_scopes(kernel.body))
        check_waits(kernel.body)
        varying = lane_dependent_names(kernel.body)
        joiner = _Joiner(kernel.threads, varying, definitions_of(kernel.body), names)
        if not any(joiner.is_split(stmt) for stmt in walk_stmts(kernel.body)):
            return kernel
        return dataclasses.replace(kernel, body=joiner.block(kernel.body, None))

    return per_kernel(program, visit)


def check_waits(body: S.Block) -> None:
    """Refuse warps that wait for one another around what all lanes of the block do together.

    Raises:
        UnsupportedError: with the wait's place.
    """
    refuse_waits_out_of_order(body, lambda stmt: not _holds_tiles(stmt))


def scopes_are_advice(body: S.Block) -> bool:
    """True when warp scopes may as well not be there: nobody asks for lanes, and nobody in a scope
    synchronises. What such a scope holds is done once for the block, whoever does it."""
    inside = (
        inner
        for s in walk_stmts(body)
        if isinstance(s, S.WarpScope)
        for inner in walk_stmts(s.body)
    )
    return not is_per_lane(body) and not any(isinstance(s, S.Intrinsic) for s in inside)


def _without_scopes(body: S.Block) -> S.Block:
    """The statements of warp scopes in their place."""
    return map_stmts(body, lambda s: s.body if isinstance(s, S.WarpScope) else None)


def warp_condition(scope: S.WarpScope) -> Expr:
    """The condition that a lane is in a warp scope."""
    below = binary("lt", _LANE, const(scope.last * WARP))
    if scope.first == 0:
        return below
    return binary("and", binary("ge", _LANE, const(scope.first * WARP)), below)


def _is_tile(stmt: S.Stmt) -> bool:
    return isinstance(stmt, _TILES) or (
        isinstance(stmt, S.Atomic) and isinstance(stmt.value, Region)
    )


def _holds_tiles(stmt: S.Stmt) -> bool:
    inner = (s for block in nested_blocks(stmt) for s in walk_stmts(block))
    return any(_is_tile(one) for one in inner)


@dataclass(frozen=True, slots=True)
class _Under:
    """The condition that a lane stands under.

    Attributes:
        flag: its value, of the lane.
        lanes: what it asks of the lane's index alone; None when that differs with other values.
    """

    flag: Expr
    lanes: Expr | None


@dataclass(slots=True)
class _Joiner:
    threads: int
    varying: frozenset[str]
    definitions: dict[Var, Expr]
    names: Names

    def is_split(self, stmt: S.Stmt) -> bool:
        """A condition on the lane around statements of the block."""
        is_condition = isinstance(stmt, S.WarpScope) or (
            isinstance(stmt, S.If) and depends_on_lane(stmt.condition, self.varying)
        )
        return is_condition and _holds_tiles(stmt)

    def block(self, block: S.Block, under: _Under | None) -> S.Block:
        return tuple(new for stmt in block for new in self.stmt(stmt, under))

    def stmt(self, stmt: S.Stmt, under: _Under | None) -> S.Block:
        if self.is_split(stmt):
            return self.join(stmt, under)
        if _holds_tiles(stmt):
            self.check(stmt)
            changes = {
                name: self.block(inner, under)
                for name in BODY_FIELDS
                if nested_blocks(stmt) and (inner := getattr(stmt, name, None))
            }
            return (dataclasses.replace(stmt, **changes),)
        if under is None or _is_tile(stmt) or self.is_common(stmt):
            return (stmt,)
        return (S.If(under.flag, (stmt,), (), getattr(stmt, "loc", None)),)

    def is_common(self, stmt: S.Stmt) -> bool:
        """What all lanes may do although only some were meant to."""
        match stmt:
            case S.Store(buffer=buffer):
                is_own = any(depends_on_lane(e, self.varying) for e in exprs_of(stmt))
                return not is_own and buffer.scope is not Scope.LOCAL
            case S.Let() | S.Allocate() | S.Alias() | S.Break() | S.Continue():
                return True
            case _:
                return False

    def check(self, stmt: S.Stmt) -> None:
        if any(depends_on_lane(expr, self.varying) for expr in conditions_of(stmt)):
            raise LanguageError(
                "a loop whose rounds differ between lanes around a statement of the block",
                loc=getattr(stmt, "loc", None),
            )

    # --- one condition -------------------------------------------------------------------------

    def join(self, stmt: S.Stmt, outer: _Under | None) -> S.Block:
        loc = stmt.loc  # type: ignore[attr-defined]
        if isinstance(stmt, S.WarpScope):
            stmt = S.If(warp_condition(stmt), stmt.body, (), loc)
        assert isinstance(stmt, S.If)
        parts = parts_of_condition(stmt.condition, self.definitions, self.varying)
        if parts is None or (outer is not None and outer.lanes is None):
            raise LanguageError(
                "a statement of the block under a condition that differs between lanes",
                expected="a condition on the lane's index, or one that is the same in all lanes",
                loc=loc,
            )
        lanes, same = parts
        held = TRUE if outer is None else outer.lanes
        assert held is not None
        flag = Var(self.names.fresh("under"), boolean)
        result: list[S.Stmt] = [S.Let(flag, _both(outer, stmt.condition), loc)]
        then = self.block(stmt.then, _Under(flag, binary("and", held, lanes)))
        if self.any_lane(binary("and", held, lanes)):
            result += _when(same, then, loc)
        if stmt.otherwise:
            other = Var(self.names.fresh("other"), boolean)
            result.append(S.Let(other, _both(outer, Unary("not", stmt.condition, boolean)), loc))
            rest = binary("and", held, Unary("not", lanes, boolean))
            inside = self.block(stmt.otherwise, _Under(other, rest if same == TRUE else None))
            if self.any_lane(rest):
                result += inside
            else:
                result += _when(Unary("not", same, boolean), inside, loc)
        return tuple(result)

    def any_lane(self, condition: Expr) -> bool:
        """Whether a condition on the lane's index holds for a lane of the block."""
        for lane in range(self.threads):
            placed = transform(condition, lambda n, lane=lane: const(lane) if n == _LANE else None)
            if simplify(placed, Ranges()) == TRUE:
                return True
        return False


def _both(outer: _Under | None, condition: Expr) -> Expr:
    return condition if outer is None else binary("and", outer.flag, condition)


def _when(condition: Expr, block: S.Block, loc: object) -> S.Block:
    if condition == TRUE or not block:
        return block
    if condition == Unary("not", TRUE, boolean):
        return ()
    return (S.If(condition, block, (), loc),)  # type: ignore[arg-type]


__all__ = ["lane_branches", "scopes_are_advice", "warp_condition"]
