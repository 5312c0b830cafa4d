"""Copies of windows by the tensor memory accelerator: which ones it takes, cut into which boxes.

Rules: PTX ISA, "Im2col mode" and CUDA driver API, ``cuTensorMapEncodeIm2col``. A box is a number of
windows by some channels of one pixel in each; a row of it is a row of a panel, so that a panel's
columns may not reach into the next pixel.
"""

from __future__ import annotations

from tilecore.hooks.records import AsyncCopyRequest, BulkCopyPlan, BulkPiece
from tilecore.ir.expr_text import format_expr
from tilecore.ir.layout import Layout
from tilecore.ir.simplify import known_multiple
from tilecore.ir.windows import Windows
from tilecore_backend_cuda_hopper.layout import Panels, panels_of
from tilecore_backend_cuda_hopper.window_map import MAX_PIXELS, over_limit


def plan_windows(request: AsyncCopyRequest, windows: Windows) -> BulkCopyPlan | None:
    """One box a panel, or why lanes must gather the windows; None for parts of a cluster."""
    if request.parts > 1:
        return None
    from tilecore_backend_cuda_hopper.copy import is_mappable

    dst = request.copy.dst
    layout = request.kernel.layout_of(dst.buffer)
    panels = panels_of(layout, dst.dtype, dst.axes) if isinstance(layout, Layout) else None
    if panels is None:
        return _refused("its layout in shared memory is not in panels")
    if not is_mappable(windows.image):
        wanted = "contiguous channels, other strides in multiples of 16 bytes"
        return _refused(f"{windows.image.name} needs {wanted}")
    reason = over_limit(windows) or _misfit(request, windows, panels)
    if reason:
        return _refused(reason)
    rows, columns = dst.static_shape or (0, 0)
    pieces = tuple(
        BulkPiece((0, at), number * panels.stride)
        for number, at in enumerate(range(0, columns, panels.columns))
    )
    return BulkCopyPlan(f"swizzle{panels.swizzle_bits}", (rows, panels.columns), pieces)


def _misfit(request: AsyncCopyRequest, windows: Windows, panels: Panels) -> str:
    """What keeps the boxes from being panels; empty when nothing does."""
    from tilecore_backend_cuda_hopper.copy import fills_panels

    src, dst = request.copy.src, request.copy.dst
    rows, _ = dst.static_shape or (0, 0)
    channels, width = windows.image.shape[3], panels.columns
    if known_multiple(channels) % width or known_multiple(src.starts[1]) % width:
        return f"{format_expr(channels)} channels are no multiple of a panel's {width} columns"
    if rows > MAX_PIXELS:
        return f"{rows} rows, at most {MAX_PIXELS}"
    layout = request.kernel.layout_of(dst.buffer)
    assert isinstance(layout, Layout)
    return "" if fills_panels(dst, layout, panels) else "its tile is no whole panels"


def _refused(why: str) -> BulkCopyPlan:
    return BulkCopyPlan("", (), refused=why)
