"""Vector accesses of a nest: pieces of neighbouring iterations that move at once.

The nest's innermost register mode is the vector digit. An access that is contiguous and aligned
along it, and wholly in or out of bounds, is moved between memory and an array of registers before
or after the loop over the digit. Buffers whose accesses depend on their order in the body (written,
then read or written again) are left to element accesses.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import float32
from tilecore.ir.expr import TRUE, Cast, Const, Expr, Var, binary, const, dtype_of_expr, substitute
from tilecore.ir.stmts import Allocate, Block, If, Intrinsic, Stmt, Store
from tilecore.ir.visit import substitute_block
from tilecore.passes.accesses import Access
from tilecore.passes.async_copies import strides_of
from tilecore.passes.elementwise import VECTOR_BYTES
from tilecore.passes.lowering.bounded_moves import bounded_move, is_bounded, needed_test
from tilecore.passes.lowering.lane_nest import Nest, mentions, span, unrolled
from tilecore.passes.lowering.lane_scope import LaneScope, guarded


def order_matters(accesses: Iterable[Access]) -> frozenset[str]:
    """Names of buffers that are touched again after a write."""
    written: set[str] = set()
    found: set[str] = set()
    for access in accesses:
        if access.buffer.name in written:
            found.add(access.buffer.name)
        if access.is_write:
            written.add(access.buffer.name)
    return frozenset(found)


class VectorAccesses:
    """Makes the vector accesses of one nest, and keeps the statements around its innermost loop.

    Attributes:
        before: vector loads.
        after: vector stores.
    """

    def __init__(
        self, nest: Nest, digit: Var, extent: int, ordered: frozenset[str], scope: LaneScope
    ) -> None:
        self.nest = nest
        self.digit = digit
        self.extent = extent
        self.ordered = ordered
        self.scope = scope
        self.before: list[Stmt] = []
        self.after: list[Stmt] = []
        self._loaded: dict[tuple[str, tuple[Expr, ...]], Buffer] = {}

    def load(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Buffer | None:
        """Registers that hold the piece, one per digit; None when there is no vector access."""
        width = self._width(buffer, indices)
        if width == 1:
            return None
        key = (buffer.name, indices)
        if key not in self._loaded:
            registers = self.scope.local(f"{buffer.name}_in", self.extent, buffer)
            self._loaded[key] = registers
            self.before.append(Allocate(registers))
            bounded = is_bounded(buffer, self.scope, loads=True)
            for at, memory, test in self._pieces(buffer, indices, width, bounded):
                if bounded:
                    there = span(registers, at, width)
                    self.before.append(bounded_move(memory, there, buffer, test, None))
                    continue
                move = Intrinsic("lane.move", (memory, span(registers, at, width)))
                safe = const(buffer.safe_value, buffer.dtype)
                fill = tuple(Store(registers, (const(at + k),), safe) for k in range(width))
                self.before.append(move if test == TRUE else If(test, (move,), fill))
        return self._loaded[key]

    def store(
        self, stmt: Store, indices: tuple[Expr, ...], value: Expr, allowed: Expr
    ) -> Block | None:
        """The statement that fills the piece's registers; None when there is no vector access.

        The piece is stored after the loop, where `allowed` holds.
        """
        buffer = stmt.buffer
        width = self._width(buffer, indices)
        if width == 1:
            return None
        registers = self.scope.local(f"{buffer.name}_out", self.extent, buffer)
        self.before.append(Allocate(registers))
        bounded = is_bounded(buffer, self.scope, loads=False)
        for at, memory, test in self._pieces(buffer, indices, width, bounded):
            if bounded:
                allowed_here = binary("and", test, allowed)
                here = span(registers, at, width)
                self.after.append(bounded_move(here, memory, buffer, allowed_here, stmt.loc))
                continue
            move = Intrinsic("lane.move", (span(registers, at, width), memory), (), stmt.loc)
            self.after += guarded(binary("and", test, allowed), (move,))
        return (Store(registers, (self.digit,), value, stmt.loc),)

    def _width(self, buffer: Buffer, indices: tuple[Expr, ...]) -> int:
        """Elements of one vector access; 1 when there is none."""
        axes = [k for k, index in enumerate(indices) if mentions(index, self.digit)]
        if len(axes) != 1 or buffer.name in self.ordered or buffer.dtype.bits < 8:
            return 1
        (axis,) = axes
        index = self.scope.simplify(indices[axis])
        if self.scope.ranges.regrouped(index).step(self.digit) != 1:
            return 1
        base = substitute(index, {self.digit: const(0)})
        width = min(self.extent & -self.extent, VECTOR_BYTES // buffer.dtype.bytes)
        while width > 1 and not self._is_whole(buffer, base, axis, indices, width):
            width //= 2
        return width

    def _is_whole(
        self, buffer: Buffer, base: Expr, axis: int, indices: tuple[Expr, ...], width: int
    ) -> bool:
        """True when aligned pieces of `width` are contiguous and all in or all out of bounds."""
        if self.scope.multiple(base) % width:
            return False
        inside_depends = mentions(self.scope.inside(buffer, indices), self.digit)
        if inside_depends and self.scope.multiple(buffer.shape[axis]) % width:
            return False
        if mentions(self.nest.valid, self.digit):
            extent = self.nest.nest.extents[-1]
            if not isinstance(extent, Const) or int(extent.value) % width:
                return False
        if buffer.scope is Scope.SHARED:
            return self.scope.shared_layout(buffer).vector_run(axis) % width == 0
        if axis != buffer.rank - 1:
            return False
        strides = strides_of(buffer.shape, buffer.strides)
        return strides[-1] == const(1) and all(
            self.scope.multiple(s) % width == 0 for s in strides[:-1]
        )

    def _pieces(
        self, buffer: Buffer, indices: tuple[Expr, ...], width: int, bounded: bool
    ) -> list[tuple[int, Region, Expr]]:
        """(first register, memory region, guard) of each vector access of one piece."""
        flat = self.scope.lane_buffer(buffer)
        valid_depends = mentions(self.nest.valid, self.digit)
        result: list[tuple[int, Region, Expr]] = []
        for at in range(0, self.extent, width):
            here: dict[Var, Expr] = {self.digit: const(at)}
            fixed = tuple(substitute(index, here) for index in indices)
            offset = self.scope.offset(buffer, fixed)
            if bounded:
                test = needed_test(buffer, fixed, offset, self.scope)
            else:
                test = self.scope.inside(buffer, fixed)
            if valid_depends:
                test = binary("and", test, substitute(self.nest.valid, here))
            result.append((at, span(flat, offset, width), test))
        return result

    def pack(self, body: Block) -> Block | None:
        """The loop over the digit as pairs of conversions to a 16-bit or 8-bit float, one each.

        None unless the body is one store of a converted float32 to neighbouring registers.
        """
        if len(body) != 1 or not isinstance(body[0], Store) or self.extent % 2:
            return None
        store = body[0]
        value, dtype = store.value, store.buffer.dtype
        if store.buffer.scope is not Scope.LOCAL or not dtype.is_float or dtype.bits > 16:
            return None
        if not isinstance(value, Cast) or dtype_of_expr(value.a) != float32:
            return None
        if mentions(self.nest.valid, self.digit):
            return None
        register = self.scope.ranges.regrouped(store.indices[0])
        others = [c for term, c in register.terms if term != self.digit]
        if dict(register.terms).get(self.digit) != 1:
            return None
        if any(c % 2 for c in (*others, register.constant)):
            return None
        pair = self.scope.var("pair", 0, self.extent // 2 - 1)
        low = binary("mul", pair, const(2))
        high = binary("add", low, const(1))
        target = substitute(store.indices[0], {self.digit: low})
        args = (
            Region(store.buffer, (target,), (const(2),)),
            substitute(value.a, {self.digit: low}),
            substitute(value.a, {self.digit: high}),
        )
        packed: Block = (Intrinsic("lane.pack", args, (), store.loc),)
        if self.extent == 2:
            return substitute_block(packed, {pair: const(0)})
        return (unrolled(pair, self.extent // 2, packed),)
