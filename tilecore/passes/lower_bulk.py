"""A bulk copy as the operations of the one lane that starts it: one for each box.

    bulk.load A[by * 128:+128, k * 64:+64] -> A_shared[slot], full[slot]
      ->  bulk.load A_shared[offset], full[slot], by * 128, k * 64     (coordinates of the box)
              hints(box="128x64", kind=..., tensor="A")
"""

from __future__ import annotations

from tilecore.errors import LoweringError
from tilecore.hooks.records import AsyncCopyRequest, BulkCopyPlan
from tilecore.ir.buffers import Region
from tilecore.ir.expr import binary, const
from tilecore.ir.stmts import Block, Copy, Intrinsic, Stmt
from tilecore.passes.lane_scope import LaneScope


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
