"""One step of a blocked product: tiles of A and B read where they lie, C added to, all overlapped.

    for each chunk of rows of A (all of them, or what stays in the second-level cache):
        for each group of panels of B (a panel is as wide as a register block):
            pack the panels, with the first chunk only
            for each row block of the chunk:
                pack the rows, with the first group only
                for each panel of the group:
                    multiply; ask meanwhile for the next group of B and the next step's A
                at the last step of a sum: write the block to the result

So memory is waited for under multiplications, and neither a packed copy of the whole B tile nor a
pass over C of its own is needed. The loop order follows "Anatomy of High-Performance Matrix
Multiplication" (Goto, van de Geijn, 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilecore.ir.dtypes import DType

from .builder import FunctionWriter, Value
from .gemm_kernels import GemmEmitter, GemmPlan, GemmShape
from .lookahead import Places, Stream, record_bytes, write_record
from .panel_copies import emit_left_panel, emit_result, emit_right_panel
from .step_shape import RowBlocks, StepBlocking, StepShape, step_blocking
from .step_streams import left_stream, right_stream, written_stream

PARAMETERS = (
    ("ptr", "A"), ("i64", "a_pitch"), ("ptr", "B"), ("i64", "b_pitch"), ("ptr", "C"),
    ("i64", "m_inside"), ("i64", "n_inside"), ("i64", "k_inside"), ("i1", "clear"),
    ("ptr", "next_a"), ("ptr", "next_b"), ("ptr", "left"), ("ptr", "right"),
    ("ptr", "out"), ("i64", "out_pitch"),
)  # fmt: skip
"""Of a step function. Pitches are bytes from row to row as stored; `*_inside` is how much of the
tile lies inside its matrix, the rest counts as zero; `clear` says that the sums begin at zero (if
the shape has `may_clear`); `next_a`, `next_b` are what the next step will read, null if there is
none; `left`, `right` are memory for panels; `out` is null except at the last step of a sum."""

_NULL = Value("ptr", "null")
_STREAMS = 3
"""Of a block: the next A, the next panels of B, what it will write. Blocks of tile instructions ask
for the last of them only, before they begin: they have few turns, and were slower with more."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A row block and a group of panels: the group's number, the block's number and first row in
    its chunk, how many rows, and how many columns of the group lie inside."""

    group: Value
    number: Value
    row: Value
    rows: int
    inside: Value


class StepEmitter:
    """Writes step functions; equal ones are written once."""

    def __init__(self, gemm: GemmEmitter) -> None:
        self.gemm = gemm
        self._names: dict[object, str] = {}

    def function(self, shape: StepShape, plan: GemmPlan) -> str:
        """Name of ``void f(PARAMETERS)`` for `shape`."""
        key = (shape, plan)
        if key not in self._names:
            name = f"step{len(self._names)}_{shape.m}x{shape.n}x{shape.k}"
            self._names[key] = name
            w = self.gemm.module.function(name, "void", PARAMETERS, "internal")
            _Step(w, self.gemm, shape, plan).emit()
        return self._names[key]


class _Step:
    def __init__(
        self, w: FunctionWriter, gemm: GemmEmitter, shape: StepShape, plan: GemmPlan
    ) -> None:
        self.w, self.gemm, self.shape, self.plan = w, gemm, shape, plan
        self.p = {name: value for (_, name), value in zip(PARAMETERS, w.parameters, strict=True)}
        self.cut: StepBlocking = step_blocking(shape, plan, gemm.cpu)
        self.kernel_shape = GemmShape(
            shape.m, shape.n, self.cut.depth, plan.a_dtype, shape.b_dtype, shape.c_dtype,
            self.cut.left_row, shape.c_pitch, shape.transpose_a,
        )  # fmt: skip
        self.record: Value = _NULL
        if plan.kind != "tile":
            self.record = w.alloca("i8", record_bytes(_STREAMS), 64)

    def emit(self) -> None:
        """Chunks of rows, and for each all of k."""
        w, p, shape, cut = self.w, self.p, self.shape, self.cut
        self.is_clear = w.const(shape.clear, "i1") if not shape.may_clear else p["clear"]
        self.is_final = w.icmp("ne", p["out"], _NULL)
        # Where sums begin all of C has to be written, unless nothing but the copy of the result,
        # which is done here, would read it.
        self.is_whole = w.binary("and", self.is_clear, self.is_final)
        self.covers = self.is_clear
        if shape.is_private:
            read = w.binary("xor", self.is_final, w.const(True, "i1"))
            self.covers = w.binary("and", self.is_clear, read)
        # Equal chunks in a loop, the last one apart if it is smaller.
        equal = sum(1 for blocks in cut.chunks if blocks == cut.chunks[0])
        self._times(equal, p["m_inside"], cut.chunk_rows, lambda n: self._chunk(n, cut.chunks[0]))
        for blocks in cut.chunks[equal:]:
            wanted = w.icmp("sgt", p["m_inside"], w.i64(equal * cut.chunk_rows))
            with w.when(w.binary("or", self.covers, wanted)):
                self._chunk(w.i64(equal), blocks)
        w.ret()

    # -- a chunk of rows, and passes over k -------------------------------------------------------

    def _chunk(self, chunk: Value, blocks: RowBlocks) -> None:
        w, p, cut = self.w, self.p, self.cut
        self.chunk, self.row_blocks = chunk, blocks
        self.first_row = w.mul(chunk, w.i64(cut.chunk_rows))
        self.is_last_chunk = w.icmp("eq", chunk, w.i64(len(cut.chunks) - 1))
        base = self.first_row
        if self.shape.is_private:
            # Sums that begin and end here need no place of their own.
            base = w.select(self.is_whole, w.i64(0), base)
        self.sums = w.offset_bytes(p["C"], w.mul(base, w.i64(self._c_pitch())))
        with w.loop(w.i64(0), w.i64(cut.passes)) as passes:
            self._pass(passes.index)

    def _c_pitch(self) -> int:
        return self.shape.c_pitch * self.shape.c_dtype.bytes

    def _pass(self, number: Value) -> None:
        w, p, shape, cut = self.w, self.p, self.shape, self.cut
        self.number = number
        self.a_step = self._k_step(p["a_pitch"], shape.transpose_a, shape.a_dtype)
        self.b_step = self._k_step(p["b_pitch"], not shape.transpose_b, shape.b_dtype)
        first = w.mul(number, w.i64(cut.depth))
        row_step = w.i64(shape.a_dtype.bytes) if shape.transpose_a else p["a_pitch"]
        rows = w.offset_bytes(p["A"], w.mul(self.first_row, row_step))
        self.a = w.offset_bytes(rows, w.mul(self.a_step, first))
        self.b = w.offset_bytes(p["B"], w.mul(self.b_step, first))
        left = w.sub(p["k_inside"], first)
        self.k_inside = w.intrinsic(
            "smax", [w.i64(0), w.intrinsic("smin", [left, w.i64(cut.depth)])]
        )
        self.begins = w.binary("and", self.is_clear, w.icmp("eq", number, w.i64(0)))
        self.is_last_pass = w.icmp("eq", number, w.i64(cut.passes - 1))
        self.ends = w.binary("and", self.is_final, self.is_last_pass)
        next_rows = w.offset_bytes(rows, w.mul(w.i64(cut.chunk_rows), row_step))
        after = w.select(self.is_last_chunk, p["next_a"], next_rows)
        deeper = w.offset_bytes(self.a, w.mul(self.a_step, w.i64(cut.depth)))
        self.next_a = w.select(self.is_last_pass, after, deeper)
        full, rest = divmod(shape.n, cut.group)
        self._times(full, p["n_inside"], cut.group, lambda group: self._group(group, cut.group))
        if rest:
            wanted = w.icmp("sgt", p["n_inside"], w.i64(full * cut.group))
            with w.when(w.binary("or", self.covers, wanted)):
                self._group(w.i64(full), rest)

    def _k_step(self, pitch: Value, is_row: bool, dtype: DType) -> Value:
        """Bytes from one k to the next."""
        return pitch if is_row else self.w.i64(dtype.bytes)

    def _times(self, count: int, inside: Value, size: int, body: Callable[[Value], None]) -> None:
        """`body` for each of `count` parts of so many rows or columns, unless outside."""
        w = self.w
        limit = w.intrinsic("smin", [w.i64(count), self._ceildiv(inside, size)])
        with w.loop(w.i64(0), w.select(self.covers, w.i64(count), limit)) as parts:
            body(parts.index)

    def _ceildiv(self, value: Value, step: int) -> Value:
        """`value / step` rounded up, 0 for negative values."""
        w = self.w
        value = w.intrinsic("smax", [value, w.i64(0)])
        return w.binary("udiv", w.add(value, w.i64(step - 1)), w.i64(step))

    # -- panels of B ------------------------------------------------------------------------------

    def _group(self, group: Value, columns: int) -> None:
        """Pack group number `group`, of `columns` columns, and pass the rows of a chunk by it."""
        w, p, shape, cut = self.w, self.p, self.shape, self.cut
        step = w.mul(w.i64(cut.group), self._column_step())
        source = w.offset_bytes(self.b, w.mul(group, step))
        inside = w.sub(p["n_inside"], w.mul(group, w.i64(cut.group)))
        is_first_chunk = w.icmp("eq", self.chunk, w.i64(0))
        self.right = p["right"]
        if cut.keeps_panels:
            panels = w.add(w.mul(self.number, w.i64(-(-shape.n // cut.group))), group)
            self.right = w.offset_bytes(self.right, w.mul(panels, w.i64(self._group_bytes())))
        with w.when(is_first_chunk):
            emit_right_panel(
                w, self.gemm, self.plan,
                (cut.depth, cut.group, shape.transpose_b, shape.b_dtype.bytes),
                (source, p["b_pitch"], self.right, self.k_inside, inside),
            )  # fmt: skip
        is_last = w.icmp("eq", group, w.i64(-(-shape.n // cut.group) - 1))
        deeper = w.offset_bytes(self.b, w.mul(self.b_step, w.i64(cut.depth)))
        after = w.select(self.is_last_pass, p["next_b"], deeper)
        self.ahead_b = w.select(is_last, after, w.offset_bytes(source, step))
        row = block = 0
        rows_inside = w.sub(p["m_inside"], self.first_row)
        for rows, count in self.row_blocks:

            def one(index: Value, rows: int = rows, row: int = row, block: int = block) -> None:
                at = w.add(w.mul(index, w.i64(rows)), w.i64(row))
                place = _Place(group, w.add(index, w.i64(block)), at, rows, inside)
                self._row(place, columns)

            self._times(count, w.sub(rows_inside, w.i64(row)), rows, one)
            row, block = row + rows * count, block + count

    def _group_bytes(self) -> int:
        return self.cut.group * self.cut.depth * self.shape.b_dtype.bytes

    def _column_step(self) -> Value:
        """Bytes from one column of B to the next, as it is stored."""
        if self.shape.transpose_b:
            return self.p["b_pitch"]
        return self.w.i64(self.shape.b_dtype.bytes)

    # -- row blocks of A --------------------------------------------------------------------------

    def _row(self, place: _Place, columns: int) -> None:
        """Pass the panels of a group by one block of rows; at the end of a sum write the result:
        whole stretches of `columns` columns, as memory likes it."""
        w, p, shape, cut = self.w, self.p, self.shape, self.cut
        self.left = self._left(place)
        row = w.add(place.row, self.first_row)
        column = w.mul(place.group, w.i64(cut.group))
        c_at = w.mul(column, w.i64(shape.c_dtype.bytes))
        c = w.offset_bytes(self.sums, w.add(w.mul(place.row, w.i64(self._c_pitch())), c_at))
        out_at = w.add(w.mul(row, p["out_pitch"]), w.mul(column, w.i64(shape.out_dtype.bytes)))
        out = w.offset_bytes(p["out"], out_at)
        if shape.is_private and cut.passes == 1:
            c = w.select(self.is_whole, p["C"], c)
        full, rest = divmod(columns, cut.width)
        if columns <= cut.width:
            self._panel(place, w.i64(0), (c, out), columns)
        else:
            self._times(
                full, place.inside, cut.width,
                lambda within: self._panel(place, within, (c, out), cut.width),
            )  # fmt: skip
            if rest:
                is_wanted = w.icmp("sgt", place.inside, w.i64(full * cut.width))
                with w.when(w.binary("or", self.covers, is_wanted)):
                    self._panel(place, w.i64(full), (c, out), rest)
        with w.when(self.ends):
            emit_result(
                w, self.gemm,
                (place.rows, columns, shape.c_pitch, shape.c_dtype, shape.out_dtype),
                (c, out, p["out_pitch"], w.sub(p["m_inside"], row), place.inside),
            )  # fmt: skip

    def _panel(self, place: _Place, within: Value, sums: tuple[Value, Value], columns: int) -> None:
        """One register block; where B ends in half a panel, the last one is of half the width."""
        w, cut, whole = self.w, self.cut, self.shape.b_columns
        left = w.mul(within, w.i64(cut.width))
        inside = w.sub(place.inside, left)
        c, out = (
            w.offset_bytes(base, w.mul(left, w.i64(size)))
            for base, size in zip(
                sums, (self.shape.c_dtype.bytes, self.shape.out_dtype.bytes), strict=True
            )
        )
        half = cut.width // 2
        if columns > half and whole is not None and 0 < whole % cut.width <= half:
            label = w.fresh("panel")
            is_narrow = w.icmp("sle", inside, w.i64(half))
            w.terminate(f"br {is_narrow}, label %{label}.half, label %{label}.whole")
            for part, width in (("half", half), ("whole", columns)):
                w.begin_block(f"{label}.{part}")
                self._block(place, within, inside, (c, out), width)
                w.terminate(f"br label %{label}.end")
            w.begin_block(f"{label}.end")
        else:
            self._block(place, within, inside, (c, out), columns)

    def _block(
        self,
        place: _Place,
        within: Value,
        inside: Value,
        sums: tuple[Value, Value],
        columns: int,
    ) -> None:
        """Multiply: panel `within` of the group, of which `inside` columns are wanted."""
        w, p, shape, cut = self.w, self.p, self.shape, self.cut
        right_bytes = cut.width * cut.depth * shape.b_dtype.bytes
        right = w.offset_bytes(self.right, w.mul(within, w.i64(right_bytes)))
        c, out = sums
        pitch = w.select(self.ends, p["out_pitch"], w.i64(self._c_pitch()))
        written = (w.select(self.ends, out, c), pitch)
        streams = self._ask(place, within, written, columns)
        size = (place.rows, columns)
        kernel = self.gemm.block_function(self.kernel_shape, self.plan, size, streams)
        rows_inside = w.sub(p["m_inside"], w.add(place.row, self.first_row))
        is_inside = w.binary(
            "and", w.icmp("sgt", rows_inside, w.i64(0)), w.icmp("sgt", inside, w.i64(0))
        )
        turns = self._ceildiv(self.k_inside, self.gemm.k_per_turn(self.plan))
        turns = w.select(is_inside, turns, w.i64(0))
        source = w.select(self.begins, _NULL, c)
        w.call(kernel, "void", [self.left, right, source, c, turns, self.record])

    def _left(self, place: _Place) -> Value:
        """Packed rows of A; packed here with the first group."""
        w, p, shape, cut = self.w, self.p, self.shape, self.cut
        size = self.plan.a_dtype.bytes
        unit = w.mul(place.number, w.i64(cut.depth)) if shape.transpose_a else place.row
        left = w.offset_bytes(p["left"], w.mul(unit, w.i64(cut.left_row * size)))
        with w.when(w.icmp("eq", place.group, w.i64(0))):
            row_step = w.i64(size) if shape.transpose_a else p["a_pitch"]
            source = w.offset_bytes(self.a, w.mul(place.row, row_step))
            rows_inside = w.sub(p["m_inside"], w.add(place.row, self.first_row))
            emit_left_panel(
                w, self.gemm, (place.rows, shape.transpose_a, cut, size),
                (source, p["a_pitch"], left, rows_inside, self.k_inside),
            )  # fmt: skip
        return left

    def _ask(
        self, place: _Place, within: Value, written: tuple[Value, Value], columns: int
    ) -> tuple[Stream, ...]:
        """Fill the record of what the block asks for meanwhile."""
        w, p, shape, cut = self.w, self.p, self.shape, self.cut
        if self.plan.kind == "tile":
            with w.loop(w.i64(0), w.i64(place.rows)) as rows:
                w.prefetch(w.offset_bytes(written[0], w.mul(rows.index, written[1])), "write")
            return ()
        turns = max(2, cut.depth // self.gemm.k_per_turn(self.plan))
        left, right = left_stream(shape, cut, turns // 2), right_stream(shape, cut, turns // 2)
        last = written_stream(shape, place.rows, columns)
        call = w.add(w.mul(within, w.i64(cut.blocks)), place.number)
        all_calls = w.add(w.mul(place.group, w.i64(cut.panels * cut.blocks)), call)
        places = (
            left.places(w, all_calls, self.next_a, p["a_pitch"]),
            right.places(w, call, self.ahead_b, p["b_pitch"]),
            Places(*written, w.i64(0)),
        )
        streams = (left.stream, right.stream, last)
        write_record(w, self.record, streams, places)
        return streams
