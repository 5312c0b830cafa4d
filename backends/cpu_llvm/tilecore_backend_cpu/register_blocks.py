"""Register blocks of vector multiplications, and what they ask memory for meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from .builder import FunctionWriter, Value, like, vector_type
from .conversions import compute_type, convert, narrow, storage_type, widen
from .gemm_plan import GemmPlan, GemmShape


@dataclass(frozen=True, slots=True)
class Stream:
    """What one register block asks for: in each of `turns` turns `rows` rows of `lines` cache lines
    each; or nothing."""

    turns: int
    rows: int
    lines: int
    wish: str = "far"


BLOCK_PARAMETERS = (
    ("ptr noalias", "A"), ("ptr noalias", "B"), ("ptr noalias", "C"), ("i64", "turns"),
    ("ptr", "ahead_a"), ("i64", "step_a"), ("i64", "pitch_a"),
    ("ptr", "ahead_b"), ("i64", "step_b"), ("i64", "pitch_b"),
    ("ptr", "result"), ("i64", "result_pitch"),
)  # fmt: skip
"""Of a register block's function: packed operands, turns over k, two streams of addresses to ask
for (the first, bytes from turn to turn, bytes from row to row), and what will be written next."""


_LINE_BYTES = 64


def spread(
    w: FunctionWriter,
    turns: Value,
    streams: tuple[Stream, Stream] | None,
    written: Stream,
) -> list[tuple[Value, Value, Stream | None, list[Value]]]:
    """Parts of the turns, as (first, end, what to ask for meanwhile, its parameters).

    One stream after the other, with nothing to compute but the next address: the multiplications
    need the ports that integer arithmetic would take.
    """
    if streams is None:
        return [(w.i64(0), turns, None, [])]
    first_end = w.intrinsic("smin", [turns, w.i64(streams[0].turns)])
    both = streams[0].turns + streams[1].turns
    second_end = w.intrinsic("smin", [turns, w.i64(both)])
    third_end = w.intrinsic("smin", [turns, w.i64(both + written.turns)])
    result, pitch = w.parameters[10:]
    parts: list[tuple[Value, Value, Stream | None, list[Value]]] = [
        (w.i64(0), first_end, streams[0], w.parameters[4:7]),
        (first_end, second_end, streams[1], w.parameters[7:10]),
        (second_end, third_end, written, [result, w.mul(pitch, w.i64(written.rows)), pitch]),
        (third_end, turns, None, []),
    ]
    return parts


def ask(w: FunctionWriter, stream: Stream, place: Value, pitch: Value) -> None:
    """One turn's prefetches: to the second-level cache, or to the first if to be written."""
    for row in range(stream.rows):
        if row:
            place = w.offset_bytes(place, pitch)
        for line in range(stream.lines):
            w.prefetch(w.offset_bytes(place, line * _LINE_BYTES), stream.wish)


class MicroKernel:
    """One register block: rows x vectors accumulators, k unrolled by four groups."""

    UNROLL = 4

    def __init__(self, w: FunctionWriter, shape: GemmShape, plan: GemmPlan, lanes: int) -> None:
        self.w, self.shape, self.plan, self.lanes = w, shape, plan, lanes
        self.kind = vector_type(compute_type(shape.c_dtype), lanes)

    def emit(
        self,
        rows: int,
        vectors: int,
        turns: tuple[Value, int],
        clear: bool,
        streams: tuple[Stream, Stream] | None = None,
    ) -> None:
        """`turns` are the unrolled rounds over k, and the groups that remain."""
        w, shape, plan = self.w, self.shape, self.plan
        a, b, c = w.parameters[:3]
        c_type = storage_type(shape.c_dtype)
        step = self.lanes * shape.c_dtype.bytes
        places = [
            w.offset_bytes(c, r * shape.c_pitch * shape.c_dtype.bytes + v * step)
            for r in range(rows)
            for v in range(vectors)
        ]
        totals = [w.const(0, self.kind) for _ in places]
        a_step = plan.group * plan.a_dtype.bytes * (shape.a_pitch if shape.a_is_transposed else 1)
        b_step = plan.group * plan.n_block * shape.b_dtype.bytes
        written = Stream(rows, 1, -(-vectors * step // _LINE_BYTES), wish="write")
        for first, end, stream, parameters in spread(w, turns[0], streams, written):
            place = parameters[:1]
            with w.loop(first, end, carried=[a, b, *totals, *place]) as loop:
                a, b, *totals = loop.carried[: 2 + len(totals)]
                if stream is not None:
                    place = loop.carried[-1:]
                    ask(w, stream, place[0], parameters[2])
                    place = [w.offset_bytes(place[0], parameters[1])]
                for u in range(self.UNROLL):
                    totals = self._step(a, b, u * a_step, u * b_step, totals, rows, vectors)
                a = w.offset_bytes(a, self.UNROLL * a_step)
                b = w.offset_bytes(b, self.UNROLL * b_step)
                loop.carry([a, b, *totals, *place])
            assert loop.results is not None
            a, b, *totals = loop.results[: 2 + len(totals)]
        for u in range(turns[1]):
            totals = self._step(a, b, u * a_step, u * b_step, totals, rows, vectors)
        for place, total in zip(places, totals, strict=True):
            if not clear:
                old = widen(w, w.load(place, vector_type(c_type, self.lanes)), shape.c_dtype)
                total = w.add(total, old)
            self._store(total, place)
        w.ret()

    def _store(self, total: Value, place: Value) -> None:
        self.w.store(narrow(self.w, total, self.shape.c_dtype), place)

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
