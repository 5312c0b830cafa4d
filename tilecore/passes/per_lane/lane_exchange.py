"""Exchanges between lanes, read from an array that holds what every lane gave.

`read_exchange` is the second half: the first stores each lane's value, then all lanes meet.
"""

from __future__ import annotations

from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import boolean, int32, uint32
from tilecore.ir.expr import Binary, Call, Cast, Const, Expr, Load, Select, Var, binary, const
from tilecore.ir.lane_dependence import WARP
from tilecore.passes.per_lane.lane_regions import LANE
from tilecore.passes.scopes import Names


def read_exchange(
    stmt: S.Let, call: Call, given: Buffer, threads: int, names: Names
) -> tuple[S.Stmt, ...]:
    """The `Let` with the value that a lane receives, from the values that all lanes gave."""
    if call.op == "warp.ballot":
        return _ballot(stmt, given, threads, names)
    place = source_lane(call, LANE)
    inside = binary("lt", place, const(threads))
    own: Expr = LANE
    place = place if threads % WARP == 0 else Select(inside, place, own, int32)
    return (S.Let(stmt.var, Load(given, (place,)), stmt.loc),)


def source_lane(call: Call, lane: Expr) -> Expr:
    """The lane of the block whose value an exchange brings; its own where there is none."""
    _, operand, width = call.args
    assert isinstance(width, Const)
    size = int(width.value)
    rank = _binary("bitand", lane, const(size - 1))
    base = _binary("sub", lane, rank)
    match call.op:
        case "warp.shuffle":
            return _binary("add", base, _binary("bitand", operand, const(size - 1)))
        case "warp.shuffle_xor":
            other = _binary("bitxor", rank, operand)
            return _or_own(lane, binary("lt", other, const(size)), _binary("add", base, other))
        case "warp.shuffle_up":
            other = _binary("sub", rank, operand)
            return _or_own(lane, binary("ge", other, const(0)), _binary("add", base, other))
        case _:
            other = _binary("add", rank, operand)
            return _or_own(lane, binary("lt", other, const(size)), _binary("add", base, other))


def _binary(op: str, a: Expr, b: Expr) -> Expr:
    return Binary(op, a, b, int32)


def _or_own(lane: Expr, holds: Expr, place: Expr) -> Expr:
    return Select(holds, place, lane, int32)


def _ballot(stmt: S.Let, given: Buffer, threads: int, names: Names) -> tuple[S.Stmt, ...]:
    """One bit for each lane of the warp, lowest lane lowest."""
    bits = names.buffer("bits", (), uint32, Scope.LOCAL)
    other = Var(names.fresh("voter"), int32)
    base = _binary("sub", LANE, _binary("bitand", LANE, const(WARP - 1)))
    place = _binary("add", base, other)
    one = Binary("shl", const(1, uint32), Cast(other, uint32), uint32)
    vote: Expr = Load(given, (place,))
    if threads % WARP:
        vote = Select(binary("lt", place, const(threads)), vote, const(False, boolean), boolean)
    added = Binary("bitor", Load(bits, ()), one, uint32)
    body = (S.If(vote, (S.Store(bits, (), added),)),)
    return (
        S.Allocate(bits, const(0, uint32)),
        S.For(other, const(0), const(WARP), const(1), body),
        S.Let(stmt.var, Load(bits, ()), stmt.loc),
    )
