"""Which products run as steps: operands read where they lie, packed panel by panel.

copy A[...] -> a          one step of the loop, if nothing else touches a and b:
copy B[...] -> b   =>         c += A[...] @ B[...]
gemm a, b -> c            and if the loop does only this and is followed by
                          copy c -> C[...], the last step writes there, too
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilecore.ir.buffers import Region, Scope
from tilecore.ir.expr import Const
from tilecore.ir.layout import Layout
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Block, Copy, For, Gemm, If, Let, Stmt, While
from tilecore.ir.visit import walk_stmts

from .analysis import Interval, interval
from .gemm_kernels import GemmPlan, plan_gemm
from .host import HostCpu
from .operands import covers_buffer, mentions, sole_copy
from .storage import plain_strides

_LEAST_ROW_BLOCKS = 4
"""A panel packed for fewer row blocks costs more than the step saves."""


@dataclass(frozen=True, slots=True)
class GemmStep:
    """A product, the copies of its operands, and the loop and the copy of its result that follow
    it, if they do."""

    a: Copy
    b: Copy
    gemm: Gemm
    loop: For | None = None
    result: Copy | None = None


def find_steps(kernel: Kernel, layouts: Mapping[str, Layout], cpu: HostCpu) -> dict[str, GemmStep]:
    """The steps of a kernel, by the name of the buffer that holds A."""
    stmts = list(walk_stmts(kernel.body))
    bounds = _Bounds(kernel, stmts)
    found: dict[str, GemmStep] = {}
    for block, loop, following in _blocks(kernel.body):
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
            if loop is not None and len(block) == 3 and _takes_result(gemm, following):
                assert isinstance(following, Copy)
                if not bounds.are_natural(following.dst):
                    continue
                step = GemmStep(a, b, gemm, loop, following)
            found[gemm.a.buffer.name] = step
    return found


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
    block: Block, loop: For | None = None, following: Stmt | None = None
) -> Iterator[tuple[Block, For | None, Stmt | None]]:
    """Every block, the loop whose body it is, and the statement after that loop."""
    yield block, loop, following
    for at, stmt in enumerate(block):
        after = block[at + 1] if at + 1 < len(block) else None
        match stmt:
            case For(body=body):
                yield from _blocks(body, stmt, after)
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
