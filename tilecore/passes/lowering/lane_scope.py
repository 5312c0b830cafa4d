"""What lowering to one lane's code needs everywhere: flat buffers, offsets, guards, names."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import DType, float32, int64, tfloat32
from tilecore.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Var,
    all_of,
    binary,
    const,
    dtype_of_expr,
    widened,
)  # fmt: skip
from tilecore.ir.lane_dependence import depends_on_lane
from tilecore.ir.layout import REGISTER, FragmentLayout, FragmentMode, Layout, Mode, split
from tilecore.ir.program import Kernel
from tilecore.ir.ranges import Ranges
from tilecore.ir.simplify import simplify
from tilecore.ir.stmts import Block, If, Let
from tilecore.passes.async_copies import LARGEST_INT32, strides_of
from tilecore.passes.scopes import Names, static

LANE = Var("lane.index")
"""The lane's index in its block, bound at the top of every kernel. No author's name has a dot."""


@dataclass(slots=True)
class LaneScope:
    """State of the lowering of one kernel.

    Attributes:
        kernel: the scheduled kernel.
        context: target and hooks.
        names: unused names.
        ranges: bounds of variables; grows as lane variables are made.
        flat: buffer name -> its one-dimensional lane-level buffer.
        head: definitions for the top of the kernel.
        varying: names that differ between lanes; None where the kernel is not written per lane.
        is_diverged: under a condition that differs between lanes.
    """

    kernel: Kernel
    context: Context
    names: Names
    ranges: Ranges
    flat: dict[str, Buffer] = field(default_factory=dict)
    head: list[Let] = field(default_factory=list)
    varying: frozenset[str] | None = None
    is_diverged: bool = False
    _simplified: dict[Expr, Expr] = field(default_factory=dict)
    _simplified_by: Ranges | None = None

    def is_own(self, exprs: Iterable[Expr]) -> bool:
        """Whether every lane does a statement at block scope for itself; else it is done once."""
        if self.varying is None:
            return False
        return self.is_diverged or any(depends_on_lane(e, self.varying) for e in exprs)

    @property
    def threads(self) -> int:
        """Lanes of the block that work on tiles: all but those of producer warps."""
        return int(dict(self.kernel.hints).get("tile_threads", self.kernel.threads))

    def group_of(self, lanes: int) -> Expr:
        """The number of this lane's group of `lanes` lanes, known to be the same in its warp."""
        if self.threads == lanes:
            return const(0)
        value = binary("floordiv", LANE, const(lanes))
        for known in self.head:
            if isinstance(known.value, Call) and known.value.args == (value,):
                return known.var
        var = self.var("group", 0, self.threads // lanes - 1)
        self.head.append(Let(var, Call("lane.uniform", (value,), var.dtype)))
        return var

    @property
    def layouts(self) -> dict[str, Layout | FragmentLayout]:
        """Layouts of on-chip buffers."""
        return dict(self.kernel.layouts)

    def fragment_layout(self, buffer: Buffer) -> FragmentLayout:
        """The layout of a fragment."""
        layout = self.kernel.layout_of(buffer)
        assert isinstance(layout, FragmentLayout), f"fragment {buffer.name} has no layout"
        return layout

    def shared_layout(self, buffer: Buffer) -> Layout:
        """The layout of a shared buffer."""
        layout = self.kernel.layout_of(buffer)
        assert isinstance(layout, Layout), f"shared buffer {buffer.name} has no layout"
        return layout

    def var(self, base: str, low: int, high: int) -> Var:
        """A new int32 variable with inclusive bounds."""
        var = Var(self.names.fresh(base))
        grown = self.ranges.with_new(var, low, high)
        if self._simplified_by is self.ranges:  # a new variable changes nothing of what was known
            self._simplified_by = grown
        self.ranges = grown
        return var

    def local(self, base: str, size: int, like: Buffer) -> Buffer:
        """A new array of registers of `like`'s dtype."""
        return self.names.buffer(base, (size,), like.dtype, Scope.LOCAL)

    def lane_buffer(self, buffer: Buffer) -> Buffer:
        """The one-dimensional buffer that stands for `buffer` at the lane level."""
        if buffer.name in self.flat:
            return self.flat[buffer.name]
        self.flat[buffer.name] = made = self._flatten(buffer)
        return made

    def _flatten(self, buffer: Buffer) -> Buffer:
        scope = buffer.scope
        size: Expr
        match scope:
            case Scope.GLOBAL:
                size = _reach(buffer)
            case Scope.SHARED:
                size = const(self.shared_layout(buffer).span)
            case Scope.FRAGMENT:
                size, scope = const(self.fragment_layout(buffer).registers), Scope.LOCAL
            case _:
                if not buffer.shape:
                    return buffer
                size = const(math.prod(static(buffer)))
        return Buffer(
            buffer.name, (size,), buffer.dtype, scope, None, buffer.safe_value, buffer.loc
        )

    @staticmethod
    def is_same_storage(a: DType, b: DType) -> bool:
        """True when registers of the two dtypes hold the same bits (float32 and tfloat32 do)."""
        return a == b or {a, b} == {float32, tfloat32}

    def simplify(self, expr: Expr) -> Expr:
        """The same value in fewer operations, by what is known here."""
        if self._simplified_by is not self.ranges:
            self._simplified, self._simplified_by = {}, self.ranges
        known = self._simplified.get(expr)
        if known is None:
            known = self._simplified[expr] = simplify(expr, self.ranges, apart=True)
        return known

    def multiple(self, expr: Expr) -> int:
        """The largest number that is known to divide `expr`; 0 when it is always 0."""
        return self.ranges.multiple(expr)

    # --- offsets -------------------------------------------------------------------------------

    def offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """Linear element offset of a global, shared or local element."""
        if buffer.scope is Scope.SHARED:
            return self.simplify(shared_offset(self.shared_layout(buffer), indices, self.ranges))
        if buffer.scope is Scope.GLOBAL:
            return self._global_offset(buffer, indices)
        total: Expr = const(0)
        for index, stride in zip(indices, strides_of(buffer.shape, None), strict=True):
            total = binary("add", total, binary("mul", index, stride))
        return self.simplify(total)

    def plain_offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """Offset of a shared element before the swizzle of its layout."""
        layout = dataclasses.replace(self.shared_layout(buffer), swizzle=None)
        return self.simplify(layout.offset_expr(indices))

    def _global_offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        strides = strides_of(buffer.shape, buffer.strides)
        wide = self._needs_64_bits(buffer, strides)
        total: Expr = const(0, int64 if wide else const(0).dtype)
        for index, stride in zip(indices, strides, strict=True):
            index = self.simplify(index)
            if wide:
                index, stride = widened(index), widened(stride)
            total = binary("add", total, binary("mul", index, stride))
        return total

    def _needs_64_bits(self, buffer: Buffer, strides: tuple[Expr, ...]) -> bool:
        span = 0
        for extent, stride in zip(buffer.shape, strides, strict=True):
            if not isinstance(extent, Const) or not isinstance(stride, Const):
                return True
            span += (int(extent.value) - 1) * abs(int(stride.value))
        return span > LARGEST_INT32

    # --- guards --------------------------------------------------------------------------------

    def inside(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """The condition that all indices are in the buffer's shape; proven parts are left out."""
        needed: list[Expr] = []
        for index, extent in zip(indices, buffer.shape, strict=True):
            above = binary("ge", index, const(0, dtype_of_expr(index)))
            below = binary("lt", index, extent)
            needed += [c for c in (above, below) if not self.ranges.proves(c)]
        return all_of(self.simplify(c) for c in needed)

    def first_copy(self, layout: FragmentLayout) -> Expr:
        """The condition that this lane is the first of the layout's copies."""
        return all_of(
            binary("eq", self.thread_digit(mode), const(0))
            for mode in layout.replication
            if mode.extent > 1
        )

    def in_use(self, layout: FragmentLayout) -> Expr:
        """The condition that this lane takes part in the layout at all."""
        condition = binary("lt", LANE, const(layout.threads))
        return all_of(() if self.ranges.proves(condition) else (condition,))

    def thread_digit(self, mode: FragmentMode) -> Expr:
        """This lane's digit of a thread mode."""
        digit = binary("floordiv", LANE, const(mode.stride))
        if mode.stride * mode.extent < self.threads:
            digit = binary("floormod", digit, const(mode.extent))
        return self.simplify(digit)

    def thread_parts(self, layout: FragmentLayout) -> tuple[Expr, ...]:
        """Per axis, the part of the coordinate that the lane determines."""
        parts: list[Expr] = []
        for axis in layout.axes:
            total: Expr = const(0)
            weight = 1
            for mode in axis:
                if mode.space != REGISTER and mode.extent > 1:
                    digit = self.thread_digit(mode)
                    total = binary("add", total, binary("mul", digit, const(weight)))
                weight *= mode.extent
            parts.append(total)
        return tuple(parts)


def shared_offset(layout: Layout, indices: tuple[Expr, ...], ranges: Ranges) -> Expr:
    """Offset of a shared element, with the swizzle on as few terms as it needs.

    ``high + (low ^ x)``: only terms inside the XORed bits take part, and x comes only from the
    terms that reach its source bits, so that constants of unrolled loops stay additive.
    """
    terms: list[tuple[Expr, Mode]] = []
    for axis, index in zip(layout.axes, indices, strict=True):
        digits = split(simplify(index, ranges, apart=True), (mode.extent for mode in axis))
        terms += [(simplify(d, ranges, apart=True), m) for d, m in zip(digits, axis, strict=True)]
    swizzle = layout.swizzle
    if swizzle is None or swizzle.bits == 0:
        return _total(terms)
    low_limit = 1 << (swizzle.base + swizzle.bits)
    source = 1 << (swizzle.base + swizzle.shift)
    low = [(d, m) for d, m in terms if m.stride < low_limit]
    high = [(d, m) for d, m in terms if m.stride >= low_limit]
    if _span(low) > low_limit or any(m.stride % low_limit for _, m in high):
        return layout.offset_expr(indices)
    below = [(d, m) for d, m in high if m.stride < source]
    above = [(d, m) for d, m in high if m.stride >= source]
    if any(m.stride % source for _, m in above):
        return layout.offset_expr(indices)
    # Terms below the source bits may reach into them: they then count with their own carry.
    reaching = _total([(d, Mode(m.extent, m.stride // low_limit)) for d, m in below])
    from_below = binary("floordiv", reaching, const(source // low_limit))
    period = 1 << swizzle.bits
    rows = _total(
        [(d, Mode(m.extent, m.stride // source)) for d, m in above if m.stride // source % period]
    )
    mask = const((1 << swizzle.bits) - 1)
    chosen = binary("bitand", binary("add", rows, simplify(from_below, ranges, apart=True)), mask)
    x = binary("mul", chosen, const(1 << swizzle.base))
    # Digits of one axis occupy different bits, so their sum is their XOR: what unrolled loops add
    # stays apart from what the lane adds.
    for digit, mode in low:
        for part in _bitwise_parts(digit, mode.stride, ranges):
            x = part if x == const(0) else binary("bitxor", x, part)
    return binary("add", _total(high), x)


def _bitwise_parts(digit: Expr, stride: int, ranges: Ranges) -> list[Expr]:
    """``digit * stride`` as parts whose bits do not overlap; one part when that is not provable."""
    whole = binary("mul", digit, const(stride))
    form = ranges.linear(whole)
    parts = [*form.terms, *(((const(1), form.constant),) if form.constant else ())]
    taken = 0
    result: list[Expr] = []
    for term, coefficient in parts:
        part = binary("mul", term, const(coefficient))
        low, high = ranges.interval(part)
        if low < 0 or coefficient < 0:
            return [whole]
        step = coefficient & -coefficient
        bits = ((1 << high.bit_length()) - 1) & ~(step - 1)
        if bits & taken:
            return [whole]
        taken |= bits
        result.append(part)
    return result


def _total(terms: list[tuple[Expr, Mode]]) -> Expr:
    total: Expr = const(0)
    for digit, mode in terms:
        if dtype_of_expr(digit) != dtype_of_expr(total):
            digit = Cast(digit, dtype_of_expr(total))
        total = binary("add", total, binary("mul", digit, const(mode.stride)))
    return total


def _span(terms: list[tuple[Expr, Mode]]) -> int:
    return 1 + sum((m.extent - 1) * m.stride for _, m in terms)


def guarded(condition: Expr, block: Block) -> Block:
    """`block` under a condition, unless that is always true."""
    if not block or (isinstance(condition, Const) and condition.value):
        return block
    if isinstance(condition, Const):
        return ()
    return (If(condition, block),)


def _reach(buffer: Buffer) -> Expr:
    """Elements from a global buffer's first to its last."""
    size: Expr = const(1)
    if buffer.strides is None:
        for extent in buffer.shape:
            size = binary("mul", size, extent)
        return size
    for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
        last = binary("sub", extent, const(1, dtype_of_expr(extent)))
        size = binary("add", size, binary("mul", last, stride))
    return size


__all__ = ["LANE", "Call", "LaneScope", "guarded", "shared_offset"]
