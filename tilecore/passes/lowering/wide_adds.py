"""Atomic additions of neighbouring registers to neighbouring elements, as one operation.

    for i in unroll(0, 2): for e in unroll(0, 2): atomic add S[at + 2 i + e], c[r + 2 i + e]
      ->  lane.add c[r : +4] -> S[at : +4]

Each element is added atomically, as before. Targets that add several elements at once do so (one
request of a warp then covers whole lines); for the others it is the same sequence of additions.
"""

from __future__ import annotations

from tilecore.ir.buffers import Scope
from tilecore.ir.dtypes import bfloat16, float16, float32
from tilecore.ir.expr import Expr, Load, Var, const, substitute
from tilecore.ir.stmts import Atomic, Block, Intrinsic
from tilecore.passes.lowering.lane_nest import mentions, span
from tilecore.passes.lowering.lane_scope import LaneScope

OPERATION = "lane.add"
WIDEST = {float32: 4, float16: 2, bfloat16: 2}
"""Elements that one operation adds."""


def wide_add(
    body: Block, digits: tuple[tuple[Var, int], ...], valid: Expr, scope: LaneScope
) -> tuple[Block, int]:
    """The body of a nest's register loops, and how many of the innermost ones it replaces.

    Args:
        body: what the innermost loop holds.
        digits: the loops' variables and extents, outermost first.
        valid: under which condition the body is run.
        scope: what is known of the values.
    """
    if len(body) != 1 or not isinstance(body[0], Atomic):
        return body, 0
    stmt = body[0]
    dst, value = stmt.dst, stmt.value
    widest = WIDEST.get(dst.dtype, 1)
    if stmt.op != "add" or stmt.previous is not None or stmt.memory_order != "relaxed":
        return body, 0
    if dst.buffer.scope is not Scope.GLOBAL or not isinstance(value, Load):
        return body, 0
    source = value.buffer
    if source.scope is not Scope.LOCAL or source.dtype != dst.dtype or len(value.indices) != 1:
        return body, 0
    memory, register = dst.starts[0], value.indices[0]
    width, taken = 1, 0
    for digit, extent in reversed(digits):
        strides = tuple(scope.ranges.regrouped(at).step(digit) for at in (memory, register))
        if width * extent > widest or strides != (width, width) or mentions(valid, digit):
            break
        width, taken = width * extent, taken + 1
    zeros: dict[Var, Expr] = {digit: const(0) for digit, _ in digits[len(digits) - taken :]}
    memory, register = (substitute(at, zeros) for at in (memory, register))
    if width not in (2, 4) or scope.multiple(memory) % width:
        return body, 0
    args = (span(source, register, width), span(dst.buffer, memory, width))
    return (Intrinsic(OPERATION, args, (), stmt.loc),), taken
