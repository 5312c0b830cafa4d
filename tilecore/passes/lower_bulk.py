"""A bulk copy as the operations of the one lane that starts it: one for each box.

bulk.load A[by * 128:+128, k * 64:+64] -> A_shared[slot], full[slot]
  ->  bulk.load A_shared[offset], full[slot], by * 128, k * 64     (coordinates of the box)
          hints(box="128x64", kind=..., tensor="A")
"""

from __future__ import annotations

from tilecore.errors import LoweringError
from tilecore.hooks.records import AsyncCopyRequest, BulkCopyPlan
from tilecore.ir.buffers import Region
from tilecore.ir.expr import Expr, binary, const
from tilecore.ir.stmts import Block, Copy, Intrinsic, Stmt
from tilecore.passes.lane_scope import LANE, LaneScope


def lower_bulk_load(stmt: Intrinsic, scope: LaneScope) -> Block:
    """Lower ``bulk.load`` of (source region, destination region, barrier).

    Raises:
        LoweringError: the backend does not take the copy any more.
    """
    src, dst, barrier = stmt.args
    assert isinstance(src, Region) and isinstance(dst, Region) and isinstance(barrier, Region)
    plan: BulkCopyPlan | None = scope.context.hooks.call(
        "tilecore_plan_bulk_copy",
        request=AsyncCopyRequest(Copy(src, dst), scope.kernel),
        target=scope.context.target,
    )
    if plan is None:
        raise LoweringError(f"no bulk copy from {src.buffer.name} any more", loc=stmt.loc)
    first = scope.plain_offset(dst.buffer, dst.starts)
    done = Region(
        scope.lane_buffer(barrier.buffer), (scope.offset(barrier.buffer, barrier.starts),), (None,)
    )
    hints = (
        ("box", "x".join(str(extent) for extent in plan.box)),
        ("kind", plan.kind),
        ("tensor", src.buffer.name),
    )
    result: list[Stmt] = []
    for piece in plan.pieces:
        offset = scope.ranges.simplify(binary("add", first, const(piece.offset)))
        to = Region(scope.lane_buffer(dst.buffer), (offset,), (None,))
        at = tuple(
            scope.ranges.simplify(binary("add", start, const(shift)))
            for start, shift in zip(src.starts, piece.at, strict=True)
        )
        result.append(Intrinsic("bulk.load", (to, done, *at), hints, stmt.loc))
    return tuple(result)


def lower_bulk_store_fragment(stmt: Intrinsic, scope: LaneScope) -> Block:
    """Lower ``bulk.store_fragment`` of (fragment, destination region, staging buffer).

    The lane's registers, the staging buffer and the destination's coordinates; how the groups of
    lanes take turns is the backend's.

    Raises:
        LoweringError: the backend does not take the copy any more.
    """
    src, dst, staging = stmt.args
    assert isinstance(src, Region) and isinstance(dst, Region) and isinstance(staging, Region)
    plan: BulkCopyPlan | None = scope.context.hooks.call(
        "tilecore_plan_bulk_copy",
        request=AsyncCopyRequest(Copy(src, dst), scope.kernel),
        target=scope.context.target,
    )
    if plan is None or plan.staging is None:
        raise LoweringError(f"no bulk copy to {dst.buffer.name} any more", loc=stmt.loc)
    flat = scope.lane_buffer(src.buffer)
    zero: Expr = const(0)
    args = (
        Region(flat, (zero,), (const(scope.fragment_layout(src.buffer).registers),)),
        Region(scope.lane_buffer(staging.buffer), (zero,), (None,)),
        LANE,
        *(scope.ranges.simplify(start) for start in dst.starts),
    )
    hints = (
        ("box", "x".join(str(extent) for extent in plan.box)),
        ("kind", plan.kind),
        ("tensor", dst.buffer.name),
    )
    return (Intrinsic("bulk.store_fragment", args, hints, stmt.loc),)
