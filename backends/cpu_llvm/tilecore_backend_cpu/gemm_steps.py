"""One step of a blocked product: tiles of A and B read where they lie, C added to, all overlapped.

    for each panel of B (as wide as a register block):
        pack the panel                                    (it then stays in the first-level cache)
        for each row block of A:
            pack the rows, with the first panel only      (they then stay in the second level)
            multiply, and ask meanwhile for data of the next panel and of the next step's A
            at the last step of a sum: write the block to the result

So memory is waited for under multiplications, and neither a packed copy of the whole B tile nor a
pass over C of its own is needed. The loop order follows "Anatomy of High-Performance Matrix
Multiplication" (Goto, van de Geijn, 2008).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.dtypes import DType

from .builder import FunctionWriter, Value
from .gemm_kernels import GemmEmitter, GemmPlan, GemmShape, Stream, split_rows
from .panel_copies import emit_left_panel, emit_result, emit_right_panel

PARAMETERS = (
    ("ptr", "A"), ("i64", "a_pitch"), ("ptr", "B"), ("i64", "b_pitch"), ("ptr", "C"),
    ("i64", "m_inside"), ("i64", "n_inside"), ("i64", "k_inside"),
    ("ptr", "next_a"), ("ptr", "next_b"), ("ptr", "left"), ("ptr", "right"),
    ("ptr", "out"), ("i64", "out_pitch"),
)  # fmt: skip
"""Of a step function. Pitches are bytes from row to row as stored; `*_inside` is how much of the
tile lies inside its matrix, the rest counts as zero; `next_a`, `next_b` are what the next step will
read; `left`, `right` are memory for panels; `out` is null except at the last step of a sum."""

_LINE_BYTES = 64
_LEFT_PITCH_PAD_BYTES = 64
"""Rows of a packed A block must not all begin in one set of the first-level cache."""
_TRANSPOSED_ROWS = 16
"""Pitch, in elements, of a packed block of a transposed A: at least the rows of one block."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """A tile's product: sizes, whether operands are stored transposed, types, pitch of C.

    `b_columns` are the columns of the whole matrix B, where that is known.
    """

    m: int
    n: int
    k: int
    a_dtype: DType
    b_dtype: DType
    c_dtype: DType
    out_dtype: DType
    c_pitch: int
    transpose_a: bool
    transpose_b: bool
    clear: bool
    b_columns: int | None = None


@dataclass(frozen=True, slots=True)
class StepBlocking:
    """How a step is cut: panel width, depth of one pass over k, row blocks as (rows, count)."""

    width: int
    depth: int
    passes: int
    row_blocks: tuple[tuple[int, int], ...]
    left_pitch: int

    @property
    def blocks(self) -> int:
        """Row blocks altogether."""
        return sum(count for _, count in self.row_blocks)


def step_blocking(shape: StepShape, plan: GemmPlan, l1_bytes: int) -> StepBlocking:
    """Cut a step so that a panel of B fills two thirds of the first-level cache."""
    width = 32 if plan.kind == "tile" else plan.n_block
    step = max(32, plan.k_block)
    # Tiles read as much of A as of B in a block: both must fit.
    room = l1_bytes // 2 if plan.kind == "tile" else l1_bytes * 2 // 3
    most = room // (width * shape.b_dtype.bytes) // step * step
    passes = -(-shape.k // max(most, step))
    share = -(-shape.k // passes)
    depth = -(-share // step) * step
    if plan.kind == "tile":
        pairs, rest = divmod(-(-shape.m // 16), 2)
        blocks = tuple(part for part in ((32, pairs), (16, rest)) if part[1])
    else:
        blocks = tuple(split_rows(shape.m, plan.m_block))
    pad = _LEFT_PITCH_PAD_BYTES // plan.a_dtype.bytes
    pitch = _TRANSPOSED_ROWS if shape.transpose_a else depth + pad
    return StepBlocking(width, depth, -(-shape.k // depth), blocks, pitch)


def panel_bytes(shape: StepShape, plan: GemmPlan, l1_bytes: int) -> tuple[int, int]:
    """Memory for the packed rows of A and for one panel of B."""
    cut = step_blocking(shape, plan, l1_bytes)
    rows = sum(rows * count for rows, count in cut.row_blocks)
    left = cut.blocks * cut.depth * cut.left_pitch if shape.transpose_a else rows * cut.left_pitch
    return left * plan.a_dtype.bytes, cut.width * cut.depth * shape.b_dtype.bytes


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
        self.cut = step_blocking(shape, plan, gemm.cpu.l1_bytes)
        self.kernel_shape = GemmShape(
            shape.m, shape.n, self.cut.depth, plan.a_dtype, shape.b_dtype, shape.c_dtype,
            self.cut.left_pitch, shape.c_pitch, shape.transpose_a,
        )  # fmt: skip

    def emit(self) -> None:
        for number in range(self.cut.passes):
            self._pass(number)
        self.w.ret()

    # -- one pass over part of k ------------------------------------------------------------------

    def _pass(self, number: int) -> None:
        w, p, shape, cut = self.w, self.p, self.shape, self.cut
        first, is_last = number * cut.depth, number == cut.passes - 1
        a_step, b_step = (
            self._k_step(p["a_pitch"], shape.transpose_a, shape.a_dtype),
            self._k_step(p["b_pitch"], not shape.transpose_b, shape.b_dtype),
        )
        a, b = (
            w.offset_bytes(base, w.mul(step, w.i64(first))) if first else base
            for base, step in ((p["A"], a_step), (p["B"], b_step))
        )
        left = w.sub(p["k_inside"], w.i64(first))
        self.k_inside = w.intrinsic(
            "smax", [w.i64(0), w.intrinsic("smin", [left, w.i64(cut.depth)])]
        )
        self.is_clear, self.is_last = shape.clear and number == 0, is_last
        self.a, self.b = a, b
        ahead = w.i64(cut.depth)
        self.next_a = p["next_a"] if is_last else w.offset_bytes(a, w.mul(a_step, ahead))
        self.next_b = p["next_b"] if is_last else w.offset_bytes(b, w.mul(b_step, ahead))
        self._panels()

    def _k_step(self, pitch: Value, is_row: bool, dtype: DType) -> Value:
        """Bytes from one k to the next."""
        return pitch if is_row else self.w.i64(dtype.bytes)

    def _panels(self) -> None:
        w, shape, cut = self.w, self.shape, self.cut
        full, rest = divmod(shape.n, cut.width)
        limit = w.i64(full)
        if not self.is_clear:
            limit = w.intrinsic("smin", [limit, self._ceildiv(self.p["n_inside"], cut.width)])
        with w.loop(w.i64(0), limit) as panels:
            self._panel(panels.index, cut.width)
        if rest:
            is_wanted = w.icmp("sgt", self.p["n_inside"], w.i64(full * cut.width))
            with w.when(w.const(True, "i1") if self.is_clear else is_wanted):
                self._panel(w.i64(full), rest)

    def _ceildiv(self, value: Value, step: int) -> Value:
        w = self.w
        return w.binary("udiv", w.add(value, w.i64(step - 1)), w.i64(step))

    def _panel_step(self) -> Value:
        """Bytes from one panel of B to the next, as it is stored."""
        w, width = self.w, self.w.i64(self.cut.width)
        if self.shape.transpose_b:
            return w.mul(self.p["b_pitch"], width)
        return w.i64(self.cut.width * self.shape.b_dtype.bytes)

    def _panel(self, panel: Value, columns: int) -> None:
        """Pack panel number `panel`, of `columns` columns, and pass all rows by it."""
        w, p, shape, cut = self.w, self.p, self.shape, self.cut
        step = self._panel_step()
        source = w.offset_bytes(self.b, w.mul(panel, step))
        column = w.mul(panel, w.i64(cut.width))
        self.columns_inside = w.sub(p["n_inside"], column)
        emit_right_panel(
            w, self.gemm, self.plan, (cut.depth, cut.width, shape.transpose_b, shape.b_dtype.bytes),
            (source, p["b_pitch"], p["right"], self.k_inside, self.columns_inside),
        )  # fmt: skip
        panels = -(-shape.n // cut.width)
        following = w.offset_bytes(source, step)
        is_last = w.icmp("eq", panel, w.i64(panels - 1))
        self.ahead_b = w.select(is_last, self.next_b, following)
        half = cut.width // 2
        if (
            columns > half
            and shape.b_columns is not None
            and 0 < shape.b_columns % cut.width <= half
        ):
            label = w.fresh("panel")
            is_narrow = w.icmp("sle", self.columns_inside, w.i64(half))
            w.terminate(f"br {is_narrow}, label %{label}.half, label %{label}.whole")
            for part, width in (("half", half), ("whole", columns)):
                w.begin_block(f"{label}.{part}")
                self._row_blocks(panel, width)
                w.terminate(f"br label %{label}.end")
            w.begin_block(f"{label}.end")
        else:
            self._row_blocks(panel, columns)

    def _row_blocks(self, panel: Value, columns: int) -> None:
        """Pass all rows by the packed panel, of which `columns` columns are wanted."""
        w, p = self.w, self.p
        row = block = 0
        for rows, count in self.cut.row_blocks:
            limit = w.i64(count)
            if not self.is_clear:
                below = w.intrinsic("smax", [w.sub(p["m_inside"], w.i64(row)), w.i64(0)])
                limit = w.intrinsic("smin", [limit, self._ceildiv(below, rows)])
            with w.loop(w.i64(0), limit) as blocks:
                at = w.add(w.mul(blocks.index, w.i64(rows)), w.i64(row))
                number = w.add(blocks.index, w.i64(block))
                self._block(panel, number, at, rows, columns)
            row, block = row + rows * count, block + count

    # -- one register block -----------------------------------------------------------------------

    def _block(self, panel: Value, number: Value, row: Value, rows: int, columns: int) -> None:
        w, p, shape, cut = self.w, self.p, self.shape, self.cut
        size = self.plan.a_dtype.bytes
        unit = w.mul(number, w.i64(cut.depth)) if shape.transpose_a else row
        left = w.offset_bytes(p["left"], w.mul(unit, w.i64(cut.left_pitch * size)))
        rows_inside = w.sub(p["m_inside"], row)
        with w.when(w.icmp("eq", panel, w.i64(0))):
            row_step = w.i64(size) if shape.transpose_a else p["a_pitch"]
            emit_left_panel(
                w, self.gemm, (rows, shape.transpose_a, cut.left_pitch, size),
                (w.offset_bytes(self.a, w.mul(row, row_step)), p["a_pitch"], left,
                 rows_inside, self.k_inside),
            )  # fmt: skip
        c_bytes = shape.c_dtype.bytes
        c_at = w.add(
            w.mul(row, w.i64(shape.c_pitch * c_bytes)), w.mul(panel, w.i64(cut.width * c_bytes))
        )
        c = w.offset_bytes(p["C"], c_at)
        streams, arguments = self._streams(panel, number)
        kernel = self.gemm.block_function(
            self.kernel_shape, self.plan, (rows, columns), self.is_clear, streams
        )
        per_turn = self.gemm.k_per_turn(self.plan)
        turns = self._ceildiv(self.k_inside, per_turn)
        place = w.mul(panel, w.i64(cut.width * shape.out_dtype.bytes))
        out = w.offset_bytes(p["out"], w.add(w.mul(row, p["out_pitch"]), place))
        written = [c, w.i64(shape.c_pitch * c_bytes)]
        is_final = w.icmp("ne", p["out"], Value("ptr", "null"))
        if self.is_last:
            pairs = zip((out, p["out_pitch"]), written, strict=True)
            written = [w.select(is_final, mine, other) for mine, other in pairs]
        w.call(kernel, "void", [left, p["right"], c, turns, *arguments, *written])
        if self.is_last:
            with w.when(is_final):
                emit_result(
                    w, self.gemm, (rows, columns, shape.c_pitch, shape.c_dtype, shape.out_dtype),
                    (c, out, p["out_pitch"], rows_inside, self.columns_inside),
                )  # fmt: skip

    def _streams(self, panel: Value, number: Value) -> tuple[tuple[Stream, Stream], list[Value]]:
        """What the multiplication asks for meanwhile, and the arguments that say so."""
        w, p, shape, cut = self.w, self.p, self.shape, self.cut
        turns = max(2, cut.depth // self.gemm.k_per_turn(self.plan))
        # The next step's A: a part during every block.
        rows, columns = (cut.depth, shape.m) if shape.transpose_a else (shape.m, cut.depth)
        calls = cut.blocks * -(-shape.n // cut.width)
        call = w.add(w.mul(panel, w.i64(cut.blocks)), number)
        first, first_arguments = _along_rows(
            w, (rows, columns * shape.a_dtype.bytes), (call, calls), turns // 2,
            self.next_a, p["a_pitch"],
        )  # fmt: skip
        # The next panel of B: a part with every row block.
        if shape.transpose_b:
            second, second_arguments = _along_rows(
                w, (cut.width, cut.depth * shape.b_dtype.bytes), (number, cut.blocks),
                turns - turns // 2, self.ahead_b, p["b_pitch"],
            )  # fmt: skip
        else:
            share = -(-cut.depth // cut.blocks)
            each = -(-share // (turns - turns // 2))
            lines = -(-cut.width * shape.b_dtype.bytes // _LINE_BYTES)
            second = Stream(-(-share // each), each, lines)
            # The last byte of a line: the panel before has asked for the line it begins in.
            start = w.offset_bytes(self.ahead_b, w.mul(w.mul(number, w.i64(share)), p["b_pitch"]))
            start = w.offset_bytes(start, _LINE_BYTES - 1)
            second_arguments = [start, w.mul(p["b_pitch"], w.i64(each)), p["b_pitch"]]
        return (first, second), [*first_arguments, *second_arguments]


def _along_rows(
    w: FunctionWriter,
    size: tuple[int, int],
    part: tuple[Value, int],
    turns: int,
    start: Value,
    pitch: Value,
) -> tuple[Stream, list[Value]]:
    """Ask for part (number, of how many) of a matrix of `size` (rows, bytes of each), row by row,
    in at most `turns` turns: whole rows, or an equal part of one."""
    rows, row_bytes = size
    number, parts = part
    lines = -(-row_bytes // _LINE_BYTES)
    share = -(-rows // parts)
    pieces = max(1, min(parts // rows, lines)) if share == 1 else 1
    piece = -(-lines // pieces)
    each = -(-piece // turns)
    row = w.binary("udiv", number, w.i64(pieces)) if pieces > 1 else w.mul(number, w.i64(share))
    at = w.offset_bytes(start, w.mul(row, pitch))
    if pieces > 1:
        within = w.binary("urem", number, w.i64(pieces))
        at = w.offset_bytes(at, w.mul(within, w.i64(piece * _LINE_BYTES)))
    stream = Stream(-(-piece // each), share, each)
    return stream, [at, w.i64(each * _LINE_BYTES), pitch]
