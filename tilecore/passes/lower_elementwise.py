"""An elementwise nest as one lane's code.

The loop layout's register modes become unrolled loops, its thread modes become coordinates
computed from the lane. Accesses to memory that are contiguous along the innermost register mode
are moved as vectors; all that may be out of bounds is guarded; a lane that only holds a copy
computes but does not store to memory.

    for r in 0..R (unrolled):
      if inside: lane.move A[offset : +8] -> a[0:8]        (vector load)
      for v in 0..8 (unrolled): o[v] = f(a[v])
      if inside: lane.move o[0:8] -> B[offset : +8]        (vector store)
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from tilecore.errors import LoweringError
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import float32
from tilecore.ir.expr import (
    FALSE,
    TRUE,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Var,
    binary,
    const,
    free_vars,
    substitute,
)
from tilecore.ir.layout import FragmentLayout
from tilecore.ir.stmts import (
    Allocate,
    Assert,
    Atomic,
    Block,
    For,
    If,
    Intrinsic,
    Let,
    LoopKind,
    Parallel,
    Print,
    Stmt,
    Store,
)
from tilecore.ir.visit import substitute_block, walk_stmts
from tilecore.passes.bounds import all_of, divisor, linear
from tilecore.passes.elementwise import (
    VECTOR_BYTES,
    Access,
    RegisterMap,
    accesses_of,
    loop_layout,
    register_map,
    static_extents,
)
from tilecore.passes.lane_scope import LANE, LaneScope, guarded
from tilecore.passes.spread import register_modes
from tilecore.passes.stage_fragments import uniform_layout

_UNROLL_LIMIT = 256  # iterations of a nest without fragments that are unrolled
Inner = tuple[tuple[Var, Expr, Expr], ...]


@dataclass(frozen=True, slots=True)
class Nest:
    """One nest while it is lowered.

    Attributes:
        nest: the nest over its own variables.
        extents: upper bounds of its extents.
        loop: the loop layout.
        digits: one unrolled loop per register mode, slowest first.
        at: nest variable -> coordinate, in terms of lane and digits.
        valid: the condition that the iteration exists.
    """

    nest: Parallel
    extents: tuple[int, ...]
    loop: FragmentLayout
    digits: tuple[tuple[Var, int], ...]
    at: dict[Var, Expr]
    valid: Expr


def lower_nest(nest: Parallel, scope: LaneScope) -> Block:
    """Lower a nest; `stage_fragments` has made sure that every fragment access fits.

    Raises:
        LoweringError: an extent has no constant bound.
    """
    extents = static_extents(nest, scope.ranges)
    if extents is None:
        raise LoweringError(
            "an elementwise nest needs extents with a constant bound",
            got=[str(e) for e in nest.extents],
            loc=nest.loc,
        )
    if nest.vars:
        loop = loop_layout(nest, scope.layouts, scope.threads, scope.ranges)
        assert loop is not None
    else:
        loop = uniform_layout(scope.threads)
    prepared = _prepare(nest, extents, loop, scope)
    return _Lowering(prepared, scope).run()


def _prepare(
    nest: Parallel, extents: tuple[int, ...], loop: FragmentLayout, scope: LaneScope
) -> Nest:
    modes = register_modes(loop)
    digits = tuple(
        (scope.var(_name(nest.vars[axis].name), 0, mode.extent - 1), mode.extent)
        for axis, _, mode in modes
    )
    at: dict[Var, Expr] = {}
    needed: list[Expr] = []
    parts = scope.thread_parts(loop)
    for axis, var in enumerate(nest.vars):
        total = parts[axis]
        for (digit, _), (digit_axis, weight, _) in zip(digits, modes, strict=True):
            if digit_axis == axis:
                total = binary("add", total, binary("mul", digit, const(weight)))
        at[var] = scope.ranges.simplify(total)
        below = binary("lt", at[var], nest.extents[axis])
        if not scope.ranges.proves(below):
            needed.append(below)
    valid = all_of((*needed, scope.in_use(loop)))
    return Nest(nest, extents, loop, digits, at, valid)


def _name(base: str) -> str:
    return {"__0": "i", "__1": "j", "__2": "k", "__3": "l"}.get(base, base.lstrip("_") or "i")


class _Lowering:
    """Lowers the body of one prepared nest."""

    def __init__(self, nest: Nest, scope: LaneScope) -> None:
        self.nest = nest
        self.scope = scope
        self.before: list[Stmt] = []  # vector loads of the current piece
        self.after: list[Stmt] = []  # vector stores
        self.loaded: dict[tuple[str, tuple[Expr, ...]], Buffer] = {}
        self.vector: tuple[Var, int] | None = None
        # Where several lanes run one iteration, only the first stores to memory. Nests that write
        # nothing else are run by that lane alone.
        first = scope.first_copy(nest.loop)
        self.only_first = first if self.writes_memory_only() else TRUE
        self.first_copy = TRUE if self.writes_memory_only() else first

    def run(self) -> Block:
        nest = self.nest
        modes = register_modes(nest.loop)
        if modes and modes[-1][1] == 1 and modes[-1][0] == len(nest.nest.vars) - 1:
            self.vector = nest.digits[-1]
        body = self.block(nest.nest.body, (), unconditional=True)
        # A vector piece is wholly valid or not where its width divides the extents; else no access
        # of it was made a vector, and the whole body stands under the condition anyway.
        inner: Block
        if self.vector is not None:
            digit, extent = self.vector
            loop = self.pack(body, digit, extent) or (_unrolled(digit, extent, body),)
            inner = (*self.before, *loop, *self.after)
            outer = nest.digits[:-1]
        else:
            inner, outer = body, nest.digits
        if self.vector is not None and _mentions(nest.valid, self.vector[0]):
            inner = self.guard_inside(inner)
        else:
            inner = guarded(nest.valid, inner)
        inner = guarded(self.only_first, inner)
        iterations = math.prod(extent for _, extent in nest.digits)
        serial = iterations > _UNROLL_LIMIT and not self.has_fragments()
        for digit, extent in reversed(outer):
            kind = LoopKind.SERIAL if serial else LoopKind.UNROLL
            loc = nest.nest.loc
            inner = (For(digit, const(0), const(extent), const(1), inner, kind, loc=loc),)
        return inner

    def guard_inside(self, inner: Block) -> Block:
        """Put the condition inside the vector loop when it depends on the vector's digit."""
        assert self.vector is not None
        digit = self.vector[0]
        result: list[Stmt] = []
        for stmt in inner:
            if isinstance(stmt, For) and stmt.var == digit:
                stmt = dataclasses.replace(stmt, body=guarded(self.nest.valid, stmt.body))
            result.append(stmt)
        return tuple(result)

    def writes_memory_only(self) -> bool:
        own = {s.buffer.name for s in walk_stmts(self.nest.nest.body) if isinstance(s, Allocate)}
        return all(
            access.buffer.scope in (Scope.GLOBAL, Scope.SHARED) or access.buffer.name in own
            for access in accesses_of(self.nest.nest)
            if access.is_write
        )

    def has_fragments(self) -> bool:
        return any(a.buffer.scope is Scope.FRAGMENT for a in accesses_of(self.nest.nest))

    # --- statements ----------------------------------------------------------------------------

    def block(self, block: Block, inner: Inner, unconditional: bool = False) -> Block:
        result: list[Stmt] = []
        for stmt in block:
            result += self.stmt(stmt, inner, unconditional)
        return tuple(result)

    def stmt(self, stmt: Stmt, inner: Inner, unconditional: bool) -> Block:
        match stmt:
            case Store():
                return self.store(stmt, inner, unconditional)
            case For(var=var, start=start, extent=extent, step=step, body=body):
                low = self.expr(start, inner, False)
                count = self.expr(extent, inner, False)
                self.scope.ranges = self.scope.ranges.with_loop(var, low, count, step)
                new = self.block(body, (*inner, (var, start, extent)))
                kind = LoopKind.UNROLL if self.uses_registers(body, var) else stmt.kind
                return (For(var, low, count, step, new, kind, None, stmt.hints, stmt.loc),)
            case If(condition=condition, then=then, otherwise=otherwise):
                test = self.expr(condition, inner, False)
                new_then, new_else = self.block(then, inner), self.block(otherwise, inner)
                return (If(test, new_then, new_else, stmt.loc),)
            case Atomic():
                return self.atomic(stmt, inner)
            case Allocate(buffer=buffer, init=init):
                start = None if init is None else self.expr(init, inner, False)
                return (Allocate(self.scope.lane_buffer(buffer), start, stmt.loc),)
            case Let(value=value):
                return (dataclasses.replace(stmt, value=self.expr(value, inner, False)),)
            case Assert(condition=condition):
                return (dataclasses.replace(stmt, condition=self.expr(condition, inner, False)),)
            case Print(value=Expr() as value):
                return (dataclasses.replace(stmt, value=self.expr(value, inner, False)),)
            case _:
                return (stmt,)

    def uses_registers(self, body: Block, var: Var) -> bool:
        """True when a register index depends on an inner loop, which then must be unrolled."""
        probe = Parallel((), (), body)
        return any(
            access.buffer.scope is Scope.FRAGMENT
            and any(var in free_vars(i) for i in access.indices)
            for access in accesses_of(probe)
        )

    def store(self, stmt: Store, inner: Inner, unconditional: bool) -> Block:
        value = self.expr(stmt.value, inner, unconditional)
        buffer = stmt.buffer
        if buffer.scope is Scope.FRAGMENT:
            flat = self.scope.lane_buffer(buffer)
            register = self.register(buffer, stmt.indices, True, inner)
            test = self.scope.inside(buffer, self.located(stmt.indices))
            return guarded(test, (Store(flat, (register,), value, stmt.loc),))
        indices = tuple(self.expr(index, inner, False) for index in stmt.indices)
        if buffer.scope is Scope.LOCAL:
            flat = self.scope.lane_buffer(buffer)
            at = (self.scope.offset(buffer, indices),) if indices else ()
            return (Store(flat, at, value, stmt.loc),)
        if unconditional and not inner:
            vector = self.vector_store(stmt, indices, value)
            if vector is not None:
                return vector
        flat = self.scope.lane_buffer(buffer)
        test = binary("and", self.scope.inside(buffer, indices), self.first_copy)
        one = Store(flat, (self.scope.offset(buffer, indices),), value, stmt.loc)
        return guarded(test, (one,))

    def atomic(self, stmt: Atomic, inner: Inner) -> Block:
        indices = tuple(self.expr(index, inner, False) for index in stmt.dst.starts)
        buffer = stmt.dst.buffer
        assert isinstance(stmt.value, Expr)
        value = self.expr(stmt.value, inner, False)
        point = Region(
            self.scope.lane_buffer(buffer), (self.scope.offset(buffer, indices),), (None,)
        )
        test = binary("and", self.scope.inside(buffer, indices), self.first_copy)
        return guarded(test, (dataclasses.replace(stmt, dst=point, value=value),))

    # --- expressions ---------------------------------------------------------------------------

    def expr(self, expr: Expr, inner: Inner, unconditional: bool) -> Expr:
        """Loads to registers and flat buffers, nest variables to coordinates."""
        if isinstance(expr, Select):
            return Select(
                self.expr(expr.condition, inner, unconditional),
                self.expr(expr.a, inner, False),
                self.expr(expr.b, inner, False),
                expr.dtype,
            )
        children = tuple(self.expr(child, inner, unconditional) for child in expr.children)
        if isinstance(expr, Load):
            return self.load(expr, children, inner, unconditional)
        if isinstance(expr, Var):
            return self.nest.at.get(expr, expr)
        from tilecore.ir.expr import rebuild

        return rebuild(expr, children) if children else expr

    def load(
        self, load: Load, indices: tuple[Expr, ...], inner: Inner, unconditional: bool
    ) -> Expr:
        buffer = load.buffer
        flat = self.scope.lane_buffer(buffer)
        safe = const(buffer.safe_value, buffer.dtype)
        if buffer.scope is Scope.FRAGMENT:
            register = self.register(buffer, load.indices, False, inner)
            return _select(self.scope.inside(buffer, indices), Load(flat, (register,)), safe)
        if buffer.scope is Scope.LOCAL:
            return Load(flat, (self.scope.offset(buffer, indices),) if indices else ())
        if unconditional and not inner and self.vector is not None:
            vector = self.vector_load(buffer, indices)
            if vector is not None:
                return Load(vector, (self.vector[0],))
        value = Load(flat, (self.scope.offset(buffer, indices),))
        return _select(self.scope.inside(buffer, indices), value, safe)

    def located(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(substitute(index, self.nest.at) for index in indices)

    def register(
        self, buffer: Buffer, indices: tuple[Expr, ...], is_write: bool, inner: Inner
    ) -> Expr:
        """The register of a fragment access, in terms of digits and inner loop variables."""
        nest, scope = self.nest, self.scope
        access = Access(buffer, indices, is_write, False, inner)
        layout = scope.fragment_layout(buffer)
        found = register_map(nest.nest, nest.extents, access, nest.loop, layout, scope.threads)
        if found is None:
            raise LoweringError(
                f"fragment {buffer.name} is not where the loop needs it",
                got=f"{layout} in a loop over {nest.loop}",
                loc=nest.nest.loc,
            )
        return register_expr(found, nest.digits, inner)

    # --- vectors -------------------------------------------------------------------------------

    def piece(self, buffer: Buffer, indices: tuple[Expr, ...]) -> int:
        """Elements of one vector access along the vector digit; 1 when there is none."""
        if self.vector is None or not indices:
            return 1
        digit, extent = self.vector
        form = dict(linear(indices[-1]).terms)
        if form.get(digit) != 1 or any(_mentions(index, digit) for index in indices[:-1]):
            return 1
        if any(_mentions(term, digit) for term in form if term != digit):
            return 1
        base = substitute(indices[-1], {digit: const(0)})
        width = min(extent, VECTOR_BYTES // buffer.dtype.bytes)
        while width > 1 and not self.is_whole(buffer, base, indices, width):
            width //= 2
        return width if extent % max(1, width) == 0 else 1

    def is_whole(self, buffer: Buffer, base: Expr, indices: tuple[Expr, ...], width: int) -> bool:
        """True when aligned pieces of `width` are contiguous and all in or all out of bounds."""
        from tilecore.passes.async_copies import strides_of

        if width & (width - 1) or divisor(base) % width or buffer.dtype.bits < 8:
            return False
        last = buffer.shape[-1]
        digit = self.vector[0] if self.vector else LANE
        if divisor(last) % width and _mentions(self.scope.inside(buffer, indices), digit):
            return False
        if any(_mentions(self.nest.valid, digit) for _ in (0,)) and self.nest.extents[-1] % width:
            return False
        if not isinstance(self.nest.nest.extents[-1], Const) and _mentions(self.nest.valid, digit):
            return False
        if buffer.scope is Scope.SHARED:
            layout = self.scope.shared_layout(buffer)
            return layout.contiguous_run(buffer.rank - 1) % width == 0
        strides = strides_of(buffer.shape, buffer.strides)
        return strides[-1] == const(1) and all(divisor(s) % width == 0 for s in strides[:-1])

    def vector_load(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Buffer | None:
        width = self.piece(buffer, indices)
        if width == 1:
            return None
        key = (buffer.name, indices)
        if key not in self.loaded:
            assert self.vector is not None
            registers = self.scope.local(f"{buffer.name}_in", self.vector[1], buffer)
            self.loaded[key] = registers
            self.before.append(Allocate(registers))
            for at, memory, test in self.pieces(buffer, indices, width):
                move = Intrinsic("lane.move", (memory, _span(registers, at, width)))
                if test == TRUE:
                    self.before.append(move)
                    continue
                safe = const(buffer.safe_value, buffer.dtype)
                self.before.append(If(test, (move,), tuple(
                    Store(registers, (const(at + k),), safe) for k in range(width)
                )))  # fmt: skip
        return self.loaded[key]

    def vector_store(self, stmt: Store, indices: tuple[Expr, ...], value: Expr) -> Block | None:
        buffer = stmt.buffer
        width = self.piece(buffer, indices)
        if width == 1 or self.vector is None:
            return None
        digit, extent = self.vector
        registers = self.scope.local(f"{buffer.name}_out", extent, buffer)
        self.before.append(Allocate(registers))
        for at, memory, test in self.pieces(buffer, indices, width):
            move = Intrinsic("lane.move", (_span(registers, at, width), memory), (), stmt.loc)
            self.after += guarded(binary("and", test, self.first_copy), (move,))
        return (Store(registers, (digit,), value, stmt.loc),)

    def pieces(
        self, buffer: Buffer, indices: tuple[Expr, ...], width: int
    ) -> list[tuple[int, Region, Expr]]:
        """(first register, memory region, guard) of each vector access of one piece."""
        assert self.vector is not None
        digit, extent = self.vector
        flat = self.scope.lane_buffer(buffer)
        valid_depends = _mentions(self.nest.valid, digit)
        result = []
        for at in range(0, extent, width):
            fixed = tuple(substitute(index, {digit: const(at)}) for index in indices)
            test = self.scope.inside(buffer, fixed)
            if valid_depends:
                test = binary("and", test, substitute(self.nest.valid, {digit: const(at)}))
            result.append((at, _span(flat, self.scope.offset(buffer, fixed), width), test))
        return result

    def pack(self, body: Block, digit: Var, extent: int) -> Block | None:
        """Two conversions to a 16-bit float as one: neighbours in registers, one store."""
        if len(body) != 1 or not isinstance(body[0], Store) or extent % 2:
            return None
        store = body[0]
        value = store.value
        is_narrow = store.buffer.dtype.is_float and store.buffer.dtype.bits == 16
        if store.buffer.scope is not Scope.LOCAL or not is_narrow or not isinstance(value, Cast):
            return None
        if value.a.dtype != float32 or _mentions(self.nest.valid, digit):  # type: ignore[attr-defined]
            return None
        register = linear(store.indices[0])
        others = [c for term, c in register.terms if term != digit]
        if dict(register.terms).get(digit) != 1 or any(c % 2 for c in (*others, register.constant)):
            return None
        pair = self.scope.var("pair", 0, extent // 2 - 1)
        low = binary("mul", pair, const(2))
        high = binary("add", low, const(1))
        target = substitute(store.indices[0], {digit: low})
        args = (
            Region(store.buffer, (target,), (const(2),)),
            substitute(value.a, {digit: low}),
            substitute(value.a, {digit: high}),
        )
        packed = Intrinsic("lane.pack", args, (), store.loc)
        return (_unrolled(pair, extent // 2, (packed,)),) if extent > 2 else substitute_block(
            (packed,), {pair: const(0)}
        )  # fmt: skip


def register_expr(found: RegisterMap, digits: tuple[tuple[Var, int], ...], inner: Inner) -> Expr:
    """A register map as an index expression."""
    total: Expr = const(found.base)
    for (digit, _), stride in zip(digits, found.digits, strict=True):
        total = binary("add", total, binary("mul", digit, const(stride)))
    for (var, _, _), stride in zip(inner, found.inner, strict=True):
        total = binary("add", total, binary("mul", var, const(stride)))
    return total


def _unrolled(digit: Var, extent: int, body: Block) -> For:
    return For(digit, const(0), const(extent), const(1), body, LoopKind.UNROLL)


def _span(buffer: Buffer, start: int | Expr, width: int) -> Region:
    first = const(start) if isinstance(start, int) else start
    return Region(buffer, (first,), (const(width),))


def _mentions(expr: Expr, var: Var) -> bool:
    return var in free_vars(expr)


def _select(condition: Expr, value: Expr, otherwise: Expr) -> Expr:
    if condition == TRUE:
        return value
    if condition == FALSE:
        return otherwise
    return Select(condition, value, otherwise, value.dtype)  # type: ignore[attr-defined]


def lower_uniform(expr: Expr, scope: LaneScope) -> Expr:
    """An expression at block scope, the same in all lanes."""
    nest = _prepare(Parallel((), (), ()), (), uniform_layout(scope.threads), scope)
    return _Lowering(nest, scope).expr(expr, (), False)
