"""An asynchronous copy as one lane's code: pieces dealt out to lanes in memory order.

Neighbouring lanes take neighbouring pieces of a row, so that a warp's accesses are whole lines;
each lane takes every `threads`-th piece. Pieces outside the source are written as zeros by the
copy itself; pieces outside the destination are left out. Where the memory puts a warp's pieces side
by side (`AsyncCopyAtom.in_lane_order`), pieces are numbered in the order of shared memory instead.
"""

from __future__ import annotations

import math

from tilecore.errors import LoweringError
from tilecore.ir.buffers import Region
from tilecore.ir.expr import TRUE, Expr, Var, binary, const
from tilecore.ir.stmts import Block, For, Intrinsic, LoopKind
from tilecore.passes.async_copies import IN_LANE_ORDER
from tilecore.passes.lowering.bounded_moves import needed_test
from tilecore.passes.lowering.lane_scope import LANE, LaneScope, guarded
from tilecore.passes.memory_order import coordinates_at, tile_of

_UNROLL_LIMIT = 32


def lower_async_copy(stmt: Intrinsic, scope: LaneScope) -> Block:
    """Lower ``async.copy`` of two regions (hint ``bytes``: width of a piece)."""
    src, dst = stmt.args
    assert isinstance(src, Region) and isinstance(dst, Region)
    width = int(dict(stmt.hints)["bytes"]) // src.dtype.bytes
    shape = src.static_shape
    if shape is None:
        raise LoweringError("an asynchronous copy needs constant extents", loc=stmt.loc)
    pieces = [*shape[:-1], shape[-1] // width]
    total = 1
    for count in pieces:
        total *= count
    rounds = -(-total // scope.threads)
    step = scope.var("c", 0, rounds - 1)
    number = binary("add", binary("mul", step, const(scope.threads)), LANE)
    if dict(stmt.hints).get(IN_LANE_ORDER):
        return _issue_in_lane_order(stmt, src, dst, width, (step, rounds, number), scope)
    coordinates = _digits(number, pieces, scope)
    coordinates[-1] = binary("mul", coordinates[-1], const(width))
    return _issue(stmt, src, dst, tuple(coordinates), width, (step, rounds, total, number), scope)


def _issue_in_lane_order(
    stmt: Intrinsic, src: Region, dst: Region, width: int, rounds_of: tuple[Var, int, Expr],
    scope: LaneScope,
) -> Block:  # fmt: skip
    """Every lane, in every round, one piece of the tile in the order of shared memory."""
    step, rounds, number = rounds_of
    tile = tile_of(dst, scope.shared_layout(dst.buffer))
    assert tile is not None, "asked for dense destinations only"
    first = scope.simplify(binary("mul", number, const(width)))
    source = src.indices(tuple(scope.simplify(c) for c in coordinates_at(tile, first)))
    begin = scope.plain_offset(dst.buffer, dst.indices(tuple(const(0) for _ in tile.axes)))
    flat_src, flat_dst = scope.lane_buffer(src.buffer), scope.lane_buffer(dst.buffer)
    at = scope.offset(src.buffer, source)
    from_ = Region(flat_src, (at,), (const(width),))
    to = Region(flat_dst, (scope.simplify(binary("add", begin, first)),), (const(width),))
    valid = needed_test(src.buffer, source, at, scope)
    args: tuple[Expr | Region, ...] = (from_, to) if valid == TRUE else (from_, to, valid)
    elements = math.prod(src.buffer.static_shape or ())
    hints = tuple(sorted((*stmt.hints, ("elements", elements))))
    return _in_rounds(step, rounds, (Intrinsic("async.copy", args, hints, stmt.loc),), stmt)


def _digits(number: Expr, extents: list[int], scope: LaneScope) -> list[Expr]:
    """Digits of a piece's number, last axis fastest."""
    digits: list[Expr] = []
    rest = number
    for extent in reversed(extents[1:]):
        digits.append(scope.simplify(binary("floormod", rest, const(extent))))
        rest = scope.simplify(binary("floordiv", rest, const(extent)))
    digits.append(rest)
    return digits[::-1]


def _issue(
    stmt: Intrinsic,
    src: Region,
    dst: Region,
    coordinates: tuple[Expr, ...],
    width: int,
    rounds_of: tuple[Var, int, int, Expr],
    scope: LaneScope,
) -> Block:
    step, rounds, total, number = rounds_of
    source, target = src.indices(coordinates), dst.indices(coordinates)
    flat_src, flat_dst = scope.lane_buffer(src.buffer), scope.lane_buffer(dst.buffer)
    extent = const(width)
    from_ = Region(flat_src, (scope.offset(src.buffer, source),), (extent,))
    to = Region(flat_dst, (scope.offset(dst.buffer, target),), (extent,))
    valid = scope.inside(src.buffer, source)
    args: tuple[Expr | Region, ...] = (from_, to) if valid == TRUE else (from_, to, valid)
    copy: Block = (Intrinsic("async.copy", args, stmt.hints, stmt.loc),)
    copy = guarded(scope.inside(dst.buffer, target), copy)
    if rounds * scope.threads != total:
        copy = guarded(binary("lt", number, const(total)), copy)
    return _in_rounds(step, rounds, copy, stmt)


def _in_rounds(step: Var, rounds: int, copy: Block, stmt: Intrinsic) -> Block:
    kind = LoopKind.UNROLL if rounds <= _UNROLL_LIMIT else LoopKind.SERIAL
    return (For(step, const(0), const(rounds), const(1), copy, kind, loc=stmt.loc),)
