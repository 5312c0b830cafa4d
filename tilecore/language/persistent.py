"""T.Persistent: one block walks its share of the tiles, wave by wave.

``for bx, by in T.Persistent([m, n], wave, index)`` becomes::

    for wave in range(ceildiv(m * n, wave_size)):
        tile = wave * wave_size + index
        if tile < m * n:
            ... coordinates of `tile`, in groups along the last axis
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilecore.errors import Loc
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Var, const
from tilecore.ir.stmts import For, If
from tilecore.language import operators as ops
from tilecore.language.builder import Builder
from tilecore.language.loops import LoopSpec
from tilecore.language.math_ops import ceildiv, minimum
from tilecore.language.values import Scalar


def run_persistent(
    builder: Builder, spec: LoopSpec, targets: tuple[str, ...], loc: Loc | None
) -> Iterator[Any]:
    """Open the wave loop and its guard, yield the coordinates once, close both."""
    assert spec.persistent is not None
    wave_size, index, group = spec.persistent
    extents = [Scalar(extent) for _, extent, _ in spec.axes]
    total: Any = 1
    for extent in extents:
        total = total * extent
    waves = ops.as_index(ceildiv(total, Scalar(wave_size)))
    var = Var(builder.unique("wave"), int32)
    frame = builder.push("for", (var.name,))
    tile = builder.bind("tile", (Scalar(var) * Scalar(wave_size) + Scalar(index)).expr)
    guard = builder.push("then")
    coordinates = _coordinates(tile, extents, group)
    names = targets if len(targets) == len(extents) else [f"tile{k}" for k in range(len(extents))]
    bound = tuple(
        builder.bind(name, ops.as_expr(value))
        for name, value in zip(names, coordinates, strict=True)
    )
    yield bound[0] if len(bound) == 1 else bound
    body = builder.pop(guard)
    builder.emit(If(ops.as_expr(tile < total), body, (), loc))
    waves_body = builder.pop(frame)
    zero, one = const(0, int32), const(1, int32)
    builder.emit(For(var, zero, ops.cast_expr(waves, int32), one, waves_body, loc=loc))


def _coordinates(tile: Any, extents: list[Scalar], group: int) -> list[Any]:
    """Coordinates of tile number `tile`; groups of the last axis, then the axis before it."""
    if len(extents) == 1:
        return [tile]
    *outer, rows, columns = extents
    plane = rows * columns
    rest, inside = tile // plane, tile % plane
    band = rows * group
    first = (inside // band) * group
    width = minimum(columns - first, group)
    within = inside % band
    row, column = within // width, first + within % width
    leading: list[Any] = []
    for extent in reversed(outer):
        leading.append(rest % extent)
        rest = rest // extent
    return [*reversed(leading), row, column]
