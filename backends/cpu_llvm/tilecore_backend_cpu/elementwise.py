"""Elementwise nests (Parallel, Copy, Fill): explicit vectors along one axis, guards at the edges.

A nest is written twice when it may reach over a buffer's edge: one test before it chooses the
version without guards (every access inside) or the one that masks each access.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import Cast, Const, Expr, Load, walk
from tilecore.ir.stmts import Allocate, Atomic, Block, For, Let, Parallel, Stmt, Store
from tilecore.ir.visit import exprs_of, walk_stmts

from . import streaming
from .analysis import coefficient, depends_on, interval
from .bf16_pairs import Pairs
from .builder import Value, vector_type
from .conversions import storage_type
from .expressions import index
from .lane_analysis import can_vectorise, inline_lets, widest_bits
from .lanes import emit_lane_block
from .memory import is_affine, is_proven, linear_offset
from .state import BlockState, VectorAxis

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
    nest = Nest(s, stmt)
    changes, s.nest_changes = s.nest_changes, frozenset(_changed_names(stmt.body))
    outer = (
        s.is_elementwise,
        s.is_guarded,
        s.nest_names,
        dict(s.definitions),
        set(s.lane_locals),
        s.axis,
    )
    s.is_elementwise, s.nest_names = True, tuple(var.name for var in stmt.vars)
    nest.emit()
    s.is_elementwise, s.is_guarded, s.nest_names, s.definitions, s.lane_locals, s.axis = outer
    s.nest_changes = changes


def _changed_names(body: Block) -> Iterator[str]:
    """Buffers that a body writes or declares, and the old values that its atomics bring."""
    for stmt in walk_stmts(body):
        match stmt:
            case Store(buffer=buffer) | Allocate(buffer=buffer):
                yield buffer.name
            case Atomic(dst=dst, previous=previous):
                yield dst.buffer.name
                if previous is not None:
                    yield previous.name
            case _:
                pass


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


class Nest:
    """One nest under emission."""

    def __init__(self, s: BlockState, stmt: Parallel) -> None:
        self.s = s
        self.stmt = stmt
        self.touches = list(touches_of(stmt.body))
        for inner in walk_stmts(stmt.body):
            if isinstance(inner, Let):
                s.definitions[inner.var.name] = inner.value
            if isinstance(inner, For):
                low, high = (
                    interval(inner.start, s.ranges, s.definitions),
                    interval(inner.extent, s.ranges, s.definitions),
                )
                step = inner.step.value if isinstance(inner.step, Const) else 1
                s.ranges[inner.var.name] = (low[0], low[1] + max(high[1] - 1, 0) * step)
        for var, extent in zip(stmt.vars, stmt.extents, strict=True):
            s.ranges[var.name] = (0, max(interval(extent, s.ranges, s.definitions)[1] - 1, 0))
        self.axis = self._choose_axis()
        self.pairs: Pairs | None = None

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
        if not can_vectorise(s, stmt.body, stmt.vars[self.axis].name, set()):
            return 1
        bits = max((widest_bits(inner) for inner in walk_stmts(stmt.body)), default=32)
        lanes = s.cpu.vector_bits // bits
        extent = stmt.extents[self.axis]
        if isinstance(extent, Const):
            lanes = min(lanes, 1 << max(0, int(extent.value) - 1).bit_length())
        return max(1, lanes)

    # -- both versions --------------------------------------------------------------------------

    def emit(self) -> None:
        """Write one version, or several behind tests: streaming, plain, guarded."""
        s, w = self.s, self.s.w
        lanes = self._lanes()
        inside = self._inside_condition()
        label = w.fresh("edge")
        if inside is not None:
            w.terminate(f"br {inside}, label %{label}.inside, label %{label}.guarded")
            w.begin_block(f"{label}.inside")
        s.is_guarded = False
        streamed, is_aligned = streaming.streamed_stores(s, self, lanes)
        if is_aligned is not None:
            w.terminate(f"br {is_aligned}, label %{label}.stream, label %{label}.plain")
            w.begin_block(f"{label}.stream")
            s.streamed, s.has_streamed = streamed, True
            self._loops(lanes)
            s.streamed = frozenset()
            w.terminate(f"br label %{label}.end")
            w.begin_block(f"{label}.plain")
        self._loops(lanes)
        if inside is not None:
            w.terminate(f"br label %{label}.end")
            w.begin_block(f"{label}.guarded")
            s.is_guarded = True
            self._loops(lanes)
        if inside is not None or is_aligned is not None:
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
        base = index(s, inline_lets(expr, s.definitions))
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
        if (
            not 128 <= row_bytes <= LONG_ROW_BYTES
            or storage.strides is None
            or storage.strides[-1] != 1
        ):
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
                self._bodies([VectorAxis(name, w.i64(n * lanes), lanes) for n in range(full)])
            else:
                unroll = next(u for u in (4, 2, 1) if full % u == 0)
                with w.loop(w.i64(0), w.i64(full * lanes), lanes * unroll) as loop:
                    bases = (w.add(loop.index, w.i64(n * lanes)) for n in range(unroll))
                    self._bodies([VectorAxis(name, base, lanes) for base in bases])
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
        active = w.icmp(
            "slt", w.const_vector(range(lanes), "i32"), w.const(rest, vector_type("i32", lanes))
        )
        self._body(VectorAxis(name, w.i64(start), lanes, active))

    def _bodies(self, axes: Sequence[VectorAxis]) -> None:
        """Neighbouring vectors, one after the other."""
        self.pairs = Pairs.of(self.s, self.stmt.body)
        for axis in axes:
            self._body(axis)
        if self.pairs is not None:
            self.pairs.flush(self.s)
        self.pairs = None

    def _body(self, axis: VectorAxis) -> None:
        self.s.axis = axis
        for stmt in self.stmt.body:
            self._lanes_of(stmt)
        self.s.axis = None

    def _lanes_of(self, stmt: Stmt) -> None:
        """A statement of the body itself; only these wait for neighbours, for what a branch or a
        loop inside computes is not there behind it."""
        if isinstance(stmt, Store) and self.pairs is not None and self.pairs.take(self.s, stmt):
            return
        emit_lane_block(self.s, (stmt,))
