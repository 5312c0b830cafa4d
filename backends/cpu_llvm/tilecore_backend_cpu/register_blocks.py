"""Register blocks of vector multiplications: accumulators stay in registers over all of k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .builder import FunctionWriter, Value, like, vector_type
from .conversions import compute_type, convert, narrow, storage_type, widen
from .gemm_plan import GemmPlan, GemmShape
from .lookahead import Stream, emit_turns

BLOCK_PARAMETERS = (
    ("ptr noalias", "A"), ("ptr noalias", "B"), ("ptr", "from"), ("ptr", "C"), ("i64", "turns"),
    ("ptr noalias", "ahead"),
)  # fmt: skip
"""Of a register block's function: packed operands, what the sums are added to (null: nothing),
where they are stored, turns over k, and a record of what to ask memory for (see `lookahead`)."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Where the sums of a block begin and end: added to what is at `source` unless `is_clear`
    (known now, or an i1), stored at `place`."""

    source: Value
    place: Value
    is_clear: bool | Value


class MicroKernel:
    """One register block: rows x vectors accumulators, k unrolled by four groups."""

    UNROLL = 4

    def __init__(self, w: FunctionWriter, shape: GemmShape, plan: GemmPlan, lanes: int) -> None:
        self.w, self.shape, self.plan, self.lanes = w, shape, plan, lanes
        self.kind = vector_type(compute_type(shape.c_dtype), lanes)

    def emit(
        self,
        size: tuple[int, int],
        turns: tuple[Value, int],
        sums: Sums,
        streams: Sequence[Stream] = (),
        record: Value | None = None,
    ) -> None:
        """`size` is rows and vectors, `turns` unrolled rounds over k and the groups that remain."""
        w, shape, plan = self.w, self.shape, self.plan
        rows, vectors = size
        a_step = plan.group * plan.a_dtype.bytes * (shape.a_pitch if shape.a_is_transposed else 1)
        b_step = plan.group * plan.n_block * shape.b_dtype.bytes

        def turn(_: Value, values: list[Value]) -> list[Value]:
            a, b, *totals = values
            for u in range(self.UNROLL):
                totals = self._step(a, b, u * a_step, u * b_step, totals, rows, vectors)
            a = w.offset_bytes(a, self.UNROLL * a_step)
            return [a, w.offset_bytes(b, self.UNROLL * b_step), *totals]

        zeros = [w.const(0, self.kind)] * (rows * vectors)
        first = [*w.parameters[:2], *zeros]
        a, b, *totals = emit_turns(w, turns[0], first, turn, streams, record)
        for u in range(turns[1]):
            totals = self._step(a, b, u * a_step, u * b_step, totals, rows, vectors)
        step = self.lanes * shape.c_dtype.bytes
        for number, total in enumerate(totals):
            r, v = divmod(number, vectors)
            self._finish(total, sums, r * shape.c_pitch * shape.c_dtype.bytes + v * step)
        w.ret()

    def _finish(self, total: Value, sums: Sums, offset: int) -> None:
        """Add what was there before, and store."""
        w, dtype = self.w, self.shape.c_dtype
        if sums.is_clear is not True:
            kind = vector_type(storage_type(dtype), self.lanes)
            old = widen(w, w.load(w.offset_bytes(sums.source, offset), kind), dtype)
            if isinstance(sums.is_clear, Value):
                old = w.select(sums.is_clear, w.const(0, old.type), old)
            total = w.add(total, old)
        w.store(narrow(w, total, dtype), w.offset_bytes(sums.place, offset))

    def _step(
        self,
        a: Value,
        b: Value,
        a_offset: int,
        b_offset: int,
        totals: list[Value],
        rows: int,
        vectors: int,
    ) -> list[Value]:
        """One group of k: every row times every vector of B."""
        w, shape, plan = self.w, self.shape, self.plan
        width = self.lanes * plan.group * shape.b_dtype.bytes
        columns = [self._load_b(w.offset_bytes(b, b_offset + v * width)) for v in range(vectors)]
        row_bytes = plan.a_dtype.bytes * (1 if shape.a_is_transposed else shape.a_pitch)
        result = list(totals)
        for r in range(rows):
            left = self._load_a(w.offset_bytes(a, a_offset + r * row_bytes))
            for v in range(vectors):
                result[r * vectors + v] = self._multiply(left, columns[v], result[r * vectors + v])
        return result

    def _load_a(self, place: Value) -> Value:
        w, plan = self.w, self.plan
        if plan.kind == "dot":
            pair = w.splat(w.load(place, "i32", 2), self.lanes)
            return w.bitcast(pair, vector_type("bfloat", 2 * self.lanes))
        element = widen(w, w.load(place, storage_type(plan.a_dtype)), plan.a_dtype)
        return w.splat(element, self.lanes)

    def _load_b(self, place: Value) -> Value:
        w, shape, plan = self.w, self.shape, self.plan
        stored = w.load(place, vector_type(storage_type(shape.b_dtype), self.lanes * plan.group))
        if plan.kind == "dot":
            return w.bitcast(stored, like(stored.type, "bfloat"))
        return convert(w, widen(w, stored, shape.b_dtype), shape.b_dtype, shape.c_dtype)

    def _multiply(self, a: Value, b: Value, total: Value) -> Value:
        w = self.w
        if self.plan.kind == "dot":
            bits = self.lanes * 32
            return w.call(f"llvm.x86.avx512bf16.dpbf16ps.{bits}", self.kind, [total, a, b])
        if self.shape.c_dtype.is_float:
            return w.fma(a, b, total)
        return w.add(w.mul(a, b), total)
