"""Fused nests: rows outside, columns in vectors, partial reductions kept over a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilecore.ir.expr import Const
from tilecore.ir.stmts import Reduce, Stmt, Store

from . import row_groups
from .builder import Value, vector_type
from .conversions import compute_type, convert, storage_type, widen
from .elementwise import Nest, Touch
from .expressions import evaluate_stored, index
from .fusion import FusedNest
from .lane_analysis import compute_bits
from .memory import load_element, store_element
from .reductions import Combiner, finish_row
from .state import BlockState, VectorAxis
from .storage import Storage

Companion = tuple[Callable[[Value], None], int]
"""What is written in front of every n-th row, given that row, and n (a divisor of 16)."""


def emit_fused(
    s: BlockState,
    stmt: FusedNest,
    unread: frozenset[str] = frozenset(),
    companion: Companion | None = None,
) -> None:
    """A nest with row reductions. What it writes to `unread` buffers stays in registers."""
    nest = RowNest(s, stmt, unread, companion)
    outer = (
        s.is_elementwise,
        s.is_guarded,
        s.nest_names,
        dict(s.definitions),
        set(s.lane_locals),
        s.axis,
    )
    s.is_elementwise, s.nest_names = True, tuple(var.name for var in stmt.nest.vars)
    nest.emit()
    s.is_elementwise, s.is_guarded, s.nest_names, s.definitions, s.lane_locals, s.axis = outer


class RowNest(Nest):
    """A fused nest: rows outside, columns in vectors, partial reductions kept over a row."""

    def __init__(
        self,
        s: BlockState,
        fused: FusedNest,
        unread: frozenset[str],
        companion: Companion | None = None,
    ) -> None:
        super().__init__(s, fused.nest)
        self.unread = unread
        self.companion = companion
        self.reduces = fused.reduces
        self.place = fused.place
        for _, reduce in self.reduces:
            source = Touch(reduce.src.buffer, reduce.src.indices(self.place), False)
            self.touches.append(source)
        if self.reduces:
            self.axis = 1
        self.combiners = [
            Combiner(s, reduce.op, reduce.dst.dtype, reduce.nan_propagate)
            for _, reduce in self.reduces
        ]
        self.partial: list[list[Value]] = []
        self.turn = 0
        # Within a group of rows: where the last vectors of the rows wait, and which row this is.
        self.waiting: list[Value] = []
        self.number: Value | None = None

    def _lanes(self) -> int:
        lanes = super()._lanes()
        for _, reduce in self.reduces:
            bits = max(compute_bits(reduce.src.dtype), compute_bits(reduce.dst.dtype))
            lanes = min(lanes, max(1, self.s.cpu.vector_bits // bits))
        return lanes

    def _outer(self, order: Sequence[int], lanes: int) -> None:
        """The loop over rows; where their number allows, 16 are reduced across lanes together."""
        rows = self.stmt.extents[0]
        is_whole = isinstance(rows, Const) and rows.value % row_groups.ROWS == 0
        s, w = self.s, self.s.w
        if not self.reduces or not order or not is_whole or lanes != row_groups.ROWS:
            if self.companion is not None:
                with w.loop(w.i64(0), index(s, rows), self.companion[1]) as loop:
                    self.companion[0](loop.index)
            super()._outer(order, lanes)
            return
        name = self.stmt.vars[0].name
        kinds = [self._result_type(reduce, lanes) for _, reduce in self.reduces]
        self.waiting = [w.alloca(kind, row_groups.ROWS) for kind in kinds]
        with w.loop(w.i64(0), index(s, rows), row_groups.ROWS) as group:
            self._rows_of(group.index, name, lanes)
            s.axis = VectorAxis(name, group.index, lanes)
            for n, (_, reduce) in enumerate(self.reduces):
                places = (w.offset(self.waiting[n], kinds[n], k) for k in range(row_groups.ROWS))
                vectors = [w.load(place, kinds[n], 64) for place in places]
                total = row_groups.reduce_square(self.combiners[n], vectors)
                finish_row(s, self.combiners[n], reduce, self.stmt.vars[0], total)
            s.axis = None
        self.waiting, self.number = [], None

    def _rows_of(self, first: Value, name: str, lanes: int) -> None:
        """The rows of a group, and their companion."""
        s, w = self.s, self.s.w
        count = row_groups.ROWS if self.companion is None else self.companion[1]
        with w.loop(w.i64(0), w.i64(row_groups.ROWS), count) as part:
            if self.companion is not None:
                self.companion[0](w.add(first, part.index))
            with w.loop(part.index, w.add(part.index, w.i64(count))) as loop:
                self.number = loop.index
                s.wide[name] = w.add(first, loop.index)
                self._vector_loop(lanes)
            del s.wide[name]

    def _result_type(self, reduce: Reduce, lanes: int) -> str:
        return vector_type(compute_type(reduce.dst.dtype), lanes)

    def _vector_loop(self, lanes: int) -> None:
        w = self.s.w
        vectors = int(self.stmt.extents[1].value) // lanes  # type: ignore[attr-defined]
        copies = 4 if vectors >= 16 else (2 if vectors >= 4 else 1)
        self.partial, self.turn = [], 0
        for combiner, (_, reduce) in zip(self.combiners, self.reduces, strict=True):
            kind = self._result_type(reduce, lanes)
            slots = [w.alloca(kind) for _ in range(copies)]
            for slot in slots:
                w.store(combiner.neutral(kind), slot, 64)
            self.partial.append(slots)
        super()._vector_loop(lanes)
        for n, (_, reduce) in enumerate(self.reduces):
            self._end_row(n, reduce, lanes)

    def _static_tail(self, name: str, start: int, rest: int, lanes: int) -> None:
        if not self.reduces:
            super()._static_tail(name, start, rest, lanes)
            return
        w = self.s.w
        active = w.icmp(
            "slt", w.const_vector(range(lanes), "i32"), w.const(rest, vector_type("i32", lanes))
        )
        self._body(VectorAxis(name, w.i64(start), lanes, active))

    def _body(self, axis: VectorAxis) -> None:
        s = self.s
        s.axis = axis
        storage, slots = {name: s.storage[name] for name in self.unread}, s.pointer_slots
        done = 0
        for number, (after, reduce) in enumerate(self.reduces):
            for stmt in self.stmt.body[done:after]:
                self._lanes_of(stmt)
            done = after
            self._accumulate(number, reduce, axis)
        for stmt in self.stmt.body[done:]:
            self._lanes_of(stmt)
        s.axis = None
        s.lane_locals -= self.unread
        s.storage.update(storage)
        s.pointer_slots = slots
        self.turn += 1

    def _lanes_of(self, stmt: Stmt) -> None:
        """Values for unread buffers go to a place that LLVM turns into a register."""
        s = self.s
        if not isinstance(stmt, Store) or stmt.buffer.name not in self.unread - s.lane_locals:
            super()._lanes_of(stmt)
            return
        assert s.axis is not None
        value = evaluate_stored(s, stmt.value, stmt.buffer.dtype)
        name = stmt.buffer.name
        kind = vector_type(storage_type(stmt.buffer.dtype), s.axis.lanes)
        s.storage[name] = Storage(stmt.buffer, s.w.alloca(kind), ())
        s.pointer_slots = {key: v for key, v in s.pointer_slots.items() if key != name}
        s.lane_locals.add(name)
        store_element(s, stmt.buffer, stmt.indices, value)

    def _accumulate(self, number: int, reduce: Reduce, axis: VectorAxis) -> None:
        s, w, combiner = self.s, self.s.w, self.combiners[number]
        src = reduce.src
        stored = load_element(s, src.buffer, src.indices(self.place))
        value = convert(w, widen(w, stored, src.dtype), src.dtype, reduce.dst.dtype)
        value = combiner.prepare(w.splat(value, axis.lanes))
        if axis.active is not None:
            value = w.select(axis.active, value, combiner.neutral(value.type))
        slots = self.partial[number]
        slot = slots[self.turn % len(slots)]
        w.store(combiner.combine(w.load(slot, value.type, 64), value), slot, 64)

    def _end_row(self, n: int, reduce: Reduce, lanes: int) -> None:
        s, w, combiner = self.s, self.s.w, self.combiners[n]
        kind = self._result_type(reduce, lanes)
        totals = [w.load(slot, kind, 64) for slot in self.partial[n]]
        total = totals[0]
        for other in totals[1:]:
            total = combiner.combine(total, other)
        if self.number is not None:
            w.store(total, w.offset(self.waiting[n], kind, self.number), 64)
            return
        finish_row(s, combiner, reduce, self.stmt.vars[0], combiner.across(total))
