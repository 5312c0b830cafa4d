"""One element of a view as elements of the buffer behind it: equal, wider or narrower ones.

    w: float32[8] of s: float16[16]     w[i]      ->  bits of s[2 * i + 1], then of s[2 * i]
                                        w[i] = x  ->  s[2 * i] and s[2 * i + 1] from the bits of x
    n: float16[16] of s: float32[8]     n[i]      ->  half of the bits of s[i // 2]

What lies outside the view may still lie inside the buffer (the end of a row is the beginning of the
next one), so that the view's own bounds are asked: reads give its safe value, writes are dropped.

The first of several narrow elements has the low bits of a wide one. Part of an element cannot be
written without its neighbours, which another lane may write: a buffer behind a narrower view that
is written has the view's elements itself (`resolve_aliases`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable

from tilecore.ir.buffers import Buffer
from tilecore.ir.dtypes import DType, dtype_of, int64
from tilecore.ir.expr import (
    TRUE,
    Bitcast,
    Cast,
    Expr,
    Load,
    Select,
    Var,
    all_of,
    as_dtype,
    binary,
    const,
    dtype_of_expr,
    widened,
)
from tilecore.ir.ranges import Ranges
from tilecore.ir.simplify import NOTHING_KNOWN, simplify, upper_bound
from tilecore.ir.stmts import Block, If, Let, Store
from tilecore.passes.async_copies import LARGEST_INT32, strides_of


def read_element(view: Buffer, source: Buffer, indices: tuple[Expr, ...], ranges: Ranges) -> Expr:
    """The value of a view's element, which has the view's dtype."""
    if view.dtype.bits == source.dtype.bits:
        place = element_of_equal_width(view, source, indices, ranges)
        value = _as(Load(source, place), view.dtype)
    else:
        value = _value(view, source, _position(view, source, indices))
    inside = inside_view(view, indices, ranges)
    if inside == TRUE:
        return value
    return Select(inside, value, const(view.safe_value, view.dtype), view.dtype)


def write_element(
    view: Buffer, source: Buffer, store: Store, fresh: Callable[[str], str], ranges: Ranges
) -> Block:
    """A store to a view of elements that are as wide as the source's, or wider."""
    inside = inside_view(view, store.indices, ranges)
    stores = _stores(view, source, store, fresh, ranges)
    return stores if inside == TRUE else (If(inside, stores, (), store.loc),)


def inside_view(view: Buffer, indices: tuple[Expr, ...], ranges: Ranges) -> Expr:
    """The condition that all indices are within the view; what is proven is left out."""
    needed: list[Expr] = []
    for index, extent in zip(indices, view.shape, strict=True):
        dtype = dtype_of_expr(index)
        below = binary("lt", index, as_dtype(extent, dtype))
        tests = (binary("ge", index, const(0, dtype)), below)
        needed += [test for test in tests if not ranges.proves(test)]
    return all_of(needed)


def element_of_equal_width(
    view: Buffer, source: Buffer, indices: tuple[Expr, ...], ranges: Ranges
) -> tuple[Expr, ...]:
    """The source's indices of a view's element, where elements are equally wide.

    Last axes that both have, of sizes that only the call tells, need no division. Indices are kept
    apart where they can be, so that layouts follow them: ``s[i, j * 16 + k]`` for ``v[i, j, k]``.
    """
    kept = 0
    if view.static_shape is None:
        pairs = zip(reversed(view.shape), reversed(source.shape), strict=False)
        kept = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    a, b = view.rank - kept, source.rank - kept
    view = dataclasses.replace(view, shape=view.shape[:a])
    source = dataclasses.replace(source, shape=source.shape[:b])
    place = _place(source, _position(view, source, indices[:a]))
    return (*(simplify(index, ranges) for index in place), *indices[a:])


def _value(view: Buffer, source: Buffer, position: Expr) -> Expr:
    """The view's element, of another width, at a row-major position."""
    narrow, wide = source.dtype.bits, view.dtype.bits
    if wide > narrow:
        word, parts = _word(view.dtype), wide // narrow
        total: Expr = const(0, word)
        for part in range(parts):
            at = _part(position, parts, part)
            bits = Cast(_as(Load(source, _place(source, at)), _word(source.dtype)), word)
            moved = binary("shl", bits, const(part * narrow, word)) if part else bits
            total = binary("bitor", total, moved) if part else moved
        return _as(total, view.dtype)
    parts, word = narrow // wide, _word(source.dtype)
    count = const(parts, dtype_of_expr(position))
    bits = _as(Load(source, _place(source, binary("floordiv", position, count))), word)
    first = binary("mul", binary("floormod", position, count), const(wide, count.dtype))
    return _as(Cast(binary("shr", bits, first), _word(view.dtype)), view.dtype)


def _stores(
    view: Buffer, source: Buffer, store: Store, fresh: Callable[[str], str], ranges: Ranges
) -> Block:
    narrow, wide, loc = source.dtype.bits, view.dtype.bits, store.loc
    assert wide >= narrow, "part of an element is never written"
    if wide == narrow:
        place = element_of_equal_width(view, source, store.indices, ranges)
        return (Store(source, place, _as(store.value, source.dtype), loc),)
    position = _position(view, source, store.indices)
    word = _word(view.dtype)
    bits = Var(fresh("bits"), word)
    stores = []
    for part in range(wide // narrow):
        moved = binary("shr", bits, const(part * narrow, word)) if part else bits
        value = _as(Cast(moved, _word(source.dtype)), source.dtype)
        at = _part(position, wide // narrow, part)
        stores.append(Store(source, _place(source, at), value, loc))
    return (Let(bits, _as(store.value, word), loc), *stores)


def _as(value: Expr, dtype: DType) -> Expr:
    return value if dtype_of_expr(value) == dtype else Bitcast(value, dtype)


def _word(dtype: DType) -> DType:
    """The unsigned integer that is as wide."""
    return dtype_of(f"uint{dtype.bits}")


def _part(position: Expr, parts: int, part: int) -> Expr:
    kind = dtype_of_expr(position)
    return binary("add", binary("mul", position, const(parts, kind)), const(part, kind))


def _position(view: Buffer, source: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """Row-major position of an element; of 64 bits where 32 may not hold the last one."""
    position: Expr = const(0)
    if max(_most_elements(view), _most_elements(source)) > LARGEST_INT32:
        position, indices = const(0, int64), tuple(map(widened, indices))
    for index, stride in zip(indices, strides_of(view.shape, None), strict=True):
        position = binary("add", position, binary("mul", index, stride))
    return position


def _most_elements(buffer: Buffer) -> int:
    return math.prod(upper_bound(extent, NOTHING_KNOWN) for extent in buffer.shape)


def _place(source: Buffer, position: Expr) -> tuple[Expr, ...]:
    """Indices of the element at a row-major position."""
    digits: list[Expr] = []
    for extent in reversed(source.shape[1:]):
        digits.append(binary("floormod", position, extent))
        position = binary("floordiv", position, extent)
    return (position, *reversed(digits)) if source.shape else ()
