"""Elementwise nests (Parallel, Copy, Fill): explicit vectors along one axis, guards at the edges.

A nest is written twice when it may reach over a buffer's edge: one test before it chooses the
version without guards (every access inside) or the one that masks each access.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilecore.errors import UnsupportedError
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Cast, Const, Expr, Load, Var, const, walk
from tilecore.ir.stmts import Allocate, Atomic, Block, For, If, Let, Parallel, Reduce, Stmt, Store
from tilecore.ir.visit import exprs_of, walk_stmts

from .analysis import coefficient, depends_on, interval
from .builder import Value, vector_type
from .conversions import compute_type, convert, narrow, storage_type, widen
from .expressions import evaluate, evaluate_stored, index
from .fusion import FusedNest
from .memory import is_affine, is_proven, linear_offset, load_element, store_element
from .reductions import Combiner, finish_row
from .state import BlockState, VectorAxis
from .storage import Storage


PREFETCH_ROWS = 8
"""Rows ahead of the one being copied: a short row ends before the hardware sees a stream in it."""
LONG_ROW_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Touch:
    """One access of a nest."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_store: bool


def emit_parallel(s: BlockState, stmt: Parallel) -> None:
    """Write the nest; iterations are independent, so that any axis may be the vector axis."""
    nest = _Nest(s, stmt)
    outer = (s.is_elementwise, s.is_guarded, s.nest_names, dict(s.definitions), set(s.lane_locals), s.axis)
    s.is_elementwise, s.nest_names = True, tuple(var.name for var in stmt.vars)
    nest.emit()
    s.is_elementwise, s.is_guarded, s.nest_names, s.definitions, s.lane_locals, s.axis = outer


def emit_fused(s: BlockState, stmt: FusedNest) -> None:
    """A nest with row reductions."""
    nest = _RowNest(s, stmt)
    outer = (s.is_elementwise, s.is_guarded, s.nest_names, dict(s.definitions), set(s.lane_locals), s.axis)
    s.is_elementwise, s.nest_names = True, tuple(var.name for var in stmt.nest.vars)
    nest.emit()
    s.is_elementwise, s.is_guarded, s.nest_names, s.definitions, s.lane_locals, s.axis = outer


def touches_of(body: Block) -> Iterator[Touch]:
    """Every access of a body."""
    for stmt in walk_stmts(body):
        if isinstance(stmt, Store):
            yield Touch(stmt.buffer, stmt.indices, True)
        if isinstance(stmt, Atomic):
            yield Touch(stmt.dst.buffer, stmt.dst.starts, True)
        for top in exprs_of(stmt):
            for node in walk(top):
                if isinstance(node, Load):
                    yield Touch(node.buffer, node.indices, False)


class _Nest:
    def __init__(self, s: BlockState, stmt: Parallel) -> None:
        self.s = s
        self.stmt = stmt
        self.touches = list(touches_of(stmt.body))
        for inner in walk_stmts(stmt.body):
            if isinstance(inner, Let):
                s.definitions[inner.var.name] = inner.value
            if isinstance(inner, For):
                low, high = interval(inner.start, s.ranges, s.definitions), interval(inner.extent, s.ranges, s.definitions)
                step = inner.step.value if isinstance(inner.step, Const) else 1
                s.ranges[inner.var.name] = (low[0], low[1] + max(high[1] - 1, 0) * step)
        for var, extent in zip(stmt.vars, stmt.extents, strict=True):
            s.ranges[var.name] = (0, max(interval(extent, s.ranges, s.definitions)[1] - 1, 0))
        self.axis = self._choose_axis()

    # -- the vector axis ------------------------------------------------------------------------

    def _choose_axis(self) -> int:
        """The axis along which most accesses are contiguous; the last one of equals."""
        scores = []
        for n, (var, extent) in enumerate(zip(self.stmt.vars, self.stmt.extents, strict=True)):
            score = sum(self._score(touch, var.name) for touch in self.touches)
            if isinstance(extent, Const) and extent.value < 4:
                score -= 100
            scores.append((score, n))
        return max(scores)[1]

    def _score(self, touch: Touch, name: str) -> int:
        s = self.s
        strides = s.storage_of(touch.buffer).strides if touch.buffer.name in s.storage else ()
        if strides is None:
            return 0
        step: float = 0
        for expr, stride in zip(touch.indices, strides, strict=False):
            moved = coefficient(expr, name, s.definitions)
            if moved is None or (moved and isinstance(stride, Value)):
                return -4
            step += moved * (0 if isinstance(stride, Value) else stride)
        return {0: 1 if not touch.is_store else -6, 1: 4}.get(int(step), -4)

    def _lanes(self) -> int:
        """Lanes of the vectors: as many as the widest element type in use allows."""
        s, stmt = self.s, self.stmt
        if not _can_vectorise(s, stmt.body, stmt.vars[self.axis].name, set()):
            return 1
        bits = max((_widest(inner) for inner in walk_stmts(stmt.body)), default=32)
        lanes = s.cpu.vector_bits // bits
        extent = stmt.extents[self.axis]
        if isinstance(extent, Const):
            lanes = min(lanes, 1 << max(0, int(extent.value) - 1).bit_length())
        return max(1, lanes)

    # -- both versions --------------------------------------------------------------------------

    def emit(self) -> None:
        s, w = self.s, self.s.w
        lanes = self._lanes()
        condition = self._inside_condition()
        if condition is None:
            s.is_guarded = False
            self._loops(lanes)
            return
        label = w.fresh("edge")
        w.terminate(f"br {condition}, label %{label}.inside, label %{label}.guarded")
        w.begin_block(f"{label}.inside")
        s.is_guarded = False
        self._loops(lanes)
        w.terminate(f"br label %{label}.end")
        w.begin_block(f"{label}.guarded")
        s.is_guarded = True
        self._loops(lanes)
        w.begin_block(f"{label}.end")

    def _inside_condition(self) -> Value | None:
        """That all affine accesses stay inside; None when that is known already."""
        s, w = self.s, self.s.w
        seen: dict[tuple[Expr, Expr], None] = {}
        for touch in self.touches:
            if touch.buffer.scope is Scope.LOCAL and not touch.indices:
                continue
            for expr, extent in zip(touch.indices, touch.buffer.shape, strict=True):
                if not is_proven(s, expr, extent) and is_affine(s, expr):
                    seen.setdefault((expr, extent))
        condition: Value | None = None
        for expr, extent in seen:
            if any(depends_on(expr, name, s.definitions) for name in self._inner_names()):
                # A serial loop's variable inside the nest: its own range bounds the index.
                low, high = interval(expr, s.ranges, s.definitions)
                if math.isinf(low) or math.isinf(high):
                    return w.const(False, "i1")
                lowest, highest = w.i64(int(low)), w.i64(int(high))
            else:
                lowest, highest = self._extremes(expr)
            limit = index(s, extent)
            inside = w.binary("and", w.icmp("sge", lowest, w.i64(0)), w.icmp("slt", highest, limit))
            condition = inside if condition is None else w.binary("and", condition, inside)
        return condition

    def _inner_names(self) -> list[str]:
        return [inner.var.name for inner in walk_stmts(self.stmt.body) if isinstance(inner, For)]

    def _extremes(self, expr: Expr) -> tuple[Value, Value]:
        """Least and greatest value of an affine index over the nest."""
        s, w = self.s, self.s.w
        names = [var.name for var in self.stmt.vars]
        for name in names:
            s.wide[name] = w.i64(0)
        base = index(s, _inline(expr, s.definitions))
        lowest = highest = base
        for name, extent in zip(names, self.stmt.extents, strict=True):
            del s.wide[name]
            moved = coefficient(expr, name, s.definitions) or 0
            if moved == 0:
                continue
            reach = w.mul(w.sub(index(s, extent), w.i64(1)), w.i64(moved))
            if moved > 0:
                highest = w.add(highest, reach)
            else:
                lowest = w.add(lowest, reach)
        return lowest, highest

    # -- loops ----------------------------------------------------------------------------------

    def _loops(self, lanes: int) -> None:
        order = [n for n in range(len(self.stmt.vars)) if n != self.axis]
        self._outer(order, lanes)

    def _outer(self, order: Sequence[int], lanes: int) -> None:
        s = self.s
        if not order:
            self._vector_loop(lanes)
            return
        var, extent = self.stmt.vars[order[0]], self.stmt.extents[order[0]]
        with s.w.loop(s.w.i64(0), index(s, extent)) as loop:
            if len(order) == 1:
                s.wide[var.name] = s.w.add(loop.index, s.w.i64(PREFETCH_ROWS))
                self._prefetch()
            s.wide[var.name] = loop.index
            self._outer(order[1:], lanes)
        del s.wide[var.name]

    def _prefetch(self) -> None:
        """In copies of short rows of an input: ask for a later row (the outer variable's)."""
        s, w = self.s, self.s.w
        columns = self.stmt.extents[self.axis]
        body = self.stmt.body
        value = body[0].value if len(body) == 1 and isinstance(body[0], Store) else None
        value = value.a if isinstance(value, Cast) else value
        if not isinstance(value, Load) or value.buffer.scope is not Scope.GLOBAL or s.is_guarded:
            return
        row_bytes = int(columns.value) * value.dtype.bytes if isinstance(columns, Const) else 0
        name = self.stmt.vars[self.axis].name
        storage = s.storage_of(value.buffer)
        if not 128 <= row_bytes <= LONG_ROW_BYTES or storage.strides is None or storage.strides[-1] != 1:
            return
        if coefficient(value.indices[-1], name, s.definitions) != 1:
            return
        s.wide[name] = w.i64(0)
        offset = linear_offset(s, storage, value.indices)
        del s.wide[name]
        first = w.offset(storage.pointer, storage_type(value.dtype), offset)
        for step in range(0, row_bytes, 64):
            w.prefetch(w.offset_bytes(first, step))

    def _vector_loop(self, lanes: int) -> None:
        s, w = self.s, self.s.w
        name, extent = self.stmt.vars[self.axis].name, self.stmt.extents[self.axis]
        if isinstance(extent, Const):
            full, rest = divmod(int(extent.value), lanes)
            if full <= 4:
                for n in range(full):
                    self._body(VectorAxis(name, w.i64(n * lanes), lanes))
            else:
                unroll = next(u for u in (4, 2, 1) if full % u == 0)
                with w.loop(w.i64(0), w.i64(full * lanes), lanes * unroll) as loop:
                    for n in range(unroll):
                        self._body(VectorAxis(name, w.add(loop.index, w.i64(n * lanes)), lanes))
            if rest:
                self._static_tail(name, full * lanes, rest, lanes)
            return
        count = index(s, extent)
        stop = w.sub(count, w.binary("srem", count, w.i64(lanes)))
        with w.loop(w.i64(0), stop, lanes) as loop:
            self._body(VectorAxis(name, loop.index, lanes))
        if lanes > 1:
            with w.when(w.icmp("slt", stop, count)):
                left = w.splat(w.cast("trunc", w.sub(count, stop), "i32"), lanes)
                active = w.icmp("slt", w.const_vector(range(lanes), "i32"), left)
                self._body(VectorAxis(name, stop, lanes, active))

    def _static_tail(self, name: str, start: int, rest: int, lanes: int) -> None:
        w = self.s.w
        if rest & (rest - 1) == 0:
            self._body(VectorAxis(name, w.i64(start), rest))
            return
        active = w.icmp("slt", w.const_vector(range(lanes), "i32"), w.const(rest, vector_type("i32", lanes)))
        self._body(VectorAxis(name, w.i64(start), lanes, active))

    def _body(self, axis: VectorAxis) -> None:
        self.s.axis = axis
        emit_lane_block(self.s, self.stmt.body)
        self.s.axis = None


class _RowNest(_Nest):
    """A fused nest: rows outside, columns in vectors, partial reductions kept over a row."""

    def __init__(self, s: BlockState, fused: FusedNest) -> None:
        super().__init__(s, fused.nest)
        self.reduces = fused.reduces
        for _, reduce in self.reduces:
            source = Touch(reduce.src.buffer, reduce.src.indices(self.stmt.vars), False)
            self.touches.append(source)
        if self.reduces:
            self.axis = 1
        self.combiners = [
            Combiner(s, reduce.op, reduce.dst.dtype, reduce.nan_propagate) for _, reduce in self.reduces
        ]
        self.partial: list[list[Value]] = []
        self.turn = 0

    def _lanes(self) -> int:
        lanes = super()._lanes()
        for _, reduce in self.reduces:
            bits = max(_bits(reduce.src.dtype), _bits(reduce.dst.dtype))
            lanes = min(lanes, max(1, self.s.cpu.vector_bits // bits))
        return lanes

    def _vector_loop(self, lanes: int) -> None:
        w = self.s.w
        vectors = int(self.stmt.extents[1].value) // lanes  # type: ignore[attr-defined]
        copies = 4 if vectors >= 16 else (2 if vectors >= 4 else 1)
        self.partial, self.turn = [], 0
        for combiner, (_, reduce) in zip(self.combiners, self.reduces, strict=True):
            kind = vector_type(compute_type(reduce.dst.dtype), lanes)
            slots = [w.alloca(kind) for _ in range(copies)]
            for slot in slots:
                w.store(combiner.neutral(kind), slot, 64)
            self.partial.append(slots)
        super()._vector_loop(lanes)
        for n, (_, reduce) in enumerate(self.reduces):
            self._end_row(self.combiners[n], reduce, self.partial[n], lanes)

    def _static_tail(self, name: str, start: int, rest: int, lanes: int) -> None:
        if not self.reduces:
            super()._static_tail(name, start, rest, lanes)
            return
        w = self.s.w
        active = w.icmp("slt", w.const_vector(range(lanes), "i32"), w.const(rest, vector_type("i32", lanes)))
        self._body(VectorAxis(name, w.i64(start), lanes, active))

    def _body(self, axis: VectorAxis) -> None:
        self.s.axis = axis
        done = 0
        for number, (after, reduce) in enumerate(self.reduces):
            emit_lane_block(self.s, self.stmt.body[done:after])
            done = after
            self._accumulate(number, reduce, axis)
        emit_lane_block(self.s, self.stmt.body[done:])
        self.s.axis = None
        self.turn += 1

    def _accumulate(self, number: int, reduce: Reduce, axis: VectorAxis) -> None:
        s, w, combiner = self.s, self.s.w, self.combiners[number]
        src = reduce.src
        stored = load_element(s, src.buffer, src.indices(self.stmt.vars))
        value = convert(w, widen(w, stored, src.dtype), src.dtype, reduce.dst.dtype)
        value = combiner.prepare(w.splat(value, axis.lanes))
        if axis.active is not None:
            value = w.select(axis.active, value, combiner.neutral(value.type))
        slots = self.partial[number]
        slot = slots[self.turn % len(slots)]
        w.store(combiner.combine(w.load(slot, value.type, 64), value), slot, 64)

    def _end_row(self, combiner: Combiner, reduce: Reduce, slots: list[Value], lanes: int) -> None:
        s, w = self.s, self.s.w
        kind = vector_type(compute_type(reduce.dst.dtype), lanes)
        totals = [w.load(slot, kind, 64) for slot in slots]
        total = totals[0]
        for other in totals[1:]:
            total = combiner.combine(total, other)
        finish_row(s, combiner, reduce, self.stmt.vars[0], combiner.across(total))


def _inline(expr: Expr, definitions: dict[str, Expr]) -> Expr:
    """Replace let-bound variables of the nest by their definitions."""
    from tilecore.ir.expr import transform

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Var) and node.name in definitions:
            return _inline(definitions[node.name], definitions)
        return None

    return transform(expr, visit)


def _can_vectorise(s: BlockState, body: Block, name: str, locals_here: set[str]) -> bool:
    for stmt in body:
        match stmt:
            case Let():
                continue
            case Store(buffer=buffer):
                if buffer.scope is Scope.LOCAL and buffer.name not in locals_here:
                    return False
            case If(then=then, otherwise=otherwise):
                if not _can_vectorise(s, then, name, locals_here):
                    return False
                if not _can_vectorise(s, otherwise, name, locals_here):
                    return False
            case For(start=start, extent=extent, step=step, body=inner):
                if any(depends_on(e, name, s.definitions) for e in (start, extent, step)):
                    return False
                if any(_reads_memory(e) for e in (start, extent, step)):
                    return False
                if not _can_vectorise(s, inner, name, locals_here):
                    return False
            case Allocate(buffer=buffer) if not buffer.shape:
                locals_here.add(buffer.name)
            case _:
                return False
    return True


def _reads_memory(expr: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(expr))


def is_raw_copy(stmt: Store) -> bool:
    """A store of an element of the same type: no conversion, any width of vector."""
    return isinstance(stmt.value, Load) and stmt.value.buffer.dtype == stmt.buffer.dtype


def _widest(stmt: Stmt) -> int:
    """Bits of the widest element type that a statement computes with."""
    if isinstance(stmt, Store):
        if is_raw_copy(stmt):
            return stmt.buffer.dtype.bits
        return max(_bits(stmt.buffer.dtype), _expr_bits(stmt.value))
    if isinstance(stmt, Let):
        return _expr_bits(stmt.value)
    if isinstance(stmt, If):
        return _expr_bits(stmt.condition)
    if isinstance(stmt, Allocate):
        return _bits(stmt.buffer.dtype)
    return 8


def _bits(dtype: DType) -> int:
    return 32 if dtype.is_float and dtype.bits < 32 else dtype.bits


def _expr_bits(expr: Expr) -> int:
    if isinstance(expr, Load):
        return _bits(expr.dtype)
    own = _bits(expr.dtype)  # type: ignore[attr-defined]
    return max([own, *(_expr_bits(child) for child in expr.children)])


# -- statements of the body ---------------------------------------------------------------------


def emit_lane_block(s: BlockState, body: Block) -> None:
    """The statements of a nest's body, for the lanes of the current vector axis."""
    for stmt in body:
        _emit_lane(s, stmt)


def _emit_lane(s: BlockState, stmt: Stmt) -> None:
    match stmt:
        case Let(var=var, value=value):
            s.values[var.name] = evaluate(s, value)
        case Store(buffer=buffer, indices=indices, value=value):
            if is_raw_copy(stmt):
                assert isinstance(value, Load)
                stored = load_element(s, value.buffer, value.indices)
            else:
                stored = evaluate_stored(s, value, buffer.dtype)
            store_element(s, buffer, indices, stored)
        case If():
            _emit_if(s, stmt)
        case Allocate(buffer=buffer, init=init) if not buffer.shape:
            _allocate_lane_local(s, buffer, init)
        case _:
            _emit_scalar(s, stmt)


def _emit_scalar(s: BlockState, stmt: Stmt) -> None:
    """Loops, and what only runs one lane at a time."""
    from .statements import emit_statement

    lanes = 1 if s.axis is None else s.axis.lanes
    if lanes > 1 and not isinstance(stmt, For):
        raise UnsupportedError(f"{type(stmt).__name__} cannot be part of an elementwise nest")
    emit_statement(s, stmt, emit_lane_block)


def _allocate_lane_local(s: BlockState, buffer: Buffer, init: Expr | None) -> None:
    w = s.w
    lanes = 1 if s.axis is None else s.axis.lanes
    place = w.alloca(vector_type(storage_type(buffer.dtype), lanes))
    s.storage[buffer.name] = Storage(buffer, place, ())
    s.lane_locals.add(buffer.name)
    if init is not None:
        value = narrow(w, w.splat(evaluate(s, init), lanes), buffer.dtype)
        w.store(value, place, 64)


def _emit_if(s: BlockState, stmt: If) -> None:
    from .builder import lane_count
    from .expressions import same_lanes
    from .statements import emit_branch

    w = s.w
    assert s.axis is not None
    condition = evaluate(s, stmt.condition)
    if lane_count(condition.type) == 1:
        emit_branch(s, condition, stmt.then, stmt.otherwise, emit_lane_block)
        return
    before = s.axis.active
    for chosen, body in ((condition, stmt.then), (None, stmt.otherwise)):
        if not body:
            continue
        if chosen is None:
            chosen = w.binary("xor", condition, w.const(True, condition.type))
        if before is not None:
            chosen = w.binary("and", *same_lanes(s, [chosen, before]))
        s.axis.active = chosen
        emit_lane_block(s, body)
    s.axis.active = before


# -- copy and fill as nests ---------------------------------------------------------------------


def _nest_over(s: BlockState, region: Region, value_at: object) -> Parallel:
    names = [Var(s.w.fresh("copy."), expr.dtype) for expr in _typed(region.shape)]  # type: ignore[attr-defined]
    coordinates = tuple(names)
    value = value_at(coordinates)  # type: ignore[operator]
    store = Store(region.buffer, region.indices(coordinates), value)
    return Parallel(coordinates, tuple(region.shape), (store,))


def _typed(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return shape


def emit_copy_nest(s: BlockState, src: Region, dst: Region) -> None:
    """``dst = cast(src)`` through the general nest."""

    def value_at(coordinates: tuple[Expr, ...]) -> Expr:
        load = Load(src.buffer, src.indices(coordinates))
        return load if src.dtype == dst.dtype else Cast(load, dst.dtype)

    _emit_region_nest(s, dst, value_at)


def emit_fill_nest(s: BlockState, dst: Region, value: Expr) -> None:
    """Every element of `dst` to `value`."""
    _emit_region_nest(s, dst, lambda coordinates: value)


def _emit_region_nest(s: BlockState, dst: Region, value_at: object) -> None:
    if not dst.shape:  # a single point: one iteration
        dst = Region(dst.buffer, dst.starts, (*dst.extents[:-1], const(1)) if dst.extents else ())
    if not dst.extents:
        stored = narrow(s.w, evaluate(s, value_at(())), dst.dtype)  # type: ignore[operator]
        store_element(s, dst.buffer, (), stored)
        return
    emit_parallel(s, _nest_over(s, dst, value_at))


__all__ = [
    "compute_type",
    "emit_copy_nest",
    "emit_fill_nest",
    "emit_lane_block",
    "emit_parallel",
    "touches_of",
]
