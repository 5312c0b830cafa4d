"""T.Layout and T.Fragment: index functions fitted to the layout algebra.

The author gives a function of coordinates. It is evaluated on integers and expressed as modes
(extent:stride), with an XOR swizzle where one explains it; what fits neither is refused.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.layout import (
    REGISTER,
    THREAD,
    FragmentLayout,
    FragmentMode,
    Mode,
    Swizzle,
)
from tilecore.ir.layout import Layout as IrLayout
from tilecore.language.locate import caller_loc, fail, refuse
from tilecore.language.separable import Separable, separate

MAX_POINTS = 1 << 20  # coordinates that are examined one by one
MAX_ARRAY_POINTS = 1 << 25  # coordinates that are examined as an array
_SWIZZLES = [
    Swizzle(bits, base, shift)
    for bits in (1, 2, 3, 4, 5)
    for base in range(8)
    for shift in range(bits, 9)
]


def _shape(shape: Any, limit: int = MAX_POINTS) -> tuple[int, ...]:
    extents = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    for extent in extents:
        if isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
            fail("a layout needs positive constant extents", got=shape)
    if math.prod(extents) > limit:
        refuse("this layout", f"more than {limit} coordinates are not examined")
    return extents


def Layout(shape: Any, forward_fn: Callable[..., Any]) -> IrLayout | CompilersChoice:
    """The memory layout whose offset of coordinates is ``forward_fn(*coordinates)``.

    A function that returns several indices is read row-major over their ranges. One that is no sum
    of modes, swizzled or not, is left to the compiler with a warning: no result depends on it.

    Raises:
        LanguageError: such a function puts two elements in one place.
    """
    extents = _shape(shape, 1 << 62)
    large = math.prod(extents) > MAX_POINTS >= max(extents)
    separable = separate(extents, forward_fn) if large else None
    fitted = None if separable is None else _fit_separable(extents, separable)
    if fitted is not None:
        return fitted
    offsets = _linear_offsets(_shape(shape, MAX_ARRAY_POINTS), forward_fn)
    fitted = _fit(extents, offsets)
    if fitted is not None:
        return fitted
    swizzled = _fit_swizzled(extents, offsets)
    if swizzled is not None:
        return swizzled
    if np.unique(offsets).size < offsets.size:
        fail("a layout puts two elements in one place", expected="a place of its own for each")
    return _left_to_the_compiler(
        "T.Layout: its function is no sum of extent:stride modes with an XOR swizzle"
    )


def _left_to_the_compiler(reason: str) -> CompilersChoice:
    loc = caller_loc()
    warnings.warn(f"{loc}: {reason}; the compiler chooses the layout", stacklevel=3)
    return Unfitted(reason)


class CompilersChoice:
    """A layout that the compiler is to choose: conflict-free, as the accesses need it."""


class Unfitted(CompilersChoice):
    """A layout that the algebra cannot express, and why. On chip the compiler chooses another."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def _fit_swizzled(extents: tuple[int, ...], offsets: Offsets) -> IrLayout | None:
    for swizzle in _SWIZZLES:
        fitted = _fit(extents, offsets, swizzle)
        if fitted is not None:
            return IrLayout(fitted.axes, swizzle)
    return None


Offsets = NDArray[np.int64]
"""The offset of each coordinate tuple, as an array of the layout's shape."""


def _linear_offsets(extents: tuple[int, ...], function: Callable[..., Any]) -> Offsets:
    """Offsets of all coordinates: from one call on arrays if the function allows it."""
    try:
        indices = _index_arrays(extents, function)
    except Exception:  # the author's function branches or calls what takes no arrays
        if math.prod(extents) > MAX_POINTS:
            refuse("this layout", f"its function takes no arrays, and over {MAX_POINTS} points")
        indices = _indices_by_point(extents, function)
    ranges = [int(index.max()) + 1 for index in indices]
    total: Offsets = np.zeros(extents, np.int64)
    for k, index in enumerate(indices):
        total += index * math.prod(ranges[k + 1 :])
    return total


def _index_arrays(extents: tuple[int, ...], function: Callable[..., Any]) -> list[Offsets]:
    mesh = np.ogrid[tuple(slice(extent) for extent in extents)]
    indices = _listed(function(*mesh))
    arrays = [np.asarray(index) for index in indices]
    if not all(array.dtype.kind == "i" for array in arrays):
        raise TypeError("no integers")
    return arrays


def _indices_by_point(extents: tuple[int, ...], function: Callable[..., Any]) -> list[Offsets]:
    rows: list[list[int]] = []
    for point in itertools.product(*map(range, extents)):
        value = function(*point)
        indices = _listed(value)
        if not all(isinstance(index, int) for index in indices):
            fail("a layout function must return integers", got=value)
        rows.append(indices)
    return [np.array(column, np.int64).reshape(extents) for column in zip(*rows, strict=True)]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _fit_separable(extents: tuple[int, ...], offset: Separable) -> IrLayout | None:
    """Modes of each axis; the sum over the axes is exact, so that none is looked at with others."""
    if offset.constant != 0:
        return None
    axes = [_modes(offset.along(axis, extent).tolist()) for axis, extent in enumerate(extents)]
    if any(modes is None for modes in axes):
        return None
    return IrLayout(tuple(tuple(Mode(*mode) for mode in modes or ()) for modes in axes))


def _fit(
    extents: tuple[int, ...], offsets: Offsets, swizzle: Swizzle | None = None
) -> IrLayout | None:
    """Modes whose sums are the offsets, unswizzled first where a swizzle is given."""

    def plain(values: Offsets) -> Any:
        return values if swizzle is None else swizzle.apply(values)  # type: ignore[arg-type]

    origin = (0,) * len(extents)
    if plain(offsets[origin]) != 0:
        return None
    axes: list[tuple[Mode, ...]] = []
    total: Any = np.zeros((1,) * len(extents), np.int64)
    for axis in range(len(extents)):
        line = offsets[(*origin[:axis], slice(None), *origin[axis + 1 :])]
        along = plain(line)
        modes = _modes([int(value) for value in along])
        if modes is None:
            return None
        axes.append(tuple(Mode(size, stride) for size, stride in modes))
        total = total + along.reshape([-1 if k == axis else 1 for k in range(len(extents))])
    return IrLayout(tuple(axes)) if np.array_equal(total, plain(offsets)) else None


def _on_axis(origin: tuple[int, ...], axis: int, coordinate: int) -> tuple[int, ...]:
    return (*origin[:axis], coordinate, *origin[axis + 1 :])


def _modes(along: list[int]) -> list[tuple[int, int]] | None:
    """Modes (extent, stride), fastest first, of a function on ``range(len(along))``."""
    modes: list[tuple[int, int]] = []
    step, count = 1, len(along)
    while step < count:
        stride = along[step]
        size = 2
        while step * size < count and along[step * size] == stride * size:
            size += 1
        while size > 1 and count % (step * size):
            size -= 1
        if size == 1 or stride < 0:
            return None
        modes.append((size, stride))
        step *= size
    if not modes:
        modes.append((1, 0))
    for coordinate, value in enumerate(along):
        rest, total = coordinate, 0
        for size, stride in modes:
            rest, digit = divmod(rest, size)
            total += digit * stride
        if total != value:
            return None
    return modes


def Fragment(
    shape: Any,
    forward_fn: Callable[..., Any] | None = None,
    forward_thread_fn: Callable[..., int] | None = None,
    replicate: int = 1,
    forward_index_fn: Callable[..., int] | None = None,
) -> FragmentLayout | CompilersChoice:
    """The register layout that puts coordinates at (thread, index).

    Functions that are no sums of modes are left to the compiler with a warning.

    Args:
        shape: extents of the tile.
        forward_fn: coordinates -> (thread, index); with `replicate`, the replica comes last.
        forward_thread_fn: coordinates -> thread, where it is given apart.
        replicate: how many threads hold each element.
        forward_index_fn: coordinates -> index, where it is given apart.

    Raises:
        LanguageError: no function is given.
    """
    extents = _shape(shape)
    if forward_fn is None and (forward_thread_fn is None or forward_index_fn is None):
        fail(
            "T.Fragment needs forward_fn, or forward_thread_fn and forward_index_fn",
            expected="forward_fn=lambda i, j: (thread, index)",
        )

    def place(point: tuple[int, ...], replica: int) -> tuple[int, int]:
        extra = (replica,) if replicate > 1 else ()
        if forward_fn is not None:
            thread, index = forward_fn(*point, *extra)
            return int(thread), int(index)
        assert forward_thread_fn is not None and forward_index_fn is not None
        return int(forward_thread_fn(*point, *extra)), int(forward_index_fn(*point))

    places = {
        (point, replica): place(point, replica)
        for point in itertools.product(*map(range, extents))
        for replica in range(replicate)
    }
    fitted = _fit_fragment(extents, replicate, places)
    if fitted is None:
        return _left_to_the_compiler(
            "T.Fragment: its functions are no sums of thread and register modes"
        )
    return fitted


Places = dict[tuple[tuple[int, ...], int], tuple[int, int]]


def _fit_fragment(
    extents: tuple[int, ...], replicate: int, places: Places
) -> FragmentLayout | None:
    origin = (0,) * len(extents)
    scale = 1 << 48  # so large that no thread stride can be mistaken for a register stride
    axes: list[tuple[FragmentMode, ...]] = []
    for axis, extent in enumerate(extents):
        along = [places[_on_axis(origin, axis, c), 0] for c in range(extent)]
        modes = _fragment_modes(along, scale)
        if modes is None:
            return None
        axes.append(modes)
    copies = [places[origin, replica] for replica in range(replicate)]
    replication = _fragment_modes(copies, scale) if replicate > 1 else ()
    if replication is None or any(mode.space == REGISTER for mode in replication):
        return None
    layout = FragmentLayout(tuple(axes), replication)
    if all(layout.place(*key) == place for key, place in places.items()):
        return layout
    return None


def _fragment_modes(along: list[tuple[int, int]], scale: int) -> tuple[FragmentMode, ...] | None:
    """Each mode advances the thread or the register; both at once cannot be expressed."""
    modes = _modes([thread + index * scale for thread, index in along])
    if modes is None:
        return None
    result: list[FragmentMode] = []
    for size, stride in modes:
        registers, threads = divmod(stride, scale)
        if registers and threads:
            return None
        space = REGISTER if registers else THREAD
        result.append(FragmentMode(size, space, registers or threads))
    return tuple(result)


def as_layout(buffer: Buffer, layout: Any) -> IrLayout | FragmentLayout | None:
    """What T.annotate_layout was given for `buffer`, checked against its shape and scope.

    None leaves the choice to the compiler.

    Raises:
        LanguageError: another shape, or the wrong kind of layout for the memory.
    """
    if isinstance(layout, Unfitted) and buffer.scope is Scope.GLOBAL:
        refuse(f"the layout of {buffer.name}", layout.reason)  # it says where values are
    if isinstance(layout, CompilersChoice):
        return None
    if callable(layout) and not isinstance(layout, IrLayout | FragmentLayout):
        layout = Layout(buffer.static_shape, layout)
    wanted = FragmentLayout if buffer.scope is Scope.FRAGMENT else IrLayout
    if not isinstance(layout, wanted):
        kind = "T.Fragment" if wanted is FragmentLayout else "T.Layout"
        fail(f"layout of {buffer.scope} buffer {buffer.name}", expected=kind, got=layout)
    shape = buffer.static_shape
    if shape is None or len(layout.shape) != len(shape):
        fail(f"layout of {buffer.name} has another rank", expected=shape, got=layout.shape)
    if any(have < need for have, need in zip(layout.shape, shape, strict=True)):
        fail(f"layout of {buffer.name} is too small", expected=shape, got=layout.shape)
    _check_injective(buffer, layout)
    return layout


def make_linear_layout(value: Any) -> IrLayout:
    """Row-major and compact."""
    return IrLayout.row_major(_shape(_extents(value), 1 << 62))


def _check_injective(buffer: Buffer, layout: IrLayout | FragmentLayout) -> None:
    if isinstance(layout, IrLayout) and layout.is_injective():
        return
    _shape(layout.shape)
    seen: dict[Any, tuple[int, ...]] = {}
    for point in itertools.product(*map(range, layout.shape)):
        place = layout.offset(point) if isinstance(layout, IrLayout) else layout.place(point)
        if place in seen:
            fail(
                f"layout of {buffer.name} puts two elements in one place",
                expected="a place of its own for each",
                got=f"{seen[place]} and {point} at {place}",
            )
        seen[place] = point


def make_swizzled_layout(value: Any, *operand: Any, **advice: Any) -> CompilersChoice:
    """A swizzled layout of a shared buffer, against bank conflicts.

    Which swizzle is conflict-free depends on the instructions that access the buffer. The compiler
    chooses one in any case, so that this asks for nothing more.

    Args:
        value: a shared buffer, or its shape.
        operand: the vocabulary's facts about accesses (extents, element bits), not needed here.
        advice: the vocabulary's options about operands (k_major, allow_pad), not needed here.
    """
    del operand, advice
    _shape(_extents(value), 1 << 62)
    return CompilersChoice()


def _extents(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, int) else tuple(getattr(value, "shape", value))
