"""The layout algebra: how coordinates map to memory offsets, and to lanes and registers.

A `Layout` maps logical coordinates to an element offset. Each axis is split into modes
(extent:stride), fastest first, so ``8:64`` is plain strided, and ``(4:1, 16:256)`` is a blocked
axis. An optional swizzle XORs offset bits. A `FragmentLayout` splits each axis into modes that
advance either the lane (the thread's index in the block) or the register. Everything else is
derived: inverses, injectivity, vector widths, bank conflicts, conversions.

The idea of shape:stride layouts with XOR swizzles is CuTe's (NVIDIA CUTLASS documentation,
"CuTe layout algebra"); mixed-radix modes make extents that are no power of two normal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tilecore.errors import VerifyError
from tilecore.ir.dtypes import DType, int32, promote
from tilecore.ir.expr import Cast, Const, Expr, binary, const, dtype_of_expr


@dataclass(frozen=True, slots=True)
class Mode:
    """`extent` positions, `stride` elements apart."""

    extent: int
    stride: int


@dataclass(frozen=True, slots=True)
class Swizzle:
    """XOR of offset bits: ``offset ^ ((offset >> shift) & mask << base)``.

    `bits` bits starting at bit `base` (of the ELEMENT offset) are XORed with the `bits` bits that
    start at ``base + shift``. CuTe's ``Swizzle<B, M, S>`` is ``Swizzle(bits=B, base=M, shift=S)``.
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if self.bits < 0 or self.base < 0 or self.shift < self.bits:
            raise VerifyError("swizzle needs bits >= 0, base >= 0, shift >= bits", got=self)

    def apply(self, offset: int) -> int:
        """The swizzled offset of a plain offset. An involution."""
        mask = ((1 << self.bits) - 1) << self.base
        return offset ^ ((offset >> self.shift) & mask)

    def apply_expr(self, offset: Expr) -> Expr:
        """`apply` on an index expression."""
        dtype = offset.dtype  # type: ignore[attr-defined]
        mask = const(((1 << self.bits) - 1) << self.base, dtype)
        shifted = binary("shr", offset, const(self.shift, dtype))
        return binary("bitxor", offset, binary("bitand", shifted, mask))


def split(coordinate: Expr, extents: Iterable[int]) -> list[Expr]:
    """Digits of `coordinate` in the mixed radix `extents`, fastest first."""
    digits: list[Expr] = []
    rest = coordinate
    all_extents = list(extents)
    dtype = coordinate.dtype  # type: ignore[attr-defined]
    for k, extent in enumerate(all_extents):
        last = k == len(all_extents) - 1
        digits.append(rest if last else binary("floormod", rest, const(extent, dtype)))
        if not last:
            rest = binary("floordiv", rest, const(extent, dtype))
    return digits


def split_int(coordinate: int, extents: Iterable[int]) -> list[int]:
    """`split` for integers; the last digit takes what is left."""
    digits: list[int] = []
    all_extents = list(extents)
    for extent in all_extents[:-1]:
        coordinate, digit = divmod(coordinate, extent)
        digits.append(digit)
    if all_extents:
        digits.append(coordinate)
    return digits


@dataclass(frozen=True, slots=True)
class Layout:
    """Coordinates -> element offset in memory.

    Attributes:
        axes: per logical axis its modes, fastest first; an axis' extent is their product (it may
            exceed the buffer's extent: the rest is padding).
        swizzle: XOR applied to the sum of all modes' offsets, or None.
    """

    axes: tuple[tuple[Mode, ...], ...]
    swizzle: Swizzle | None = None

    @staticmethod
    def row_major(shape: tuple[int, ...]) -> Layout:
        """Compact, last axis contiguous."""
        strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
        return Layout(tuple((Mode(e, s),) for e, s in zip(shape, strides, strict=True)))

    @staticmethod
    def strided(shape: tuple[int, ...], strides: tuple[int, ...]) -> Layout:
        """One mode per axis."""
        return Layout(tuple((Mode(e, s),) for e, s in zip(shape, strides, strict=True)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent per axis, padding included."""
        return tuple(math.prod(mode.extent for mode in axis) for axis in self.axes)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return math.prod(self.shape)

    @property
    def span(self) -> int:
        """Elements of storage that it needs: one more than the largest offset, swizzled."""
        largest = sum((m.extent - 1) * m.stride for axis in self.axes for m in axis)
        if self.swizzle is None:
            return largest + 1
        top = self.swizzle.base + self.swizzle.bits
        return ((largest >> top) + 1) << top

    def offset(self, coordinates: tuple[int, ...]) -> int:
        """Element offset of one coordinate tuple."""
        total = 0
        for axis, rest in zip(self.axes, coordinates, strict=True):
            for mode in axis[:-1]:
                rest, digit = divmod(rest, mode.extent)
                total += digit * mode.stride
            total += rest * axis[-1].stride if axis else 0  # the last digit takes what is left
        return total if self.swizzle is None else self.swizzle.apply(total)

    def offset_expr(self, coordinates: tuple[Expr, ...]) -> Expr:
        """`offset` on index expressions."""
        total: Expr = const(0)
        for axis, coordinate in zip(self.axes, coordinates, strict=True):
            digits = split(coordinate, (mode.extent for mode in axis))
            for digit, mode in zip(digits, axis, strict=True):
                total, digit = _same_dtype(total, digit)
                stride = const(mode.stride, dtype_of_expr(digit))
                total = binary("add", total, binary("mul", digit, stride))
        return total if self.swizzle is None else self.swizzle.apply_expr(total)

    def is_injective(self) -> bool:
        """True when no two coordinates share an offset.

        The swizzle does not matter: it is an involution on offsets.
        """
        return _never_meet([(m.extent, m.stride) for axis in self.axes for m in axis])

    def contiguous_run(self, axis: int) -> int:
        """How many steps along `axis` from a multiple of the run stay contiguous in memory.

        1 when the axis' fastest mode is not unit stride. Limited by the swizzle: inside a run
        the XOR must leave the low bits alone, wherever the other modes make the run begin.
        """
        modes = self.axes[axis]
        run, count = 1, 0
        while count < len(modes) and modes[count].stride == run:
            run *= modes[count].extent
            count += 1
        if self.swizzle is not None and self.swizzle.bits:
            others = [m for k, axis_modes in enumerate(self.axes) if k != axis for m in axis_modes]
            steps = (mode.stride for mode in (*modes[count:], *others) if mode.extent > 1)
            run = math.gcd(run, 1 << self.swizzle.base, *steps)
        return run

    def vector_run(self, axis: int) -> int:
        """`contiguous_run`, as far as every run of that length begins at a multiple of it."""
        others = [m for k, modes in enumerate(self.axes) if k != axis for m in modes]
        run = self.contiguous_run(axis)
        steps = (m.stride for m in (*self.axes[axis], *others) if m.extent > 1 and m.stride >= run)
        return math.gcd(run, *steps, *(m.stride for m in others if m.extent > 1))

    def __str__(self) -> str:
        text = ", ".join(_axis_text([f"{m.extent}:{m.stride}" for m in axis]) for axis in self.axes)
        if self.swizzle is None:
            return f"[{text}]"
        return f"[{text}] ^ ({self.swizzle.bits}, {self.swizzle.base}, {self.swizzle.shift})"


def _axis_text(modes: list[str]) -> str:
    return modes[0] if len(modes) == 1 else "(" + " ".join(modes) + ")"


THREAD = "thread"
REGISTER = "register"


@dataclass(frozen=True, slots=True)
class FragmentMode:
    """`extent` positions that advance the thread or the register index by `stride`."""

    extent: int
    space: str
    stride: int

    def __post_init__(self) -> None:
        if self.space not in (THREAD, REGISTER):
            raise VerifyError("fragment mode space", expected="thread or register", got=self.space)


@dataclass(frozen=True, slots=True)
class FragmentLayout:
    """Coordinates <-> (thread, register): how a tile is spread over a block's threads.

    Attributes:
        axes: per logical axis its modes, fastest first.
        replication: thread modes along which the same values are held again; coordinates do not
            depend on them.

    A coordinate beyond the buffer's shape (when modes' products exceed it) is padding: the
    register exists but holds nothing. `axes` and `replication` together must name each thread and
    register position at most once (`is_bijective`).
    """

    axes: tuple[tuple[FragmentMode, ...], ...]
    replication: tuple[FragmentMode, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent per axis, padding included."""
        return tuple(math.prod(mode.extent for mode in axis) for axis in self.axes)

    @property
    def threads(self) -> int:
        """One more than the largest thread index in use."""
        modes = [m for axis in self.axes for m in axis if m.space == THREAD]
        return 1 + sum((m.extent - 1) * m.stride for m in (*modes, *self.replication))

    @property
    def registers(self) -> int:
        """Registers (elements) that each thread holds."""
        modes = [m for axis in self.axes for m in axis if m.space == REGISTER]
        return 1 + sum((m.extent - 1) * m.stride for m in modes)

    def place(self, coordinates: tuple[int, ...], replica: int = 0) -> tuple[int, int]:
        """(thread, register) that holds `coordinates`, in the given replica."""
        at = {THREAD: 0, REGISTER: 0}
        for axis, rest in zip(self.axes, coordinates, strict=True):
            for mode in axis[:-1]:
                rest, digit = divmod(rest, mode.extent)
                at[mode.space] += digit * mode.stride
            if axis:  # the last digit takes what is left
                at[axis[-1].space] += rest * axis[-1].stride
        for digit, mode in zip(
            split_int(replica, (m.extent for m in self.replication)), self.replication, strict=True
        ):
            at[THREAD] += digit * mode.stride
        return at[THREAD], at[REGISTER]

    @property
    def replicas(self) -> int:
        """How many threads hold each element."""
        return math.prod(mode.extent for mode in self.replication)

    def coordinates(self, thread: int, register: int) -> tuple[int, ...]:
        """The inverse of `place`: logical coordinates held by a thread's register."""
        return tuple(
            sum(
                weight
                * ((thread if mode.space == THREAD else register) // mode.stride % mode.extent)
                for weight, mode in _weighted(axis)
            )
            for axis in self.axes
        )

    def coordinates_expr(self, thread: Expr, register: Expr) -> tuple[Expr, ...]:
        """`coordinates` on index expressions."""
        result: list[Expr] = []
        for axis in self.axes:
            total: Expr = const(0)
            for weight, mode in _weighted(axis):
                source = thread if mode.space == THREAD else register
                digit = binary("floordiv", source, const(mode.stride))
                if not self._is_outermost(mode):
                    digit = binary("floormod", digit, const(mode.extent))
                total = binary("add", total, binary("mul", digit, const(weight, int32)))
            result.append(total)
        return tuple(result)

    def _is_outermost(self, mode: FragmentMode) -> bool:
        """True when nothing of the same space lies above `mode`, so that no modulo is needed."""
        limit = self.threads if mode.space == THREAD else self.registers
        return mode.stride * mode.extent >= limit

    def _modes_of(self, space: str) -> list[tuple[int, int]]:
        modes = (*(m for axis in self.axes for m in axis), *self.replication)
        return [(mode.extent, mode.stride) for mode in modes if mode.space == space]

    def is_injective(self) -> bool:
        """True when no (thread, register) holds two coordinates; some may hold none."""
        return all(_never_meet(self._modes_of(space)) for space in (THREAD, REGISTER))

    def is_bijective(self) -> bool:
        """True when every (thread, register) below the counts holds exactly one coordinate."""
        return all(_fill_range(self._modes_of(space)) for space in (THREAD, REGISTER))

    def __str__(self) -> str:
        def one(mode: FragmentMode) -> str:
            return f"{mode.extent}:{'t' if mode.space == THREAD else 'r'}{mode.stride}"

        text = ", ".join(_axis_text([one(m) for m in axis]) for axis in self.axes)
        if not self.replication:
            return f"<{text}>"
        return f"<{text}; {' '.join(one(m) for m in self.replication)}>"


def _weighted(axis: tuple[FragmentMode, ...]) -> list[tuple[int, FragmentMode]]:
    """Each mode that has steps, with the weight of one of them in the axis' coordinate."""
    weights: list[tuple[int, FragmentMode]] = []
    weight = 1
    for mode in axis:
        if mode.extent > 1:
            weights.append((weight, mode))
        weight *= mode.extent
    return weights


def _never_meet(modes: list[tuple[int, int]]) -> bool:
    """True when all sums of one position per (extent, stride) mode are different."""
    moving = sorted(((abs(stride), extent) for extent, stride in modes if extent > 1))
    reach = 0
    for stride, extent in moving:
        if stride <= reach:
            break
        reach += (extent - 1) * stride
    else:
        return True  # each stride passes all that the smaller ones reach
    sums = np.zeros(1, np.int64)
    for stride, extent in moving:
        sums = np.add.outer(sums, stride * np.arange(extent)).ravel()
    return np.unique(sums).size == sums.size


def _fill_range(modes: list[tuple[int, int]]) -> bool:
    """True when the sums are 0, 1, 2... without gap or repetition: each stride is the product of
    the smaller modes' extents (no other progressions tile an interval)."""
    size = 1
    for stride, extent in sorted((stride, extent) for extent, stride in modes if extent > 1):
        if stride != size:
            return False
        size *= extent
    return True


def _same_dtype(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Two index expressions in the wider of their dtypes."""
    dtype = promote(dtype_of_expr(a), dtype_of_expr(b))
    return _as_dtype(a, dtype), _as_dtype(b, dtype)


def _as_dtype(expr: Expr, dtype: DType) -> Expr:
    if dtype_of_expr(expr) == dtype:
        return expr
    return const(expr.value, dtype) if isinstance(expr, Const) else Cast(expr, dtype)
