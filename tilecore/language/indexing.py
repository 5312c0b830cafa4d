"""``A[i, a:b, -1]``: from what stands in the brackets to a region of the buffer."""

from __future__ import annotations

from typing import Any

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Const, Expr, Load, binary, const
from tilecore.language.linear import difference
from tilecore.language.locate import fail
from tilecore.language.operators import as_index, same_index_dtype
from tilecore.language.values import BufferValue, Cell, RegionValue, Scalar, shape_text


def make_region(buffer: Buffer, key: Any) -> Region:
    """The region that `key` selects; points where it holds scalars, ranges where slices.

    Raises:
        LanguageError: wrong number of indices, a float index, a step, or a constant index outside
            the buffer.
    """
    entries = list(key) if isinstance(key, tuple) else [key]
    if any(entry is Ellipsis for entry in entries):
        at = next(k for k, entry in enumerate(entries) if entry is Ellipsis)
        missing = buffer.rank - (len(entries) - 1)
        entries[at : at + 1] = [slice(None)] * max(missing, 0)
    if len(entries) != buffer.rank:
        fail(
            f"wrong number of indices for {buffer.name}",
            expected=f"{buffer.rank} for shape {shape_text(buffer.shape)}",
            got=len(entries),
        )
    starts: list[Expr] = []
    extents: list[Expr | None] = []
    for axis, entry in enumerate(entries):
        if isinstance(entry, slice):
            start, extent = _range(buffer, axis, entry)
            starts.append(start)
            extents.append(extent)
        else:
            starts.append(_point(buffer, axis, entry))
            extents.append(None)
    return Region(buffer, tuple(starts), tuple(extents))


def _point(buffer: Buffer, axis: int, entry: Any) -> Expr:
    what = f"index {axis} of {buffer.name}"
    index = _from_end(buffer, axis, as_index(entry, what), what)
    extent = buffer.shape[axis]
    if isinstance(index, Const) and isinstance(extent, Const) and index.value >= extent.value:
        fail(f"{what} is outside the buffer", expected=f"0 to {extent.value - 1}", got=index.value)
    return index


def _from_end(buffer: Buffer, axis: int, index: Expr, what: str) -> Expr:
    """A negative constant counts from the end, as in Python."""
    if not (isinstance(index, Const) and index.value < 0):
        return index
    extent, offset = same_index_dtype(buffer.shape[axis], index)
    result = binary("add", extent, offset)
    if isinstance(result, Const) and result.value < 0:
        fail(
            f"{what} is outside the buffer",
            expected=f"at least {-extent.value}",  # type: ignore[attr-defined]
            got=index.value,
        )
    return result


def _range(buffer: Buffer, axis: int, entry: slice) -> tuple[Expr, Expr]:
    what = f"slice {axis} of {buffer.name}"
    if entry.step is not None and not (isinstance(entry.step, int) and entry.step == 1):
        fail(f"{what} has a step", expected="no step, or 1", got=entry.step)
    size = buffer.shape[axis]
    zero = const(0, int32)
    start = zero if entry.start is None else as_index(entry.start, what)
    stop = size if entry.stop is None else as_index(entry.stop, what)
    start, stop = (_from_end(buffer, axis, bound, what) for bound in (start, stop))
    extent = stop if start == zero else difference(stop, start)
    if isinstance(extent, Const) and extent.value < 0:
        fail(
            f"{what} ends before it starts", expected="start <= stop", got=f"extent {extent.value}"
        )
    if buffer.scope is not Scope.GLOBAL:
        _check_on_chip(what, start, extent, size)
    return start, extent


def _check_on_chip(what: str, start: Expr, extent: Expr, size: Expr) -> None:
    if isinstance(start, Const) and isinstance(extent, Const) and isinstance(size, Const):
        stop = start.value + extent.value
        if stop > size.value:
            fail(f"{what} reaches outside the buffer", expected=f"at most {size.value}", got=stop)


def assign_region(region: Region, value: Any) -> None:
    """``A[key] = value``: a store, a fill with a scalar, or a copy of a tile."""
    from tilecore.language.builder import current
    from tilecore.language.tile_ops import copy, fill

    if not region.axes:
        if isinstance(value, BufferValue | RegionValue):
            fail("a tile cannot be stored in one element", got=value.description)
        current().store(region.buffer, region.starts, value)
    elif isinstance(value, BufferValue | RegionValue):
        copy(value, RegionValue(region))
    else:
        fill(RegionValue(region), value)


def element_of(value: Any) -> tuple[Buffer, tuple[Expr, ...]] | None:
    """(buffer, indices) when `value` is one element of a buffer, else None."""
    if isinstance(value, Cell):
        return value.buffer, value.indices
    if isinstance(value, Scalar) and isinstance(value.expr, Load):
        return value.expr.buffer, value.expr.indices
    return None


def whole(buffer: Buffer) -> Region:
    """All of a buffer as a region."""
    return Region(buffer, tuple(const(0, int32) for _ in buffer.shape), buffer.shape)
