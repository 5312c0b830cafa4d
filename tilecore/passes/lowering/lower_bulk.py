"""A bulk copy as the operations of the one lane that starts it: one for each box.

bulk.load A[by * 128:+128, k * 64:+64] -> A_shared[slot], full[slot]
  ->  bulk.load A_shared[offset], full[slot], by * 128, k * 64     (coordinates of the box)
          hints(box="128x64", kind=..., tensor="A")
"""

from __future__ import annotations

from tilecore.errors import LoweringError
from tilecore.hooks.records import AsyncCopyRequest, BulkCopyPlan, BulkPiece
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Call, Expr, Select, as_dtype, binary, const, dtype_of_expr
from tilecore.ir.stmts import Block, Copy, Hints, Intrinsic, Stmt
from tilecore.ir.windows import windows_of
from tilecore.passes.lowering.lane_scope import LANE, LaneScope
from tilecore.passes.roles.window_copies import LOAD_WINDOWS, matrix


def lower_bulk_load(stmt: Intrinsic, scope: LaneScope) -> Block:
    """Lower ``bulk.load`` of (source region, destination region, barrier).

    Raises:
        LoweringError: the backend does not take the copy any more.
    """
    src, dst, barrier = stmt.args
    assert isinstance(src, Region) and isinstance(dst, Region) and isinstance(barrier, Region)
    parts = int(dict(stmt.hints).get("parts", 1))
    plan = _plan(AsyncCopyRequest(Copy(src, dst), scope.kernel, parts), scope)
    if plan is None:
        raise LoweringError(f"no bulk copy from {src.buffer.name} any more", loc=stmt.loc)
    first = scope.plain_offset(dst.buffer, dst.starts)
    done = _barrier(barrier, scope)
    own, further, further_offset = _of_one_block(plan, parts)
    hints = _hints(plan, src.buffer, (("parts", parts),) if parts > 1 else ())
    result: list[Stmt] = []
    for piece in own:
        offset = _sum(scope, first, piece.offset, further_offset)
        to = Region(scope.lane_buffer(dst.buffer), (offset,), (None,))
        at = tuple(
            _sum(scope, start, shift, step)
            for start, shift, step in zip(src.starts, piece.at, further, strict=True)
        )
        result.append(Intrinsic("bulk.load", (to, done, *at), hints, stmt.loc))
    return tuple(result)


def lower_bulk_windows(stmt: Intrinsic, scope: LaneScope) -> Block:
    """Lower ``bulk.load_windows`` of (image, destination region, row, column, barrier).

    A piece is pixels of windows that follow one another, by channels of one pixel in them. Its
    coordinates are the first window's first pixel and the distance to the pixel that is read:
    ``(dst, barrier, n, y, x, c, dy, dx)``. Columns behind the last window's are read behind the
    last image, where there are zeros.

    Raises:
        LoweringError: the backend does not take the copy any more.
    """
    windows, dst, row, column = windows_of(stmt)
    barrier = stmt.args[-1]
    assert isinstance(barrier, Region)
    src = Region(matrix(windows, f"{windows.image.name}_windows"), (row, column), dst.shape)
    plan = _plan(AsyncCopyRequest(Copy(src, dst), scope.kernel, windows=windows), scope)
    if plan is None or plan.refused:
        raise LoweringError(f"no bulk copy of windows of {windows.image.name}", loc=stmt.loc)
    first = scope.plain_offset(dst.buffer, dst.starts)
    done = _barrier(barrier, scope)
    hints = _hints(plan, windows.image, stmt.hints)
    result: list[Stmt] = []
    for piece in plan.pieces:
        offset = _sum(scope, first, piece.offset, 0)
        to = Region(scope.lane_buffer(dst.buffer), (offset,), (None,))
        at = windows.place(
            *(
                binary("add", start, const(shift, dtype_of_expr(start)))
                for start, shift in zip((row, column), piece.at, strict=True)
            )
        )
        dtype = dtype_of_expr(at.n)
        behind = as_dtype(windows.image.shape[0], dtype)
        image = Select(at.column_fits, at.n, behind, dtype)
        below = Select(at.column_fits, at.dy, const(0, dtype), dtype)
        places = (scope.simplify(c) for c in (image, at.y, at.x, at.c, below, at.dx))
        result.append(Intrinsic(LOAD_WINDOWS, (to, done, *places), hints, stmt.loc))
    return tuple(result)


def _plan(request: AsyncCopyRequest, scope: LaneScope) -> BulkCopyPlan | None:
    return scope.context.hooks.call(
        "tilecore_plan_bulk_copy", request=request, target=scope.context.target
    )


def _hints(plan: BulkCopyPlan, tensor: Buffer, own: Hints) -> Hints:
    """What the backend's rule for the operation is told, besides hints of its `own`."""
    box = "x".join(str(extent) for extent in plan.box)
    return tuple(sorted((*own, ("box", box), ("kind", plan.kind), ("tensor", tensor.name))))


def _barrier(region: Region, scope: LaneScope) -> Region:
    """The barrier that a load completes on, in the lane's memory."""
    at = scope.offset(region.buffer, region.starts)
    return Region(scope.lane_buffer(region.buffer), (at,), (None,))


RANK = Call("cluster.rank", (), int32)
"""Number of the block in its cluster."""


def _of_one_block(
    plan: BulkCopyPlan, parts: int
) -> tuple[tuple[BulkPiece, ...], tuple[int, ...], int]:
    """The first block's pieces, and how far a block's are from those of the block before it."""
    count = len(plan.pieces) // parts
    own = plan.pieces[:count]
    if parts == 1:
        return own, (0,) * len(plan.box), 0
    next_one = plan.pieces[count]
    step = tuple(b - a for a, b in zip(own[0].at, next_one.at, strict=True))
    return own, step, next_one.offset - own[0].offset


def _sum(scope: LaneScope, start: Expr, shift: int, per_rank: int) -> Expr:
    total = binary("add", start, const(shift))
    if per_rank:
        total = binary("add", total, binary("mul", RANK, const(per_rank)))
    return scope.simplify(total)


def lower_bulk_store_fragment(stmt: Intrinsic, scope: LaneScope) -> Block:
    """Lower ``bulk.store_fragment`` of (fragment, destination region, staging buffer), or
    ``bulk.store_held`` of (fragment, held words, destination region, staging buffer, part).

    The lane's registers, the staging buffer and the destination's coordinates; how the groups of
    lanes take turns is the backend's.

    Raises:
        LoweringError: the backend does not take the copy any more.
    """
    src, *held, dst, staging = (arg for arg in stmt.args if isinstance(arg, Region))
    plan = _plan(AsyncCopyRequest(Copy(src, dst), scope.kernel), scope)
    if plan is None or plan.staging is None:
        raise LoweringError(f"no bulk copy to {dst.buffer.name} any more", loc=stmt.loc)
    registers = _all_registers(held[0] if held else src, scope)
    part = tuple(arg for arg in stmt.args if isinstance(arg, Expr))
    args = (
        registers,
        Region(scope.lane_buffer(staging.buffer), (const(0),), (None,)),
        LANE,
        *(scope.simplify(number) for number in part),
        *(scope.simplify(start) for start in dst.starts),
    )
    kept = tuple(hint for hint in stmt.hints if hint[0] in ("adds", "later"))
    hints = _hints(plan, dst.buffer, (*kept, ("fragment", src.buffer.name)))
    return (Intrinsic(stmt.op, args, hints, stmt.loc),)


def lower_bulk_hold_fragment(stmt: Intrinsic, scope: LaneScope) -> Block:
    """Lower ``bulk.hold_fragment`` of (fragment, words, destination): registers to registers."""
    src, held, dst = (arg for arg in stmt.args if isinstance(arg, Region))
    args = (_all_registers(src, scope), _all_registers(held, scope))
    return (Intrinsic(stmt.op, args, (("dtype", str(dst.dtype)),), stmt.loc),)


def _all_registers(region: Region, scope: LaneScope) -> Region:
    """All that a lane holds of a fragment, or of registers of its own."""
    buffer = region.buffer
    zero: Expr = const(0)
    if buffer.scope is Scope.FRAGMENT:
        count = scope.fragment_layout(buffer).registers
    else:
        (count,) = buffer.static_shape or (1,)
    return Region(scope.lane_buffer(buffer), (zero,), (const(count),))
