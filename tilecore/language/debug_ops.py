"""T.print and T.device_assert."""

from __future__ import annotations

from typing import Any

from tilecore.ir.buffers import Region
from tilecore.ir.expr import Expr
from tilecore.ir.stmts import Assert, Print
from tilecore.language import operators as ops
from tilecore.language.builder import current
from tilecore.language.locate import caller_loc, fail
from tilecore.language.regions import region_of
from tilecore.language.values import BufferValue, RegionValue


def print_(obj: Any = None, msg: str = "", warp_group_id: int = 0, warp_id: int = 0) -> None:
    """Print `msg`, then a scalar or a whole buffer, once per block."""
    del warp_group_id, warp_id  # one lane prints; which one never shows
    builder = current()
    builder.require_kernel("T.print")
    if isinstance(obj, str) and not msg:
        obj, msg = None, str(obj)
    value: Expr | Region | None = None
    if isinstance(obj, BufferValue | RegionValue):
        if builder.inside("parallel"):
            fail("T.print of a buffer inside T.Parallel", expected="a scalar")
        value = region_of(obj, "argument of T.print")
    elif obj is not None:
        value = ops.as_expr(obj, "argument of T.print")
    builder.emit(Print(str(msg), value, caller_loc()))


def device_assert(cond: Any, msg: str = "", no_stack_info: bool = False) -> None:
    """Stop the kernel with `msg` when `cond` is false."""
    del no_stack_info  # the author's line is always reported
    builder = current()
    builder.require_kernel("T.device_assert")
    builder.emit(Assert(ops.truth(cond), str(msg) or "device assertion failed", caller_loc()))
