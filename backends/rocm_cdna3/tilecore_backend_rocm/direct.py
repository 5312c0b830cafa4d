"""Loads from global memory straight to LDS, where a compilation asks for them.

``buffer_load_dword ... lds`` moves 4 bytes a lane (gfx942 has no wider form) to LDS at M0 plus 4
times the lane's number: what a wavefront loads lies side by side. So the tile must have no gaps,
and a swizzled layout is read in its own order: lanes swizzle what they load instead of where it
goes (`tilecore.passes.memory_order`). Against registers, 16 bytes a lane: no registers wait, no
LDS instruction stores, but four times as many loads are issued. Which is faster was never measured:
option ``direct_to_lds`` of `CompileOptions.extra` chooses these, copies go through registers
without it. Tiles that are turned on their way to LDS, ragged rows of odd length and buffers that a
descriptor does not reach go through registers all the same.
"""

from __future__ import annotations

import math

from tilecore.hooks.records import AsyncCopyAtom, AsyncCopyRequest, CompileOptions
from tilecore.ir.layout import Layout
from tilecore.ir.program import Kernel
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import Copy
from tilecore.passes.async_copies import piece
from tilecore.passes.lowering.bounded_moves import LARGEST_BYTES
from tilecore.passes.memory_order import is_dense

OPTION = "direct_to_lds"
LANES = 64
BYTES = 4
DIRECT = AsyncCopyAtom("buffer_load_dword lds", (BYTES,), in_lane_order=True)


def is_asked_for(options: CompileOptions) -> bool:
    """True when the compilation wishes direct loads."""
    return bool(dict(options.extra).get(OPTION))


def lower_async_copy(request: AsyncCopyRequest) -> AsyncCopyAtom | None:
    """Direct loads where they are asked for and legal; None goes through registers."""
    if not is_asked_for(request.options) or not is_direct(request.copy, request.kernel):
        return None
    return DIRECT


def is_direct(copy: Copy, kernel: Kernel) -> bool:
    """True when the instruction can do `copy`."""
    src, dst = copy.src, copy.dst
    if not copy.fills_shared or kernel.threads % LANES:
        return False
    if src.dtype != dst.dtype or not 8 <= src.dtype.bits <= 32:
        return False
    shape = src.buffer.static_shape
    if shape is None or 0 in shape or src.buffer.strides is not None or src.buffer.safe_value:
        return False
    layout = kernel.layout_of(dst.buffer)
    if src.static_shape is None or src.static_shape != dst.static_shape or not src.shape:
        return False
    if src.axes[-1] != src.buffer.rank - 1 or dst.axes[-1] != dst.buffer.rank - 1:
        return False
    in_reach = math.prod(shape) * src.dtype.bytes <= LARGEST_BYTES
    elements = BYTES // src.dtype.bytes
    return (
        in_reach
        and isinstance(layout, Layout)
        and piece(src, dst, layout, Ranges()) % elements == 0
        and is_dense(dst, layout, BYTES, kernel.threads)
    )
