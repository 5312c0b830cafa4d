"""From a place in shared memory back to coordinates: the inverse of layouts without gaps.

Where the memory itself puts a warp's pieces side by side, lanes cannot choose where theirs go. So
they choose what they load: piece n of a tile in the order of memory has the coordinates that the
layout keeps there, and a swizzle moves to the side that lanes do address.
"""

from __future__ import annotations

from tilecore.ir.buffers import Region
from tilecore.ir.expr import Const, Expr, binary, const
from tilecore.ir.layout import Layout, Mode, Swizzle
from tilecore.passes.scopes import static


def is_dense(region: Region, layout: Layout, piece_bytes: int, threads: int) -> bool:
    """True when pieces of `region` can be dealt to all lanes in the order of memory.

    The region must be all of its buffer but for leading single positions (slots), without gaps, and
    every lane must get equally many pieces.
    """
    tile = tile_of(region, layout)
    if tile is None:
        return False
    modes, total = _sorted(tile), 1
    for mode in modes:
        if mode.stride != total:
            return False
        total *= mode.extent
    elements = piece_bytes // region.dtype.bytes
    outer = layout.axes[: len(layout.axes) - len(tile.axes)]
    swizzle = layout.swizzle
    if swizzle is not None:
        top = 1 << (swizzle.base + swizzle.shift + swizzle.bits)
        apart = [m.stride for axis in outer for m in axis if m.extent > 1]
        if total % top or any(stride % top for stride in apart):
            return False
        if elements > 1 << swizzle.base or not any(_holds(m, swizzle) for m in modes):
            return False
    return total % (elements * threads) == 0


def tile_of(region: Region, layout: Layout) -> Layout | None:
    """The layout of what `region` covers; None when that is not all of the axes it has."""
    single = [k for k, extent in enumerate(region.extents) if extent is None]
    kept = range(len(single), len(region.extents))
    if single != list(range(len(single))):
        return None
    for axis in kept:
        start, extent = region.starts[axis], region.extents[axis]
        size = static(region.buffer)[axis]
        if start != const(0) or not isinstance(extent, Const) or int(extent.value) != size:
            return None
    tile = Layout(tuple(layout.axes[k] for k in kept), layout.swizzle)
    return tile if tile.shape == tuple(static(region.buffer)[k] for k in kept) else None


def coordinates_at(tile: Layout, offset: Expr) -> tuple[Expr, ...]:
    """The coordinates of the element that a dense layout keeps at `offset`.

    A swizzle is an involution on offsets, and all bits that it changes lie in one mode: that mode's
    digit is XORed with the bits that the swizzle takes from above.
    """
    result: list[Expr] = []
    for axis in tile.axes:
        coordinate: Expr = const(0)
        scale = 1
        for mode in axis:
            digit = _digit(offset, mode, tile)
            coordinate = binary("add", coordinate, binary("mul", digit, const(scale)))
            scale *= mode.extent
        result.append(coordinate)
    return tuple(result)


def _digit(offset: Expr, mode: Mode, tile: Layout) -> Expr:
    digit = binary("floordiv", offset, const(mode.stride))
    if mode.stride * mode.extent < tile.size:
        digit = binary("floormod", digit, const(mode.extent))
    swizzle = tile.swizzle
    if swizzle is None or not _holds(mode, swizzle):
        return digit
    taken = binary("floordiv", offset, const(1 << (swizzle.base + swizzle.shift)))
    taken = binary("floormod", taken, const(1 << swizzle.bits))
    return binary("bitxor", digit, binary("mul", taken, const((1 << swizzle.base) // mode.stride)))


def _holds(mode: Mode, swizzle: Swizzle) -> bool:
    """True when all bits that a swizzle changes are bits of the mode's digit."""
    low, high = 1 << swizzle.base, 1 << (swizzle.base + swizzle.bits)
    powers = all(n & (n - 1) == 0 for n in (mode.stride, mode.extent))
    return powers and mode.stride <= low and high <= mode.stride * mode.extent


def _sorted(tile: Layout) -> list[Mode]:
    modes = [mode for axis in tile.axes for mode in axis if mode.extent > 1]
    return sorted(modes, key=lambda mode: mode.stride)
