"""Rules about regions, and about shapes that must agree."""

from __future__ import annotations

from collections.abc import Sequence

from tilecore.ir.buffers import Region
from tilecore.ir.expr import Const, Expr
from tilecore.ir.verifier.exprs import check_integer
from tilecore.ir.verifier.state import State


def check_region(region: Region, state: State) -> None:
    """A region has an entry per axis. Where it begins and ends is free: what lies outside its
    buffer is guarded, and an iteration that is taken out of its loop may be all outside.

    Raises:
        TilecoreError: of the class that `State.fail` chooses.
    """
    buffer = region.buffer
    state.use_buffer(buffer)
    if len(region.starts) != buffer.rank or len(region.extents) != buffer.rank:
        state.fail(f"a region of {buffer.name} has the wrong rank", buffer.rank, len(region.starts))
    for start, extent in zip(region.starts, region.extents, strict=True):
        check_integer(start, state, f"a region's start in {buffer.name}")
        if extent is not None:
            check_integer(extent, state, f"a region's extent in {buffer.name}")
            if isinstance(extent, Const) and extent.value < 0:
                state.fail(f"a region of {buffer.name} is negative", "0 or more", extent.value)


def shape_text(shape: Sequence[Expr]) -> str:
    """A shape for messages: numbers, and ? for what is dynamic."""
    texts = (str(e.value) if isinstance(e, Const) else "?" for e in shape)
    return f"({', '.join(texts)})"


def differ(a: Expr, b: Expr) -> bool:
    """True when two extents are certainly different."""
    return isinstance(a, Const) and isinstance(b, Const) and a.value != b.value


def check_same_shape(a: Sequence[Expr], b: Sequence[Expr], state: State, what: str) -> None:
    """Two shapes have the same rank, and no axis on which they certainly differ."""
    if len(a) != len(b) or any(differ(x, y) for x, y in zip(a, b, strict=True)):
        state.fail(f"{what} between different shapes", shape_text(a), shape_text(b))
