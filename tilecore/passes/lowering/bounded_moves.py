"""Vector accesses to global memory whose bounds the hardware checks: no branch, no lane left out.

    if row < M and column < K: lane.move A[offset : +8] -> a       else: a <- 0
      ->  lane.move_bounded A[offset : +8] -> a, column < K        (elements: M * K)

For targets with the capability ``bounded_access``: their accesses name the buffer's size, and give
zeros, or write nothing, outside of it. A row beyond the last one lies outside by itself, so its
test is dropped; what else is tested goes along as a condition, which the target folds into the
offset. Only for buffers of constant size whose offsets fit 32 bits; the others keep their guards.
"""

from __future__ import annotations

import math

from tilecore.errors import Loc
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import TRUE, Const, Expr, all_of, binary, const, dtype_of_expr
from tilecore.ir.stmts import Intrinsic
from tilecore.passes.lowering.lane_scope import LaneScope

CAPABILITY = "bounded_access"
OPERATION = "lane.move_bounded"
LARGEST_BYTES = 2**31 - 1
"""Of a buffer, and of offsets beyond its end: signed and unsigned 32-bit offsets both hold them."""


def is_bounded(buffer: Buffer, scope: LaneScope, loads: bool) -> bool:
    """True when accesses to `buffer` may be left to the hardware's check."""
    shape = buffer.static_shape
    if buffer.scope is not Scope.GLOBAL or not scope.context.target.has(CAPABILITY):
        return False
    if shape is None or 0 in shape or buffer.strides is not None or (loads and buffer.safe_value):
        return False
    return math.prod(shape) * buffer.dtype.bytes <= LARGEST_BYTES


def needed_test(buffer: Buffer, indices: tuple[Expr, ...], offset: Expr, scope: LaneScope) -> Expr:
    """What must hold besides the hardware's check, of an access at `indices` (linear: `offset`)."""
    high = scope.ranges.interval(offset)[1]
    checked_by_size = (high + 16) * buffer.dtype.bytes <= LARGEST_BYTES
    needed: list[Expr] = []
    for axis, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
        dtype = dtype_of_expr(index)
        assert isinstance(extent, Const), "bounded buffers are of constant size"
        tests = [binary("ge", index, const(0, dtype))]
        if axis > 0 or not checked_by_size:
            tests.append(binary("lt", index, const(extent.value, dtype)))
        needed += [test for test in tests if not scope.ranges.proves(test)]
    return all_of(scope.simplify(test) for test in needed)


def bounded_move(
    source: Region, target: Region, buffer: Buffer, test: Expr, loc: Loc | None
) -> Intrinsic:
    """The access; `buffer` is the global one of the two sides."""
    elements = math.prod(buffer.static_shape or ())
    args: tuple[Expr | Region, ...] = (source, target) if test == TRUE else (source, target, test)
    return Intrinsic(OPERATION, args, (("elements", elements),), loc)
