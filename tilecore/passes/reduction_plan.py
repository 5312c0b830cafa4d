"""How a reduction crosses lanes, read off the source's layout.

Along the reduced axis, register modes are summed in the lane; thread modes of power-of-two
extent that stay inside a warp by exchanges between lanes; all other thread modes through a
scratch buffer in shared memory, in a fixed order, so that every lane gets the same bits.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.layout import THREAD, FragmentLayout, FragmentMode
from tilecore.ir.program import Kernel, Program
from tilecore.ir.reductions import accumulator_dtype
from tilecore.ir.stmts import Allocate, Block, Intrinsic, Reduce, Stmt
from tilecore.passes.scopes import Names, per_kernel, rewrite_block, static, whole


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """Crossing of lanes in one reduction.

    Attributes:
        masks: lane masks of exchanges inside a warp.
        across: thread modes that go through scratch.
    """

    masks: tuple[int, ...]
    across: tuple[FragmentMode, ...]

    @property
    def parts(self) -> int:
        """Partial results per element in scratch."""
        return math.prod(mode.extent for mode in self.across)


def plan_reduction(layout: FragmentLayout, axis: int, warp: int) -> ReductionPlan:
    """The plan of reducing `axis` of a fragment."""
    masks: list[int] = []
    across: list[FragmentMode] = []
    for mode in layout.axes[axis]:
        if mode.space != THREAD or mode.extent == 1:
            continue
        is_binary = mode.extent & (mode.extent - 1) == 0 and mode.stride & (mode.stride - 1) == 0
        inside = max(1, min(mode.extent, warp // mode.stride)) if is_binary else 1
        step = mode.stride
        for _ in range(inside.bit_length() - 1):
            masks.append(step)
            step *= 2
        if inside < mode.extent:
            across.append(FragmentMode(mode.extent // inside, THREAD, mode.stride * inside))
    return ReductionPlan(tuple(masks), tuple(across))


def reduction_plan(program: Program, context: Context) -> Program:
    """Give reductions that need it their scratch: ``tile.reduce`` with a third region.

    The intrinsic's hints are the Reduce's fields.
    """
    names = Names(program)
    warp = context.target.lanes_per_warp

    def visit_kernel(kernel: Kernel) -> Kernel:
        layouts = dict(kernel.layouts)

        def visit(stmt: Stmt) -> Block | None:
            if not isinstance(stmt, Reduce):
                return None
            layout = layouts[stmt.src.buffer.name]
            assert isinstance(layout, FragmentLayout)
            plan = plan_reduction(layout, stmt.axis, warp)
            if not plan.across:
                return None
            scratch = _scratch(stmt, plan, names)
            hints = (
                ("axis", stmt.axis),
                ("clear", stmt.clear),
                ("nan_propagate", stmt.nan_propagate),
                ("op", stmt.op),
            )
            args = (stmt.dst, stmt.src, whole(scratch))
            return (
                Allocate(scratch, loc=stmt.loc),
                Intrinsic("tile.reduce", args, hints, stmt.loc),
            )

        return dataclasses.replace(kernel, body=rewrite_block(kernel.body, visit))

    return per_kernel(program, visit_kernel)


def reduce_of(intrinsic: Intrinsic) -> tuple[Reduce, Region]:
    """The Reduce and the scratch of a ``tile.reduce``."""
    dst, src, scratch = intrinsic.args
    hints = dict(intrinsic.hints)
    assert isinstance(dst, Region) and isinstance(src, Region) and isinstance(scratch, Region)
    reduce = Reduce(
        str(hints["op"]), src, dst, int(hints["axis"]), bool(hints["clear"]),
        bool(hints["nan_propagate"]), intrinsic.loc,
    )  # fmt: skip
    return reduce, scratch


def _scratch(stmt: Reduce, plan: ReductionPlan, names: Names) -> Buffer:
    dtype = accumulator_dtype(stmt.op, stmt.dst.dtype)
    elements = max(1, math.prod(static(stmt.dst)))
    base = f"{stmt.dst.buffer.name}_partial"
    return names.buffer(base, (plan.parts, elements), dtype, Scope.SHARED)
