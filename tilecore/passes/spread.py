"""How tiles are spread over a block's threads: building and comparing fragment layouts.

Layouts are made here from atoms, from vector widths, and from one another (dropping a reduced
axis, projecting a loop onto one of its operands); facts about them are found by enumeration with
NumPy, so that no layout is a special case.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from tilecore.ir.layout import REGISTER, THREAD, FragmentLayout, FragmentMode, split_int

Modes = tuple[FragmentMode, ...]

Spread = Callable[[tuple[int, ...], int, int], FragmentLayout]
"""Spreads a tile of a shape over threads, some neighbours along the last axis to each."""


def default_spread(shape: tuple[int, ...], vector: int, threads: int) -> FragmentLayout:
    """Spread a tile for coalesced access: `vector` neighbours along the last axis per thread,
    then threads along the last axis, then along the axes before it.

    Threads that are left over hold copies (a power-of-two or dividing share), or stay idle.
    """
    return _spread(shape, vector, threads, _share)


def even_spread(shape: tuple[int, ...], vector: int, threads: int) -> FragmentLayout:
    """`default_spread` with no place to spare along any axis, so that axes may be joined to one:
    only as many threads go along an axis as divide it. Where that would cost registers, since
    threads find no axis to go along, `default_spread` itself."""
    even, usual = _spread(shape, vector, threads, math.gcd), default_spread(shape, vector, threads)
    return even if even.registers <= usual.registers else usual


def _spread(
    shape: tuple[int, ...], vector: int, threads: int, share: Callable[[int, int], int]
) -> FragmentLayout:
    """See `default_spread`; `share` tells how many of the threads left go along so many pieces."""
    axes: list[list[FragmentMode]] = [[] for _ in shape]
    left, step = threads, 1
    reps: list[tuple[int, int]] = []
    register = 1
    for axis in range(len(shape) - 1, -1, -1):
        extent = shape[axis]
        width = 1
        if axis == len(shape) - 1 and vector > 1:
            width = vector
            axes[axis].append(FragmentMode(width, REGISTER, register))
            register *= width
        needed = -(-extent // width)
        across = share(needed, left)
        if across > 1:
            axes[axis].append(FragmentMode(across, THREAD, step))
            step *= across
            left //= across
        rest = -(-needed // across)
        if rest > 1:
            reps.append((axis, rest))
    for axis, rest in reps:
        axes[axis].append(FragmentMode(rest, REGISTER, register))
        register *= rest
    full = tuple(tuple(modes) or (FragmentMode(1, REGISTER, 1),) for modes in axes)
    copies = (FragmentMode(left, THREAD, step),) if left > 1 else ()
    return FragmentLayout(full, copies)


def _share(needed: int, threads: int) -> int:
    """Threads to put along an axis of `needed` pieces: the smallest divisor of `threads` that
    covers it, or all threads."""
    if needed >= threads:
        return threads
    return min(d for d in range(1, threads + 1) if threads % d == 0 and d >= needed)


def tile_atom(
    atom: FragmentLayout,
    tiles: tuple[int, int],
    groups: tuple[int, int],
    axis_order: tuple[int, int],
    copies: int = 1,
    copy_stride: int = 1,
    group_strides: tuple[int, int] = (1, 1),
) -> FragmentLayout:
    """An MMA operand: `atom` repeated `tiles` times per lane group and spread over lane groups.

    Args:
        atom: register layout of one atom over two axes, on ``atom.threads`` lanes.
        tiles: atoms of one group along each axis.
        groups: lane groups along each axis (1 where the operand does not depend on them).
        axis_order: which axis' tiles advance registers first.
        copies: lane groups that hold the same values.
        copy_stride: lane groups between two copies.
        group_strides: lane groups between neighbours along each axis.
    """
    lanes = atom.threads
    register = atom.registers
    strides = [0, 0]
    for axis in axis_order:
        strides[axis] = register
        register *= tiles[axis]
    axes: list[Modes] = []
    for axis in (0, 1):
        modes = [mode for mode in atom.axes[axis] if mode.extent > 1]
        if tiles[axis] > 1:
            modes.append(FragmentMode(tiles[axis], REGISTER, strides[axis]))
        if groups[axis] > 1:
            modes.append(FragmentMode(groups[axis], THREAD, lanes * group_strides[axis]))
        axes.append(tuple(modes) or (FragmentMode(1, REGISTER, 1),))
    replication = list(atom.replication)
    if copies > 1:
        replication.append(FragmentMode(copies, THREAD, lanes * copy_stride))
    return FragmentLayout(tuple(axes), tuple(replication))


def compact_registers(axes: tuple[Modes, ...], replication: Modes) -> FragmentLayout:
    """Renumber registers without gaps, keeping their order."""
    used = sorted({m.stride for axis in axes for m in axis if m.space == REGISTER and m.extent > 1})
    extents = {
        m.stride: m.extent for axis in axes for m in axis if m.space == REGISTER and m.extent > 1
    }
    renamed: dict[int, int] = {}
    at = 1
    for stride in used:
        renamed[stride] = at
        at *= extents[stride]
    new_axes: list[Modes] = []
    for axis in axes:
        modes = []
        for mode in axis:
            if mode.extent == 1:
                continue
            if mode.space == REGISTER:
                mode = FragmentMode(mode.extent, REGISTER, renamed[mode.stride])
            modes.append(mode)
        new_axes.append(tuple(modes) or (FragmentMode(1, REGISTER, 1),))
    return FragmentLayout(tuple(new_axes), tuple(m for m in replication if m.extent > 1))


def project(layout: FragmentLayout, axes: tuple[int | None, ...]) -> FragmentLayout:
    """The layout of an operand that is indexed by some of `layout`'s axes.

    Entry k of `axes` names the axis that indexes the operand's axis k, or None for an axis of
    extent 1. Threads along unused axes hold copies.
    """
    kept = tuple(
        (FragmentMode(1, REGISTER, 1),) if axis is None else layout.axes[axis] for axis in axes
    )
    return operand_of(layout, kept, axes)


def operand_of(
    layout: FragmentLayout, kept: tuple[Modes, ...], used: Collection[int | None]
) -> FragmentLayout:
    """The layout of an operand with the modes `kept`; threads along axes of `layout` that are not
    `used` hold copies."""
    dropped = [
        mode
        for k, modes in enumerate(layout.axes)
        if k not in used
        for mode in modes
        if mode.space == THREAD
    ]
    return compact_registers(kept, (*layout.replication, *dropped))


def drop_axis(layout: FragmentLayout, axis: int, keep: bool) -> FragmentLayout:
    """The natural layout of a reduction of `axis` (kept with extent 1 when `keep`)."""
    axes: list[int | None] = []
    for k in range(len(layout.axes)):
        if k != axis:
            axes.append(k)
        elif keep:
            axes.append(None)
    return project(layout, tuple(axes))


@dataclass(frozen=True, slots=True)
class Placement:
    """Where coordinates live, for numpy arrays of coordinates."""

    thread: np.ndarray
    register: np.ndarray


def place_arrays(layout: FragmentLayout, coordinates: tuple[np.ndarray, ...]) -> Placement:
    """`FragmentLayout.place` in replica 0, for whole arrays of coordinates."""
    shape = np.broadcast_shapes(*(c.shape for c in coordinates)) if coordinates else ()
    thread = np.zeros(shape, np.int64)
    register = np.zeros(shape, np.int64)
    for axis, coordinate in zip(layout.axes, coordinates, strict=True):
        rest = coordinate
        for k, mode in enumerate(axis):
            digit = rest if k == len(axis) - 1 else rest % mode.extent
            rest = rest // mode.extent
            if mode.space == THREAD:
                thread = thread + digit * mode.stride
            else:
                register = register + digit * mode.stride
    return Placement(thread, register)


def coordinate_arrays(layout: FragmentLayout, threads: int) -> tuple[np.ndarray, ...]:
    """Coordinates of every (thread, register): one ``[threads, registers]`` array per axis.

    Threads beyond the layout's own get -1 (they hold nothing).
    """
    thread = np.arange(threads)[:, None]
    register = np.arange(layout.registers)[None, :]
    result = []
    for axis in layout.axes:
        total = np.zeros((threads, layout.registers), np.int64)
        weight = 1
        for mode in axis:
            source = thread if mode.space == THREAD else register
            total = total + weight * (source // mode.stride % mode.extent)
            weight *= mode.extent
        total[layout.threads :, :] = -1
        result.append(total)
    return tuple(result)


@functools.lru_cache(maxsize=512)
def holder_offsets(layout: FragmentLayout) -> tuple[int, ...]:
    """Thread offsets, from replica 0, of all holders of an element."""
    offsets = []
    for replica in range(layout.replicas):
        digits = split_int(replica, (m.extent for m in layout.replication))
        offsets.append(sum(d * m.stride for d, m in zip(digits, layout.replication, strict=True)))
    return tuple(offsets)


def register_modes(layout: FragmentLayout) -> list[tuple[int, int, FragmentMode]]:
    """(axis, weight of one step, mode) of all register modes, slowest register first."""
    found = []
    for axis, modes in enumerate(layout.axes):
        weight = 1
        for mode in modes:
            if mode.space == REGISTER and mode.extent > 1:
                found.append((axis, weight, mode))
            weight *= mode.extent
    return sorted(found, key=lambda item: -item[2].stride)


def fits_shape(layout: FragmentLayout, shape: tuple[int, ...]) -> bool:
    """True when the layout has room for every coordinate of `shape`."""
    return len(layout.axes) == len(shape) and all(
        have >= need for have, need in zip(layout.shape, shape, strict=True)
    )
