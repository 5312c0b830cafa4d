"""Fused nests: rows outside, columns in vectors, partial reductions kept over a row."""

from __future__ import annotations

from tilecore.ir.stmts import Reduce

from .builder import Value, vector_type
from .conversions import compute_type, convert, widen
from .elementwise import Nest, Touch
from .fusion import FusedNest
from .lane_analysis import compute_bits
from .lanes import emit_lane_block
from .memory import load_element
from .reductions import Combiner, finish_row
from .state import BlockState, VectorAxis


def emit_fused(s: BlockState, stmt: FusedNest) -> None:
    """A nest with row reductions."""
    nest = RowNest(s, stmt)
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

    def __init__(self, s: BlockState, fused: FusedNest) -> None:
        super().__init__(s, fused.nest)
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

    def _lanes(self) -> int:
        lanes = super()._lanes()
        for _, reduce in self.reduces:
            bits = max(compute_bits(reduce.src.dtype), compute_bits(reduce.dst.dtype))
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
        active = w.icmp(
            "slt", w.const_vector(range(lanes), "i32"), w.const(rest, vector_type("i32", lanes))
        )
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
        stored = load_element(s, src.buffer, src.indices(self.place))
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
