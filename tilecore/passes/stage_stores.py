"""Send narrow stores of a fragment through shared memory, so that they leave as whole lines.

An MMA accumulator gives each lane two neighbouring elements of a row; for 16-bit results a row of
lanes then writes 16 bytes at a time, half of a memory sector. Shared memory that nobody uses any
more at that point turns them into 16 bytes a lane:

    copy c -> C[...]   ->   shared c_out; copy c -> c_out; copy c_out -> C[...]

Only where the scratch fits in what the kernel's buffers take anyway, and outside of loops. Rows are
padded by 16 bytes, which keeps both sides free of bank conflicts.
"""

from __future__ import annotations

import dataclasses
import math

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Scope
from tilecore.ir.layout import REGISTER, THREAD, FragmentLayout, Layout
from tilecore.ir.program import Kernel, Program
from tilecore.ir.stmts import Allocate, Block, Copy, For, WarpScope, While
from tilecore.ir.visit import buffers_in
from tilecore.passes.async_copies import global_piece
from tilecore.passes.plan_shared_memory import size_of
from tilecore.passes.scopes import Names, is_whole, per_kernel, rewrite_block, static, whole

SECTOR_BYTES = 32
VECTOR_BYTES = 16
_SMALLEST_TILE_BYTES = 4096


def stage_stores(program: Program, context: Context) -> Program:
    """See the module's text."""
    names = Names(program)

    def visit_kernel(kernel: Kernel) -> Kernel:
        layouts = dict(kernel.layouts)
        room = sum(
            size_of(buffer, layout)
            for buffer in buffers_in(kernel.body)
            if buffer.scope is Scope.SHARED and isinstance(layout := layouts[buffer.name], Layout)
        )
        room = min(room, context.target.smem_bytes or room)

        def visit(stmt: object) -> Block | None:
            if isinstance(stmt, For | While | WarpScope):
                return (stmt,)  # loops would pay for barriers each time, roles cannot meet at them
            if not isinstance(stmt, Copy) or not _is_narrow(stmt, kernel):
                return None
            dst, dtype = stmt.dst, stmt.dst.dtype
            rows, columns = static(stmt.src)
            stride = columns + VECTOR_BYTES // dtype.bytes
            if rows * stride * dtype.bytes > room or not global_piece(dst, 16 // dtype.bytes):
                return None
            base = f"{stmt.src.buffer.name}_out"
            out = names.buffer(base, (rows, columns), dtype, Scope.SHARED)
            layouts[out.name] = Layout.strided((rows, columns), (stride, 1))
            first, second = (
                Copy(stmt.src, whole(out), (), stmt.loc),
                Copy(whole(out), dst, (), stmt.loc),
            )
            return (Allocate(out, loc=stmt.loc), first, second)

        body = rewrite_block(kernel.body, visit)
        return dataclasses.replace(kernel, body=body, layouts=tuple(sorted(layouts.items())))

    return per_kernel(program, visit_kernel)


def _is_narrow(copy: Copy, kernel: Kernel) -> bool:
    """True for a whole two-dimensional fragment whose lanes write less than a sector together."""
    src, dst = copy.src, copy.dst
    layout = kernel.layout_of(src.buffer)
    if src.buffer.scope is not Scope.FRAGMENT or dst.buffer.scope is not Scope.GLOBAL:
        return False
    if not isinstance(layout, FragmentLayout) or not is_whole(src) or len(src.shape) != 2:
        return False
    if dst.axes[-1] != dst.buffer.rank - 1 or layout.replicas > 1:
        return False
    columns = static(src)[1] * dst.dtype.bytes
    if columns % VECTOR_BYTES or math.prod(static(src)) * dst.dtype.bytes < _SMALLEST_TILE_BYTES:
        return False
    run = 1
    for mode, space in zip(layout.axes[1], (REGISTER, THREAD), strict=False):
        if mode.space != space:
            return False
        run *= mode.extent
    return run * dst.dtype.bytes < SECTOR_BYTES
