"""Emission of `GemmStep`: one call of a step function, and who writes the result."""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Region
from tilecore.ir.expr import Const
from tilecore.ir.stmts import Copy, Fill, For

from .builder import Value
from .expressions import index
from .gemm_kernels import plan_gemm
from .gemm_steps import StepEmitter
from .memory import linear_offset
from .packing import Matrix, source_matrix
from .regions import emit_fill_nest
from .state import BlockState
from .step_plan import GemmStep
from .step_shape import StepShape, panel_bytes


@dataclass(slots=True)
class StepState:
    """The steps of one kernel while it is written.

    Attributes:
        steps: by the name of the buffer that holds A.
        emitter: of step functions.
        panels: memory for packed rows of A and a panel of B, by A's name.
        slots: by A's name, stack slots: may the last step write the result, and has it (i1).
    """

    steps: dict[str, GemmStep]
    emitter: StepEmitter
    panels: dict[str, tuple[Value, Value]]
    slots: dict[str, tuple[Value, Value]]

    def is_operand(self, buffer: Buffer) -> bool:
        """Whether a buffer holds an operand of a step, and so is not stored as such."""
        return any(
            buffer in (step.gemm.a.buffer, step.gemm.b.buffer) for step in self.steps.values()
        )

    def step_of_loop(self, loop: For) -> GemmStep | None:
        """The step that is all of a loop and may write its result."""
        steps = (step for step in self.steps.values() if step.result is not None)
        return next((step for step in steps if step.loop is loop), None)

    def step_of_fill(self, fill: Fill) -> GemmStep | None:
        """The step whose sums a statement sets to zero."""
        return next((step for step in self.steps.values() if step.fill is fill), None)

    def step_of_result(self, copy: Copy) -> GemmStep | None:
        """The step whose result a copy stores."""
        return next((step for step in self.steps.values() if step.result is copy), None)


def place_panels(s: BlockState, state: StepState) -> None:
    """Reserve the thread's memory for packed panels."""
    for name, step in state.steps.items():
        shape = _shape(step, 0)
        plan = plan_gemm(shape.a_dtype, shape.b_dtype, shape.c_dtype, s.cpu)
        left, right = panel_bytes(shape, plan, s.cpu)
        state.panels[name] = (s.scratch(left), s.scratch(right))


def _shape(step: GemmStep, c_pitch: int) -> StepShape:
    gemm = step.gemm
    m, n = gemm.c.static_shape or (0, 0)
    rows, columns = gemm.a.static_shape or (0, 0)
    out = step.result.dst.dtype if step.result is not None else gemm.c.dtype
    assert isinstance(gemm.clear_accum, Const)
    whole = step.b.src.buffer.shape[step.b.src.axes[0 if gemm.transpose_b else 1]]
    return StepShape(
        m, n, rows if gemm.transpose_a else columns, gemm.a.dtype, gemm.b.dtype, gemm.c.dtype,
        out, c_pitch, gemm.transpose_a, gemm.transpose_b, bool(gemm.clear_accum.value),
        step.fill is not None, step.is_private,
        int(whole.value) if isinstance(whole, Const) else None,
    )  # fmt: skip


def prepare_result(s: BlockState, state: StepState, step: GemmStep) -> None:
    """Before the loop of a step, or the step if it has none: may its last round write the result?

    Not if the result shares memory with an operand: parts of it would be written before all of the
    operand is read.
    """
    w = s.w
    assert step.result is not None
    may: Value = w.const(True, "i1")
    low, high = _reach(s, step.result.dst.buffer)
    for copy in (step.a, step.b):
        other_low, other_high = _reach(s, copy.src.buffer)
        apart = w.binary("or", w.icmp("uge", low, other_high), w.icmp("uge", other_low, high))
        may = w.binary("and", may, apart)
    slots = state.slots.setdefault(
        step.gemm.a.buffer.name, (w.alloca("i1", 1, 8), w.alloca("i1", 1, 8))
    )
    w.store(may, slots[0], 1)
    w.store(w.const(False, "i1"), slots[1], 1)


def _reach(s: BlockState, buffer: Buffer) -> tuple[Value, Value]:
    """First byte of a global buffer, and the byte after its last, as integers."""
    w = s.w
    storage = s.storage_of(buffer)
    assert storage.strides is not None
    last: Value = w.i64(1)
    for extent, stride in zip(buffer.shape, storage.strides, strict=True):
        step = stride if isinstance(stride, Value) else w.i64(stride)
        last = w.add(last, w.mul(w.sub(index(s, extent), w.i64(1)), step))
    low = w.emit("i64", f"ptrtoint {storage.pointer} to i64")
    return low, w.add(low, w.mul(last, w.i64(buffer.dtype.bytes)))


def emit_step(s: BlockState, state: StepState, step: GemmStep) -> None:
    """The product of one round."""
    w, name = s.w, step.gemm.a.buffer.name
    a, b = source_matrix(s, step.a.src), source_matrix(s, step.b.src)
    assert a is not None and b is not None
    next_a, next_b = _following(s, step)
    storage = s.storage_of(step.gemm.c.buffer)
    assert storage.strides is not None and isinstance(storage.strides[0], int)
    shape = _shape(step, storage.strides[0])
    plan = plan_gemm(shape.a_dtype, shape.b_dtype, shape.c_dtype, s.cpu)
    a_inside, b_inside = _insides(s, a), _insides(s, b)
    m, k_of_a = reversed(a_inside) if shape.transpose_a else a_inside
    k_of_b, n = reversed(b_inside) if shape.transpose_b else b_inside
    out, out_pitch = _result(s, state, step, (m, n))
    left, right = state.panels[name]
    arguments = [
        a.pointer, a.pitch_bytes, b.pointer, b.pitch_bytes, storage.pointer,
        m, n, w.intrinsic("smin", [k_of_a, k_of_b]), _is_first(s, step), next_a, next_b,
        left, right, out, out_pitch,
    ]  # fmt: skip
    w.call(state.emitter.function(shape, plan), "void", arguments)


def _insides(s: BlockState, matrix: Matrix) -> tuple[Value, Value]:
    rows = matrix.rows_inside if matrix.rows_inside is not None else s.w.i64(matrix.rows)
    columns = (
        matrix.columns_inside if matrix.columns_inside is not None else s.w.i64(matrix.columns)
    )
    return rows, columns


def _is_first(s: BlockState, step: GemmStep) -> Value:
    """Whether this round's sums begin at zero because of the statement before the loop (i1)."""
    if step.fill is None or step.loop is None:
        return s.w.const(step.fill is not None, "i1")
    return s.w.icmp("eq", s.rounds[-1].number, s.w.i64(0))


def emit_fill(s: BlockState, step: GemmStep) -> None:
    """The statement that sets the sums to zero: the first round does, if there is one."""
    assert step.fill is not None
    if step.loop is None:
        return
    with s.w.when(s.w.icmp("slt", index(s, step.loop.extent), s.w.i64(1))):
        emit_fill_nest(s, step.fill.dst, step.fill.value)


def _following(s: BlockState, step: GemmStep) -> tuple[Value, Value]:
    """Where the next round reads; null after the last one and where there is no loop."""
    w, null = s.w, Value("ptr", "null")
    if not s.rounds:
        return null, null
    current = s.rounds[-1]
    before = s.wide[current.name]
    s.wide[current.name] = w.add(before, current.step)
    places = [_address(s, copy.src) for copy in (step.a, step.b)]
    s.wide[current.name] = before
    has_next = w.icmp("slt", w.add(current.number, w.i64(1)), current.extent)
    return w.select(has_next, places[0], null), w.select(has_next, places[1], null)


def _address(s: BlockState, region: Region) -> Value:
    w = s.w
    storage = s.storage_of(region.buffer)
    offset = linear_offset(s, storage, region.starts)
    return w.offset_bytes(storage.pointer, w.mul(offset, w.i64(region.dtype.bytes)))


def _result(
    s: BlockState, state: StepState, step: GemmStep, inside: tuple[Value, Value]
) -> tuple[Value, Value]:
    """Where to write the result (null except in the last round), and its pitch in bytes."""
    w, null = s.w, Value("ptr", "null")
    if step.result is None:
        return null, w.i64(0)
    if step.loop is None:
        prepare_result(s, state, step)
    slots = state.slots[step.gemm.a.buffer.name]
    now = w.load(slots[0], "i1", 1)
    if step.loop is not None:
        current = s.rounds[-1]
        is_last = w.icmp("eq", w.add(current.number, w.i64(1)), current.extent)
        now = w.binary("and", now, is_last)
    matrix = source_matrix(s, step.result.dst)
    assert matrix is not None
    for mine, other in zip(_insides(s, matrix), inside, strict=True):
        now = w.binary("and", now, w.icmp("eq", mine, other))
    w.store(now, slots[1], 1)
    return w.select(now, matrix.pointer, null), matrix.pitch_bytes


def is_result_missing(s: BlockState, state: StepState, step: GemmStep) -> Value:
    """Whether the copy of the result after the loop still has to be done (i1)."""
    w = s.w
    done = w.load(state.slots[step.gemm.a.buffer.name][1], "i1", 1)
    return w.binary("xor", done, w.const(True, "i1"))
