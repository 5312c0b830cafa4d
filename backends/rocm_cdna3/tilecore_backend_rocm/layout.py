"""LDS layouts without bank conflicts for 16-byte accesses.

LDS has 32 banks of 4 bytes: 128 bytes a clock, so ds_read_b128 serves 8 lanes at a time. MFMA
operands are read 16 bytes a lane, one row a lane: 8 lanes of one clock name the same 16-byte column
of 8 different rows. Which 8 depends on the instruction (measured elsewhere for b128: lanes 0-3 with
12-15, 20-27, ...), but always eight rows that differ modulo 8. XORing the column's number with the
row's number modulo 8 gives each of them banks of its own, and a copy that writes neighbouring
columns of a row keeps them apart, too. Rows are cut into panels of 128 bytes (64, 32 where rows are
narrower).

MFMA wants runs of k. An operand that is stored with k along its rows (V of attention, B of a plain
product) is turned on its way through registers (`tilecore.passes.register_ahead`): LDS keeps its
columns together. Then lanes read neighbouring columns, 8 or 16 bytes of each, and write 8 bytes of
every eighth column. With j = column % 8 and i = column // 8, columns begin at words
``j * s1 + i * s2``: s1 an odd multiple of 4 puts eight columns that are read together on different
banks, s2 = 2 modulo 32 sets two such groups apart, and sixteen that are written together.
"""

from __future__ import annotations

from tilecore.hooks.records import LayoutRequest
from tilecore.ir.buffers import Scope
from tilecore.ir.layout import Layout, Mode
from tilecore.ir.stmts import Copy, For, Gemm, LoopKind, Stmt
from tilecore.ir.visit import walk_stmts
from tilecore.passes.register_ahead import can_wait, crosswise_columns
from tilecore.passes.swizzled_layouts import swizzled_panels

TURNED_BYTES = 8
"""What a lane writes of one column at once."""


def choose_layout(request: LayoutRequest) -> Layout | None:
    """A swizzled layout for buffers that a gemm reads; None (row-major) for all others."""
    buffer = request.buffer
    shape = buffer.static_shape
    if shape is None or len(shape) < 2 or not any(isinstance(s, Gemm) for s in request.uses):
        return None
    if buffer.dtype.bits < 8 or buffer.dtype.bytes > 8:
        return None
    gemms = [s for s in request.uses if isinstance(s, Gemm)]
    turned = all(_wants_columns(gemm, buffer.name) for gemm in gemms) and _is_turned(request)
    if turned and not request.is_tight:  # columns that begin on banks of their own have gaps
        from_registers = any(Scope.FRAGMENT in (g.a.buffer.scope, g.b.buffer.scope) for g in gemms)
        return columns_together(shape, buffer.dtype.bytes, 8 if from_registers else 16)
    return swizzled_panels(shape, buffer.dtype.bytes)


def _wants_columns(gemm: Gemm, name: str) -> bool:
    """True when the gemm's k runs along the rows axis of the buffer, in all of its uses there."""
    uses = [
        transposed == along_rows
        for region, transposed, along_rows in (
            (gemm.a, gemm.transpose_a, True),
            (gemm.b, gemm.transpose_b, False),
        )
        if region.buffer.name == name
    ]
    return bool(uses) and all(uses)


def _is_turned(request: LayoutRequest) -> bool:
    """True when all that is written comes through registers in a pipelined loop."""
    name, element_bytes = request.buffer.name, request.buffer.dtype.bytes
    rows = TURNED_BYTES // element_bytes
    if rows < 4 or request.buffer.rank != 2:
        return False
    writers = [s for s in request.uses if isinstance(s, Copy) and s.dst.buffer.name == name]
    loops = [s for s in walk_stmts(request.kernel.body) if _overlaps(s)]
    ahead = [s for loop in loops for s in loop.body]  # type: ignore[attr-defined]
    return bool(writers) and all(
        copy in ahead
        and can_wait(copy)
        and copy.src.dtype == copy.dst.dtype
        and copy.dst.static_shape == request.buffer.static_shape
        and int(copy.dst.shape[0].value) % rows == 0  # type: ignore[attr-defined]
        and crosswise_columns(copy, rows, request.kernel.threads) > 0
        for copy in writers
    )


def _overlaps(stmt: Stmt) -> bool:
    return (
        isinstance(stmt, For)
        and stmt.kind is LoopKind.PIPELINED
        and stmt.pipeline is not None
        and stmt.pipeline.num_stages >= 1
    )


def columns_together(shape: tuple[int, ...], element_bytes: int, read_bytes: int) -> Layout:
    """A layout whose columns are contiguous, without bank conflicts for the accesses named above.

    Args:
        shape: (rows, columns); columns a multiple of 8.
        element_bytes: of one element.
        read_bytes: what one lane reads at once, 8 or 16; 16 needs all columns aligned to it.
    """
    rows, columns = shape
    words = -(-rows * element_bytes // 4)
    step = -(-words // 4)
    step = 4 * (step + 1 - step % 2)
    group = 8 * step + (2 if read_bytes == 8 else 4)
    per_word = 4 // element_bytes
    across = (Mode(8, step * per_word), Mode(columns // 8, group * per_word))
    return Layout(((Mode(rows, 1),), across))
