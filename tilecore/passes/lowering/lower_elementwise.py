"""An elementwise nest as one lane's code.

The loop layout's register modes become unrolled loops, its thread modes become coordinates
computed from the lane. Accesses to memory that are contiguous along the innermost register mode
are moved as vectors; all that may be out of bounds is guarded; a lane that only holds a copy
computes but does not store to memory.

    for r in 0..R (unrolled):
      if inside: lane.move A[offset : +8] -> a[0:8]        (vector load)
      for v in 0..8 (unrolled): o[v] = f(a[v])
      if inside: lane.move o[0:8] -> B[offset : +8]        (vector store)

A vector access stands outside the loop over its elements. What its place is computed from must be
known there: values that the body names are named in front of that loop where they are the same for
all its elements, and an access at another one is made element by element.
"""

from __future__ import annotations

import dataclasses
import math

from tilecore.errors import LoweringError
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import (
    FALSE,
    TRUE,
    Const,
    Expr,
    Load,
    Select,
    Var,
    binary,
    const,
    dtype_of_expr,
    free_vars,
    substitute,
    walk,
)
from tilecore.ir.stmts import (
    Allocate,
    Assert,
    Atomic,
    Block,
    For,
    If,
    Let,
    LoopKind,
    Parallel,
    Print,
    Stmt,
    Store,
)
from tilecore.ir.visit import exprs_of, walk_stmts
from tilecore.passes.accesses import Access, accesses_of
from tilecore.passes.elementwise import loop_layout, static_extents
from tilecore.passes.lowering.lane_nest import Nest, mentions, prepare_nest, unrolled
from tilecore.passes.lowering.lane_scope import LaneScope, guarded
from tilecore.passes.lowering.lane_vectors import VectorAccesses, order_matters
from tilecore.passes.lowering.layout_conflicts import conflict
from tilecore.passes.lowering.wide_adds import wide_add
from tilecore.passes.register_maps import RegisterMap, register_map
from tilecore.passes.spread import register_modes
from tilecore.passes.stage_fragments import uniform_layout

_UNROLL_LIMIT = 256  # iterations of a nest without fragments that are unrolled
Inner = tuple[tuple[Var, Expr, Expr], ...]


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
    prepared = prepare_nest(nest, extents, loop, scope)
    return _Lowering(prepared, scope).run()


class _Lowering:
    """Lowers the body of one prepared nest."""

    def __init__(self, nest: Nest, scope: LaneScope) -> None:
        self.nest = nest
        self.scope = scope
        self.vectors: VectorAccesses | None = None
        self.written = {a.buffer.name for a in accesses_of(nest.nest) if a.is_write}
        self.inside: set[Var] = set()  # variables that only the innermost loop's body knows
        modes = register_modes(nest.loop)
        if modes and modes[-1][1] == 1 and modes[-1][0] == len(nest.nest.vars) - 1:
            ordered = order_matters(accesses_of(nest.nest))
            self.vectors = VectorAccesses(nest, *nest.digits[-1], ordered, scope)
        # Where several lanes run one iteration, only the first stores to memory. Nests that write
        # nothing else are run by that lane alone.
        first = TRUE if self.is_own() else scope.first_copy(nest.loop)
        self.only_first = first if self.writes_memory_only() else TRUE
        self.first_copy = TRUE if self.writes_memory_only() else first

    def run(self) -> Block:
        nest = self.nest
        vectors = self.vectors
        body = self.block(nest.nest.body, (), unconditional=True)
        # A vector piece is wholly valid or not where its width divides the extents; else no access
        # of it was made a vector, and the whole body stands under the condition anyway.
        inner, outer = body, nest.digits
        added, replaced = wide_add(body, nest.digits, nest.valid, self.scope)
        if replaced and not (vectors is not None and (vectors.before or vectors.after)):
            inner, outer, vectors = added, nest.digits[: len(nest.digits) - replaced], None
        if vectors is not None:
            digit, extent = vectors.digit, vectors.extent
            loop = vectors.pack(body) or (unrolled(digit, extent, body),)
            inner, outer = (*vectors.before, *loop, *vectors.after), nest.digits[:-1]
        if vectors is not None and mentions(nest.valid, vectors.digit):
            inner = self.guard_inside(inner, vectors.digit)
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

    def guard_inside(self, inner: Block, digit: Var) -> Block:
        """Put the condition inside the vector loop when it depends on the vector's digit.

        It stands in front of that loop where all iterations of a vector exist or none: an
        assembler that sees it again around each element has run out of places where lanes meet.
        """
        is_whole = self.is_all_or_none(digit)
        result: list[Stmt] = []
        for stmt in inner:
            if isinstance(stmt, For) and stmt.var == digit:
                if is_whole:
                    stmt = If(substitute(self.nest.valid, {digit: const(0)}), (stmt,))
                else:
                    stmt = dataclasses.replace(stmt, body=guarded(self.nest.valid, stmt.body))
            result.append(stmt)
        return tuple(result)

    def is_all_or_none(self, digit: Var) -> bool:
        """True when vectors are aligned in the last axis and their length divides its extent."""
        nest, extent = self.nest.nest, self.nest.digits[-1][1]
        first = substitute(self.nest.at[nest.vars[-1]], {digit: const(0)})
        last = nest.extents[-1]
        divides = isinstance(last, Const) and int(last.value) % extent == 0
        return divides and self.scope.multiple(first) % extent == 0

    def is_own(self) -> bool:
        """A statement at block scope that each lane of a per-lane program does for itself."""
        nest = self.nest.nest
        if nest.vars:
            return False
        atomic = any(isinstance(stmt, Atomic) for stmt in nest.body)
        exprs = [expr for stmt in nest.body for expr in exprs_of(stmt)]
        return self.scope.is_own(exprs) or (atomic and self.scope.varying is not None)

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
                self.written.add(buffer.name)
                start = None if init is None else self.expr(init, inner, False)
                return (Allocate(self.scope.lane_buffer(buffer), start, stmt.loc),)
            case Let(var=var, value=value):
                new_let = dataclasses.replace(stmt, value=self.expr(value, inner, False))
                vectors = self.vectors if unconditional and self.is_outside((value,)) else None
                if vectors is not None and not mentions(new_let.value, vectors.digit):
                    vectors.before.append(new_let)
                    return ()
                self.inside.add(var)
                return (new_let,)
            case Assert(condition=condition):
                return (dataclasses.replace(stmt, condition=self.expr(condition, inner, False)),)
            case Print(value=Expr() as value):
                return (dataclasses.replace(stmt, value=self.expr(value, inner, False)),)
            case _:
                return (stmt,)

    def is_outside(self, values: tuple[Expr, ...]) -> bool:
        """True for values that are known in front of the innermost loop, and the same there."""

        def changes(node: Expr) -> bool:
            if isinstance(node, Load):
                return node.buffer.name in self.written
            return isinstance(node, Var) and node in self.inside

        return not any(changes(node) for value in values for node in walk(value))

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
            test = self.scope.inside(buffer, indices)
            return guarded(test, (Store(flat, at, value, stmt.loc),))
        if unconditional and self.vectors is not None and self.is_outside(stmt.indices):
            vector = self.vectors.store(stmt, indices, value, self.first_copy)
            if vector is not None:
                return vector
        flat = self.scope.lane_buffer(buffer)
        test = binary("and", self.scope.inside(buffer, indices), self.first_copy)
        one = Store(flat, (self.scope.offset(buffer, indices),), value, stmt.loc)
        return guarded(test, (one,))

    def atomic(self, stmt: Atomic, inner: Inner) -> Block:
        indices = tuple(self.expr(index, inner, False) for index in stmt.dst.starts)
        buffer = stmt.dst.buffer
        if stmt.previous is not None:
            self.inside.add(stmt.previous)
        assert isinstance(stmt.value, Expr)
        value = self.expr(stmt.value, inner, False)
        point = Region(
            self.scope.lane_buffer(buffer), (self.scope.offset(buffer, indices),), (None,)
        )
        test = binary("and", self.scope.inside(buffer, indices), self.first_copy)
        one = dataclasses.replace(stmt, dst=point, value=value)
        if stmt.previous is None or test == TRUE:
            return guarded(test, (one,))
        # The old value is wanted after the guard's end, by the lane itself.
        kind, names = stmt.previous.dtype, self.scope.names
        kept = names.buffer(stmt.previous.name, (), kind, Scope.LOCAL)
        seen = Var(names.fresh(stmt.previous.name), kind)
        inside = (dataclasses.replace(one, previous=seen), Store(kept, (), seen, stmt.loc))
        first = Allocate(kept, const(0, kind), stmt.loc)
        return (first, *guarded(test, inside), Let(stmt.previous, Load(kept, ()), stmt.loc))

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
            own = Load(flat, (self.scope.offset(buffer, indices),) if indices else ())
            return _select(self.scope.inside(buffer, indices), own, safe)
        if unconditional and self.vectors is not None and self.is_outside(load.indices):
            registers = self.vectors.load(buffer, indices)
            if registers is not None:
                return Load(registers, (self.vectors.digit,))
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
            raise conflict(nest.nest, nest.loop, buffer, indices, scope.layouts)
        return register_expr(found, nest.digits, inner)


def register_expr(found: RegisterMap, digits: tuple[tuple[Var, int], ...], inner: Inner) -> Expr:
    """A register map as an index expression."""
    total: Expr = const(found.base)
    for (digit, _), stride in zip(digits, found.digits, strict=True):
        total = binary("add", total, binary("mul", digit, const(stride)))
    for (var, _, _), stride in zip(inner, found.inner, strict=True):
        total = binary("add", total, binary("mul", var, const(stride)))
    return total


def _select(condition: Expr, value: Expr, otherwise: Expr) -> Expr:
    if condition == TRUE:
        return value
    if condition == FALSE:
        return otherwise
    return Select(condition, value, otherwise, dtype_of_expr(value))


def lower_uniform(expr: Expr, scope: LaneScope) -> Expr:
    """An expression at block scope, the same in all lanes."""
    nest = prepare_nest(Parallel((), (), ()), (), uniform_layout(scope.threads), scope)
    return _Lowering(nest, scope).expr(expr, (), False)
