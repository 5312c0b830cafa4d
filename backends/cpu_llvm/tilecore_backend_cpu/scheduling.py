"""Tile level to scheduled level: a memory layout for every on-chip buffer.

Blocks run in program order on one thread, so that there is nothing to pipeline and nothing to wait
for. What is left to decide is where elements lie: operands of a multiplication are stored the way
its kernel reads them, so that the program's own copy is the packing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Const, Load, walk
from tilecore.ir.layout import Layout, Mode
from tilecore.ir.program import Kernel, Level, Program
from tilecore.ir.stmts import Alias, Allocate, Copy, Fill, Gemm, Intrinsic, Stmt
from tilecore.ir.visit import exprs_of, regions_of, walk_stmts
from tilecore.ir.waiting import refuse_waits_out_of_order
from tilecore.passes.per_lane.lanes_in_turn import lanes_in_turn

from .gemm_kernels import GemmPlan, plan_gemm
from .host import HostCpu
from .operands import borrowed_layout
from .step_plan import GemmStep, find_steps


@dataclass(frozen=True, slots=True)
class Packing:
    """How a B operand lies in panels: `k` x `n` logical, padded to `k_padded` x `n_padded`."""

    plan: GemmPlan
    k: int
    n: int
    is_transposed: bool

    @property
    def k_padded(self) -> int:
        """k rounded up to what the instruction takes at once."""
        return round_up(self.k, self.plan.k_block)

    @property
    def n_padded(self) -> int:
        """n rounded up to whole panels."""
        return round_up(self.n, self.plan.n_block)

    @property
    def elements(self) -> int:
        """Elements of one packed matrix."""
        return self.k_padded * self.n_padded

    def axes(self) -> tuple[tuple[Mode, ...], tuple[Mode, ...]]:
        """Layout of the two last axes, in the buffer's own order."""
        plan = self.plan
        panels = self.n_padded // plan.n_block
        n_axis = (Mode(plan.n_block, plan.group), Mode(panels, self.k_padded * plan.n_block))
        groups = Mode(self.k_padded // plan.group, plan.n_block * plan.group)
        k_axis = (groups,) if plan.group == 1 else (Mode(plan.group, 1), groups)
        return (n_axis, k_axis) if self.is_transposed else (k_axis, n_axis)


@dataclass(frozen=True, slots=True)
class BufferPlan:
    """Layouts by buffer name, packings of B operands, buffers whose padding must be zero, and
    buffers that live inside an input while they hold a whole piece of it, and products that read
    their operands where they lie (see `step_plan`)."""

    layouts: Mapping[str, Layout]
    packings: Mapping[str, Packing]
    zeroed: frozenset[str]
    borrowed: frozenset[str] = frozenset()
    steps: Mapping[str, GemmStep] = field(default_factory=dict)


def round_up(value: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-value // step) * step


def layout_of(layouts: Mapping[str, Layout], buffer: Buffer) -> Layout:
    """The chosen layout, row-major where none was chosen."""
    shape = buffer.static_shape
    assert shape is not None, "on-chip buffers have constant shapes"
    return layouts.get(buffer.name) or Layout.row_major(shape)


def schedule_program(program: Program, cpu: HostCpu) -> Program:
    """Lanes of programs written per lane run in turn; every kernel gets its layouts.

    Raises:
        UnsupportedError: warps wait for what comes later in the program.
    """
    for kernel in program.kernels:
        refuse_waits_out_of_order(kernel.body)
    program = lanes_in_turn(program)
    kernels = []
    for kernel in program.kernels:
        layouts = tuple(sorted(plan_buffers(kernel, cpu).layouts.items()))
        kernels.append(replace(kernel, layouts=layouts))
    return replace(program, kernels=tuple(kernels), level=Level.SCHEDULED)


def plan_buffers(kernel: Kernel, cpu: HostCpu) -> BufferPlan:
    """Choose the layout of every on-chip buffer of a kernel."""
    stmts = list(walk_stmts(kernel.body))
    buffers = {stmt.buffer.name: stmt.buffer for stmt in stmts if isinstance(stmt, Allocate)}
    aliased = {
        name
        for stmt in stmts
        if isinstance(stmt, Alias)
        for name in (stmt.buffer.name, stmt.source.name)
    }
    gemms = [stmt for stmt in stmts if isinstance(stmt, Gemm)]
    layouts: dict[str, Layout] = {}
    packings: dict[str, Packing] = {}
    zeroed: set[str] = set()
    borrowed: set[str] = set()
    for name, buffer in buffers.items():
        shape = buffer.static_shape
        if shape is None or not shape:
            continue
        layouts[name] = Layout.row_major(shape)
        if name in aliased or buffer.scope is Scope.LOCAL or len(shape) < 2:
            continue
        packing = _packing_of(buffer, stmts, gemms, cpu)
        if packing is not None:
            packings[name] = packing
            layouts[name] = _packed_layout(shape, packing)
            if packing.k_padded > packing.k:
                zeroed.add(name)
            continue
        in_place = borrowed_layout(buffer, stmts, cpu)
        if in_place is not None:
            layouts[name] = in_place
            borrowed.add(name)
            continue
        layouts[name], needs_zero = _padded_layout(buffer, shape, gemms, cpu)
        if needs_zero:
            zeroed.add(name)
    steps = find_steps(kernel, layouts, cpu)
    operands = {r.buffer.name for step in steps.values() for r in (step.gemm.a, step.gemm.b)}
    zeroed, borrowed = zeroed - operands, borrowed - operands
    return BufferPlan(layouts, packings, frozenset(zeroed), frozenset(borrowed), steps)


def gemm_plan(gemm: Gemm, cpu: HostCpu) -> GemmPlan:
    """The kernel that runs one multiplication."""
    return plan_gemm(gemm.a.dtype, gemm.b.dtype, gemm.c.dtype, cpu)


def packing_for(gemm: Gemm, cpu: HostCpu) -> Packing:
    """How the kernel of `gemm` wants its B operand."""
    shape = gemm.b.static_shape
    assert shape is not None, "gemm operands have constant shapes"
    n, k = shape if gemm.transpose_b else (shape[1], shape[0])
    return Packing(gemm_plan(gemm, cpu), k, n, gemm.transpose_b)


def is_whole_matrix(region: Region) -> bool:
    """Whether a region is all of the last two axes, at one point of the others."""
    shape = region.buffer.static_shape
    if shape is None or len(shape) < 2:
        return False
    if any(extent is not None for extent in region.extents[:-2]):
        return False
    pairs = zip(region.starts[-2:], region.extents[-2:], shape[-2:], strict=True)
    return all(
        isinstance(start, Const)
        and start.value == 0
        and isinstance(extent, Const)
        and extent.value == size
        for start, extent, size in pairs
    )


def _packing_of(
    buffer: Buffer, stmts: list[Stmt], gemms: list[Gemm], cpu: HostCpu
) -> Packing | None:
    """The packing that all uses of a buffer agree on; None when one use is another."""
    wanted: set[Packing] = set()
    for gemm in gemms:
        if gemm.b.buffer.name == buffer.name:
            if not is_whole_matrix(gemm.b):
                return None
            wanted.add(packing_for(gemm, cpu))
    if len(wanted) != 1:
        return None
    for stmt in stmts:
        if not _packs(buffer, stmt):
            return None
    return wanted.pop()


def _packs(buffer: Buffer, stmt: Stmt) -> bool:
    """Whether a statement leaves alone, multiplies with, or writes a whole packed buffer."""
    mentions = [region for region in regions_of(stmt) if region.buffer.name == buffer.name]
    loads = (node for top in exprs_of(stmt) for node in walk(top) if isinstance(node, Load))
    if any(load.buffer.name == buffer.name for load in loads):
        return False
    if getattr(stmt, "buffer", None) == buffer and not isinstance(stmt, Allocate):
        return False
    if not mentions:
        return True
    match stmt:
        case Gemm(a=a, b=b, c=c):
            return a.buffer != buffer and c.buffer != buffer and b.buffer == buffer
        case Copy(src=src, dst=dst):
            return src.buffer != buffer and is_whole_matrix(dst)
        case Fill(dst=dst):
            return is_whole_matrix(dst)
        case Intrinsic(op="async.copy", args=args):
            return (
                isinstance(args[1], Region)
                and args[1].buffer == buffer
                and is_whole_matrix(args[1])
            )
        case _:
            return False


def _packed_layout(shape: tuple[int, ...], packing: Packing) -> Layout:
    axes: list[tuple[Mode, ...]] = []
    stride = packing.elements
    for extent in reversed(shape[:-2]):
        axes.insert(0, (Mode(extent, stride),))
        stride *= extent
    return Layout((*axes, *packing.axes()))


def _padded_layout(
    buffer: Buffer, shape: tuple[int, ...], gemms: list[Gemm], cpu: HostCpu
) -> tuple[Layout, bool]:
    """Row-major with rows and row pitch padded as the multiplications that use it like."""
    rows, columns = shape[-2:]
    row_step = column_step = 1
    needs_zero = is_operand = False
    for gemm in gemms:
        plan = gemm_plan(gemm, cpu)
        if gemm.a.buffer.name == buffer.name and not gemm.transpose_a:
            is_operand = True
            column_step = max(column_step, plan.k_block)
            row_step = 16 if plan.kind == "tile" else row_step
            needs_zero |= columns % plan.k_block != 0
        if gemm.c.buffer.name == buffer.name:
            is_operand |= plan.kind == "tile"
            column_step = max(column_step, cpu.lanes(max(32, buffer.dtype.bits)))
            row_step = 16 if plan.kind == "tile" else row_step
    padded = (*shape[:-2], round_up(rows, row_step), round_up(columns, column_step))
    pitch = padded[-1]
    if is_operand and pitch * buffer.dtype.bytes % 256 == 0:
        pitch += 64 // buffer.dtype.bytes  # rows of one column in different cache sets
    strides = [1, pitch]
    stride = pitch * padded[-2]
    for extent in reversed(padded[:-2]):
        strides.append(stride)
        stride *= extent
    return Layout.strided(padded, tuple(reversed(strides))), needs_zero
