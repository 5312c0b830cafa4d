"""Indices that number the iterations of several loops, as rows and columns of a flat tile do.

``F[i * 64 + j]`` in a nest over i and j < 64 has the digits (j, i), fastest first. Its elements lie
where the iterations are, and the other way round, once the parts of an axis that belong to the
digits are told apart.
"""

from __future__ import annotations

import math

from tilecore.ir.expr import Expr, Var, free_vars
from tilecore.ir.layout import FragmentMode
from tilecore.ir.ranges import Ranges

Modes = tuple[FragmentMode, ...]


def digits_of(
    index: Expr, loop_vars: tuple[Var, ...], extents: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Positions in `loop_vars` of two or more variables of which `index` is the number.

    Fastest first: each variable but the slowest runs through all of its digit. None where `index`
    is anything else.
    """
    if sum(var in free_vars(index) for var in loop_vars) < 2:
        return None
    form = Ranges().regrouped(index)
    if form.constant or any(term not in loop_vars for term, _ in form.terms):
        return None
    digits: list[int] = []
    stride = 1
    for term, coefficient in sorted(form.terms, key=lambda item: item[1]):
        if coefficient != stride:
            return None
        digits.append(loop_vars.index(term))  # type: ignore[arg-type]
        stride *= extents[digits[-1]]
    return tuple(digits)


def joined(parts: tuple[Modes, ...], extents: tuple[int, ...]) -> Modes | None:
    """The parts of one axis, fastest first; None where one but the last has places to spare."""
    for part, extent in zip(parts[:-1], extents[:-1], strict=True):
        if math.prod(mode.extent for mode in part) != extent:
            return None
    return tuple(mode for part in parts for mode in part)


def divided(axis: Modes, extents: tuple[int, ...]) -> tuple[Modes, ...] | None:
    """The axis' parts for digits of these extents, fastest first; the last takes what is left."""
    rest = list(axis)
    parts: list[Modes] = []
    for extent in extents[:-1]:
        part: list[FragmentMode] = []
        while extent > 1:
            if not rest:
                return None
            mode = rest.pop(0)
            if mode.extent > extent:
                if mode.extent % extent:
                    return None
                above = FragmentMode(mode.extent // extent, mode.space, mode.stride * extent)
                rest.insert(0, above)
                mode = FragmentMode(extent, mode.space, mode.stride)
            elif extent % mode.extent:
                return None
            part.append(mode)
            extent //= mode.extent
        parts.append(tuple(part))
    return (*parts, tuple(rest))
