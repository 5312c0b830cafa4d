"""Which products run as steps: operands read where they lie, packed panel by panel.

copy A[...] -> a          one step of the loop, if nothing else touches a and b:
copy B[...] -> b   =>         c += A[...] @ B[...]
gemm a, b -> c            and if the loop does only this and is followed by
                          copy c -> C[...], the last step writes there, too
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Const
from tilecore.ir.layout import Layout
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Alias, Block, Copy, Fill, For, Gemm, If, Let, Stmt, While
from tilecore.ir.visit import walk_stmts

from .analysis import Interval, interval
from .gemm_kernels import GemmPlan, plan_gemm
from .host import HostCpu
from .operands import covers_buffer, mentions, sole_copy, written_buffer
from .storage import plain_strides

_LEAST_ROW_BLOCKS = 4
"""A panel packed for fewer row blocks costs more than the step saves."""


@dataclass(frozen=True, slots=True)
class GemmStep:
    """A product and the copies of its operands.

    Where these are all of a loop: the loop. The statement before them, or before that loop, if it
    sets the sums to zero; and the copy of the result behind, if there is one. `is_private` says
    that no other statement names the sums.
    """

    a: Copy
    b: Copy
    gemm: Gemm
    loop: For | None = None
    fill: Fill | None = None
    result: Copy | None = None
    is_private: bool = False


Neighbours = tuple[Stmt | None, Stmt | None]
"""The statements before and after others, in their block."""


def find_steps(kernel: Kernel, layouts: Mapping[str, Layout], cpu: HostCpu) -> dict[str, GemmStep]:
    """The steps of a kernel, by the name of the buffer that holds A."""
    stmts = list(walk_stmts(kernel.body))
    bounds = _Bounds(kernel, stmts)
    found: dict[str, GemmStep] = {}
    for block, loop, around in _blocks(kernel.body):
        for at in range(len(block) - 2):
            first, second, gemm = block[at : at + 3]
            if not (
                isinstance(first, Copy) and isinstance(second, Copy) and isinstance(gemm, Gemm)
            ):
                continue
            copies = {first.dst.buffer.name: first, second.dst.buffer.name: second}
            a, b = copies.get(gemm.a.buffer.name), copies.get(gemm.b.buffer.name)
            if a is None or b is None or a is b:
                continue
            step = GemmStep(a, b, gemm)
            if not _is_step(step, stmts, layouts, cpu) or not (
                bounds.are_natural(a.src) and bounds.are_natural(b.src)
            ):
                continue
            if loop is not None and len(block) == 3:
                step = _with_neighbours(replace(step, loop=loop), around, bounds, stmts)
            else:
                step = _with_neighbours(step, _neighbours(block, at, 3), bounds, stmts)
            found[gemm.a.buffer.name] = step
    return found


def _neighbours(block: Block, at: int, count: int = 1) -> Neighbours:
    """The statements before and after `count` statements of a block."""
    end = at + count
    return block[at - 1] if at > 0 else None, block[end] if end < len(block) else None


def _with_neighbours(
    step: GemmStep, around: Neighbours, bounds: _Bounds, stmts: list[Stmt]
) -> GemmStep:
    """The step with what of the statements before and after it, or its loop, belongs to it."""
    before, after = around
    gemm = step.gemm
    assert isinstance(gemm.clear_accum, Const)
    fill = result = None
    if isinstance(before, Fill) and not gemm.clear_accum.value and _clears(before, gemm):
        fill = before
    if isinstance(after, Copy) and _takes_result(gemm, after) and bounds.are_natural(after.dst):
        result = after
    own = (gemm, fill, result)
    others = (stmt for stmt in stmts if not any(stmt is one for one in own))
    is_private = not any(_uses(stmt, gemm.c.buffer) for stmt in others)
    return replace(step, fill=fill, result=result, is_private=is_private)


def _uses(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether a statement may read or write a buffer, under this name or another."""
    if isinstance(stmt, Alias) and buffer in (stmt.source, stmt.buffer):
        return True
    return mentions(stmt, buffer) or written_buffer(stmt) == buffer


def _clears(fill: Fill, gemm: Gemm) -> bool:
    """Whether a statement sets all of C to zero."""
    return (
        fill.dst.buffer == gemm.c.buffer
        and covers_buffer(fill.dst)
        and isinstance(fill.value, Const)
        and fill.value.value == 0
        and math.copysign(1.0, fill.value.value) > 0
    )


class _Bounds:
    """Ranges of the variables of a kernel."""

    def __init__(self, kernel: Kernel, stmts: list[Stmt]) -> None:
        self.definitions = {s.var.name: s.value for s in stmts if isinstance(s, Let)}
        self.ranges: dict[str, Interval] = {v.name: (0, math.inf) for v in kernel.grid_vars}
        for stmt in stmts:
            if isinstance(stmt, For):
                low = interval(stmt.start, self.ranges, self.definitions)[0]
                step = interval(stmt.step, self.ranges, self.definitions)[0]
                self.ranges[stmt.var.name] = (low if step >= 0 else -math.inf, math.inf)

    def are_natural(self, region: Region) -> bool:
        """Whether a region never begins before its buffer does."""
        starts = [interval(e, self.ranges, self.definitions) for e in region.starts]
        return all(low >= 0 for low, _ in starts)


def _blocks(
    block: Block, loop: For | None = None, around: Neighbours = (None, None)
) -> Iterator[tuple[Block, For | None, Neighbours]]:
    """Every block, the loop whose body it is, and the statements before and after that loop."""
    yield block, loop, around
    for at, stmt in enumerate(block):
        match stmt:
            case For(body=body):
                yield from _blocks(body, stmt, _neighbours(block, at))
            case While(body=body):
                yield from _blocks(body)
            case If(then=then, otherwise=otherwise):
                yield from _blocks(then)
                yield from _blocks(otherwise)
            case _:
                continue


def _is_step(
    step: GemmStep, stmts: list[Stmt], layouts: Mapping[str, Layout], cpu: HostCpu
) -> bool:
    gemm = step.gemm
    plan = plan_gemm(gemm.a.dtype, gemm.b.dtype, gemm.c.dtype, cpu)
    for copy, region in ((step.a, gemm.a), (step.b, gemm.b)):
        buffer = region.buffer
        if sole_copy(buffer, stmts) is not copy or not covers_buffer(region):
            return False
        if not _is_matrix(copy.src) or any(
            mentions(stmt, buffer) for stmt in stmts if stmt is not copy and stmt is not gemm
        ):
            return False
    if plan.a_dtype != gemm.a.dtype or (gemm.transpose_a and plan.kind != "fma"):
        return False
    if not isinstance(gemm.clear_accum, Const) or gemm.c.buffer in (gemm.a.buffer, gemm.b.buffer):
        return False
    return _is_large(gemm, plan) and _has_room(gemm, plan, layouts, cpu)


def _is_matrix(src: Region) -> bool:
    """Rows of contiguous elements, zero outside."""
    strides = src.buffer.strides
    is_contiguous = strides is None or (isinstance(strides[-1], Const) and strides[-1].value == 1)
    return (
        len(src.axes) == 2
        and src.axes[1] == src.buffer.rank - 1
        and is_contiguous
        and src.buffer.safe_value == 0
    )


def _is_large(gemm: Gemm, plan: GemmPlan) -> bool:
    shape = gemm.c.static_shape
    return (
        shape is not None
        and len(shape) == 2
        and (shape[0] >= _LEAST_ROW_BLOCKS * plan.m_block and shape[1] >= 2 * plan.n_block)
    )


def _has_room(gemm: Gemm, plan: GemmPlan, layouts: Mapping[str, Layout], cpu: HostCpu) -> bool:
    """Whether C is a tile of its own with room for whole register blocks."""
    c = gemm.c.buffer
    layout = layouts.get(c.name)
    if layout is None or c.scope is Scope.GLOBAL or c.rank != 2 or not covers_buffer(gemm.c):
        return False
    strides = plain_strides(layout)
    rows, columns = c.static_shape or (0, 0)
    row_step = 16 if plan.kind == "tile" else 1
    column_step = 16 if plan.kind == "tile" else cpu.lanes(max(32, c.dtype.bits))
    return (
        strides is not None
        and strides[1] == 1
        and layout.shape[0] >= -(-rows // row_step) * row_step
        and layout.shape[1] >= -(-columns // column_step) * column_step
    )


def _takes_result(gemm: Gemm, following: Stmt | None) -> bool:
    """Whether a statement copies all of C to a matrix in memory."""
    if not isinstance(following, Copy) or following.src.buffer != gemm.c.buffer:
        return False
    dst = following.dst
    strides = dst.buffer.strides
    return (
        covers_buffer(following.src)
        and dst.buffer.scope is Scope.GLOBAL
        and dst.static_shape == following.src.static_shape
        and len(dst.axes) == 2
        and dst.axes[1] == dst.buffer.rank - 1
        and (strides is None or (isinstance(strides[-1], Const) and strides[-1].value == 1))
        and dst.buffer.safe_value == 0
    )
