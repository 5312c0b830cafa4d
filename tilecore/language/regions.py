"""Arguments of tile operations: buffers, slices and head elements become regions that match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Const, Expr
from tilecore.language import operators as ops
from tilecore.language.indexing import element_of, whole
from tilecore.language.linear import is_equal
from tilecore.language.locate import fail
from tilecore.language.values import BufferValue, Cell, RegionValue, shape_text


def region_of(value: Any, what: str) -> Region:
    """The region that a buffer, a slice or a variable names.

    Raises:
        LanguageError: `value` is none of these.
    """
    if isinstance(value, RegionValue):
        return value.region
    if isinstance(value, BufferValue):
        return whole(value.buffer)
    if isinstance(value, Cell):
        return Region(value.buffer, value.indices, (None,) * len(value.indices))
    element = element_of(value)
    if element is None:
        fail(f"{what} is no tile", expected="a buffer or a slice of one", got=ops.describe(value))
    buffer, indices = element
    return Region(buffer, indices, (None,) * len(indices))


def is_head(value: Any) -> bool:
    """True for ``A[i, j]``, which says only where a tile begins."""
    return not isinstance(value, BufferValue | RegionValue | Cell) and element_of(value) is not None


def head_region(value: Any, shape: Sequence[Expr], what: str) -> Region:
    """The tile of `shape` that begins at a head element; it spans the last axes.

    Raises:
        LanguageError: more axes with extent than the buffer has.
    """
    element = element_of(value)
    assert element is not None
    buffer, indices = element
    extents = list(shape)
    while len(extents) > buffer.rank and _is_one(extents[0]):
        extents.pop(0)
    if len(extents) > buffer.rank:
        fail(
            f"{what} has fewer axes than the tile",
            expected=f"{len(extents)} axes for shape {shape_text(tuple(shape))}",
            got=f"{buffer.name} with {buffer.rank}",
        )
    points: list[Expr | None] = [None] * (buffer.rank - len(extents))
    return Region(buffer, indices, (*points, *extents))


def _is_one(extent: Expr) -> bool:
    return isinstance(extent, Const) and extent.value == 1


def match_shapes(
    src: Region, dst: Region, what: str, *, is_open: bool = False
) -> tuple[Region, Region]:
    """Two regions with equal shapes; axes of extent 1 that only one has become points.

    Args:
        src: one region.
        dst: the other.
        what: the operation, for messages.
        is_open: an extent that only the call tells goes with a constant one.

    Raises:
        LanguageError: the shapes differ otherwise.
    """
    left, right = list(src.axes), list(dst.axes)
    drop_left: set[int] = set()
    drop_right: set[int] = set()
    while left or right:
        a = src.extents[left[-1]] if left else None
        b = dst.extents[right[-1]] if right else None
        if a is not None and b is not None and is_equal(a, b):
            left.pop()
            right.pop()
        elif a is not None and _is_one(a):
            drop_left.add(left.pop())
        elif b is not None and _is_one(b):
            drop_right.add(right.pop())
        elif is_open and a and b and isinstance(a, Const) != isinstance(b, Const):
            left.pop()
            right.pop()
        else:
            fail(
                f"shapes differ in {what}",
                expected=f"{shape_text(dst.shape)} as {dst.buffer.name}",
                got=f"{shape_text(src.shape)} of {src.buffer.name}",
                hint=_how_to_match(a, b),
            )
    return _drop(src, drop_left), _drop(dst, drop_right)


def _how_to_match(a: Expr | None, b: Expr | None) -> str:
    """What to do about two extents that differ."""
    if any(extent is not None and not isinstance(extent, Const) for extent in (a, b)):
        return (
            "where an extent is known only at run time, say where the tile begins, as A[i, j]: the"
            " other side gives the extents, and what lies outside of A is guarded"
        )
    return "extents must be equal, up to axes of extent 1; a T.Parallel loop can repeat elements"


def _drop(region: Region, axes: set[int]) -> Region:
    if not axes:
        return region
    extents = tuple(None if k in axes else extent for k, extent in enumerate(region.extents))
    return Region(region.buffer, region.starts, extents)


def normalise(region: Region, rank: int) -> Region:
    """`region` with leading axes of extent 1 made points until `rank` axes are left."""
    axes = [k for k in region.axes if _is_one(region.extents[k])]  # type: ignore[arg-type]
    surplus = len(region.axes) - rank
    return _drop(region, set(axes[: max(surplus, 0)]))


def require_scope(buffer: Buffer, scopes: Sequence[Scope], what: str) -> None:
    """Refuse a buffer that lives elsewhere.

    Raises:
        LanguageError: naming what would be right.
    """
    if buffer.scope not in scopes:
        fail(
            f"{what} lives in the wrong memory",
            expected=" or ".join(scope.value for scope in scopes),
            got=f"{buffer.scope} buffer {buffer.name}",
        )
