"""Programs to one LLVM module: an entry that runs the kernels in order, a worker per kernel.

The entry lays a kernel's arguments into a record on its stack and starts the team. Each worker
takes its own scratch memory and then blocks of the grid, a few at a time, from a shared counter.
"""

from __future__ import annotations

import math

from tilecore.errors import ResourceError
from tilecore.hooks.records import CompileOptions, KernelSource, Source
from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Const, Expr
from tilecore.ir.program import Kernel, Program
from tilecore.ir.signature import Argument, kernel_arguments
from tilecore.ir.stmts import Allocate, Assert, Copy, Fill, Gemm
from tilecore.ir.visit import sources_of_views, walk_stmts

from .builder import ModuleWriter, Value
from .contractions import zero_bytes
from .conversions import compute_type
from .entry import (
    ARGUMENTS_SLOT,
    CHUNK_SLOT,
    GRID_SLOT,
    NEXT_BLOCK_SLOT,
    NEXT_THREAD_SLOT,
    SCRATCH_BYTES_SLOT,
    SCRATCH_SLOT,
    TOTAL_SLOT,
    Launch,
    emit_entry,
    emit_workspace,
    parameter_type,
)
from .expressions import index
from .fusion import Fuser
from .gemm_kernels import GemmEmitter, emit_tile_config, emit_tile_release
from .gemm_steps import StepEmitter
from .host import HostCpu
from .llvm_types import plain_name
from .readers import flushed_buffers, mentions
from .scheduling import BufferPlan, gemm_plan, plan_buffers
from .shared_tiles import TileStore, find_shared_tiles
from .state import Arena, BlockState
from .statements import emit_block, place_buffer
from .steps import StepState, place_panels
from .storage import Storage
from .streaming import emit_fence
from .vector_math import VectorMath

MOST_SCRATCH_BYTES = 1 << 30
"""Scratch memory of one thread; tiles are meant to stay in its caches."""


def emit_program(program: Program, cpu: HostCpu, options: CompileOptions) -> Source:
    """Source of a whole scheduled program."""
    module = ModuleWriter()
    module.set_target(cpu.name, cpu.feature_string, cpu.vector_bits)
    gemm = GemmEmitter(module, cpu)
    sources, workers = [], []
    for number, kernel in enumerate(program.kernels):
        arguments = kernel_arguments(program, kernel)
        worker = _Worker(module, kernel, arguments, cpu, gemm)
        worker.state.kernel_number = number
        worker.emit()
        _check_scratch(kernel, worker.arena.bytes)
        workers.append(Launch(kernel, arguments, worker.name, tuple(worker.shared)))
        has_assert = any(isinstance(stmt, Assert) for stmt in walk_stmts(kernel.body))
        extra = (("has_assert", has_assert), ("scratch_bytes", worker.arena.bytes))
        sources.append(
            KernelSource(worker.name, arguments, kernel.grid, kernel.threads, 0, (1, 1, 1), extra)
        )
    emit_entry(module, program, workers)
    emit_workspace(module, program, workers)
    return Source(str(module), "llvm", tuple(sources))


def _check_scratch(kernel: Kernel, size: int) -> None:
    """Refuse tiles that no thread should hold.

    Raises:
        ResourceError: with the largest buffers and what to change.
    """
    if size <= MOST_SCRATCH_BYTES:
        return
    allocated = [s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Allocate)]
    sizes = [(math.prod(b.static_shape or ()) * b.dtype.bytes, b.name) for b in allocated]
    table = ", ".join(f"{name} {count >> 20} MiB" for count, name in sorted(sizes)[:-4:-1])
    raise ResourceError(
        f"the tiles of kernel {kernel.name} do not fit a thread's scratch memory",
        expected=f"at most {MOST_SCRATCH_BYTES >> 20} MiB",
        got=f"{size >> 20} MiB ({table})",
        loc=kernel.loc,
        hint="choose smaller tiles",
    )


class _Worker:
    """The function that each thread of the team runs for one kernel."""

    def __init__(
        self,
        module: ModuleWriter,
        kernel: Kernel,
        arguments: tuple[Argument, ...],
        cpu: HostCpu,
        gemm: GemmEmitter,
    ) -> None:
        self.kernel, self.arguments, self.cpu = kernel, arguments, cpu
        self.name = f"{plain_name(kernel.name)}_worker"
        self.w = module.function(self.name, "void", [("ptr noalias", "record")])
        self.arena = Arena()
        self.plan: BufferPlan = plan_buffers(kernel, cpu)
        self.state = BlockState(
            self.w, cpu, VectorMath(self.w, cpu), self.arena, Value("ptr", "%scratch")
        )
        self.state.gemm = gemm
        self.state.layouts = dict(self.plan.layouts)
        self.state.packings = dict(self.plan.packings)
        self.state.zeroed = self.plan.zeroed
        self.state.flushed = flushed_buffers(kernel.body, cpu)
        roots = {name: one.name for name, one in sources_of_views(kernel.body).items()}
        self.state.mentions = mentions(kernel.body)
        for name in (*roots, *roots.values()):
            del self.state.mentions[name]
        self.shared = find_shared_tiles(kernel, self.plan)
        self.state.steps = StepState(dict(self.plan.steps), StepEmitter(gemm), {}, {})
        self.state.fuser = Fuser(roots, self._is_special)

    def emit(self) -> None:
        w = self.w
        uses_tiles = any(
            isinstance(stmt, Gemm) and gemm_plan(stmt, self.cpu).kind == "tile"
            for stmt in walk_stmts(self.kernel.body)
        )
        self._bind_arguments()
        self._own_scratch()
        self._find_tiles()
        if self.state.steps is not None:
            place_panels(self.state, self.state.steps)
        if uses_tiles:
            emit_tile_config(w)
        self._blocks()
        if uses_tiles:
            emit_tile_release(w)
        if self.state.has_streamed:
            emit_fence(w, self.cpu.arch)
        w.ret()

    def _is_special(self, copy: Copy | Fill) -> bool:
        """Copies that pack, that blocks share, or that products do, stay on their own."""
        name = copy.dst.buffer.name
        steps = self.state.steps
        if isinstance(copy, Fill):
            return steps is not None and steps.step_of_fill(copy) is not None
        return (
            name in self.plan.packings
            or (steps is not None and steps.is_operand(copy.dst.buffer))
            or (steps is not None and steps.step_of_result(copy) is not None)
            or name in self.plan.borrowed
            or name in {tile.copy.dst.buffer.name for tile in self.shared}
        )

    def _slot(self, slot: int, kind: str = "i64") -> Value:
        return self.w.load(self.w.offset(self.w.parameters[0], "i64", slot), kind, 8)

    def _bind_arguments(self) -> None:
        w, s = self.w, self.state
        for slot, argument in enumerate(self.arguments):
            value = self._slot(ARGUMENTS_SLOT + slot, parameter_type(argument))
            if isinstance(argument, Buffer):
                s.storage[argument.name] = Storage(argument, value, None)
            elif argument.dtype.is_float:
                s.values[argument.name] = w.cast("fptrunc", value, compute_type(argument.dtype))
            elif argument.dtype.is_bool:
                s.values[argument.name] = w.icmp("ne", value, w.i64(0))
            else:
                low = -math.inf if argument.lower is None else argument.lower
                high = math.inf if argument.upper is None else argument.upper
                s.bind_index(argument.name, value, low, high)
        for name, storage in list(s.storage.items()):
            s.storage[name] = Storage(
                storage.buffer, storage.pointer, self._strides(storage.buffer)
            )

    def _strides(self, buffer: Buffer) -> tuple[int | Value, ...]:
        """Element strides of a global buffer: constants where they are known."""
        s, w = self.state, self.w
        if buffer.strides is not None:
            return tuple(
                int(e.value) if isinstance(e, Const) else index(s, e) for e in buffer.strides
            )
        strides: list[int | Value] = []
        running: int | Value = 1
        for extent in reversed(buffer.shape):
            strides.append(running)
            running = _times(s, running, extent)
        del w
        return tuple(reversed(strides))

    def _own_scratch(self) -> None:
        """This thread's part of the scratch memory, and buffers whose padding is zeroed once."""
        w, s = self.w, self.state
        ticket = w.emit(
            "i64",
            f"atomicrmw add {w.offset(w.parameters[0], 'i64', NEXT_THREAD_SLOT)}, i64 1 monotonic",
        )
        offset = w.mul(ticket, self._slot(SCRATCH_BYTES_SLOT))
        base = s.call = self._slot(SCRATCH_SLOT, "ptr")
        w.line(f"%scratch = getelementptr i8, {base}, {offset}")
        w.line('call void @llvm.assume(i1 true) [ "align"(ptr %scratch, i64 64) ]')
        w.module.declare("llvm.assume", "void", ["i1"])
        for stmt in walk_stmts(self.kernel.body):
            if isinstance(stmt, Allocate) and stmt.buffer.name in self.plan.zeroed:
                place_buffer(s, stmt.buffer)
                storage = s.storage_of(stmt.buffer)
                assert storage.layout is not None
                zero_bytes(s, storage.pointer, storage.layout.span * stmt.buffer.dtype.bytes)

    def _find_tiles(self) -> None:
        """Stores of the shared tiles, and the slots that say where their buffers live now."""
        w, s = self.w, self.state
        s.borrowed = self.plan.borrowed
        for stmt in walk_stmts(self.kernel.body):
            if isinstance(stmt, Allocate) and stmt.buffer.name in self.plan.borrowed:
                place_buffer(s, stmt.buffer)
                slot = w.alloca("ptr", 1, 8)
                w.store(s.storage[stmt.buffer.name].pointer, slot)
                s.pointer_slots[stmt.buffer.name] = slot
        for number, tile in enumerate(self.shared):
            slot = ARGUMENTS_SLOT + len(self.arguments) + 2 * number
            buffer = tile.copy.dst.buffer
            if buffer.name not in s.storage:
                place_buffer(s, buffer)
            pointer = w.alloca("ptr", 1, 8)
            w.store(s.storage[buffer.name].pointer, pointer)
            s.shared_tiles[buffer.name] = TileStore(
                tile, self._slot(slot, "ptr"), self._slot(slot + 1, "ptr"), pointer
            )
            s.pointer_slots[buffer.name] = pointer

    def _blocks(self) -> None:
        w, s = self.w, self.state
        total, chunk = self._slot(TOTAL_SLOT), self._slot(CHUNK_SLOT)
        grid = [self._slot(GRID_SLOT + axis) for axis in range(3)]
        counter = w.offset(w.parameters[0], "i64", NEXT_BLOCK_SLOT)
        w.begin_block("blocks.next")
        first = w.emit("i64", f"atomicrmw add {counter}, {chunk} monotonic")
        has_work = w.icmp("slt", first, total)
        w.terminate(f"br {has_work}, label %blocks.chunk, label %blocks.end")
        w.begin_block("blocks.chunk")
        last = w.intrinsic("smin", [w.add(first, chunk), total])
        with w.loop(first, last) as loop:
            rest = s.block = loop.index
            for axis, var in enumerate(self.kernel.grid_vars):
                is_last = axis == len(self.kernel.grid_vars) - 1
                digit = rest if is_last else w.binary("urem", rest, grid[axis])
                s.bind_index(var.name, digit, 0, _last_index(self.kernel.grid[axis]))
                if not is_last:
                    rest = w.binary("udiv", rest, grid[axis])
            emit_block(s, self.kernel.body)
        w.terminate("br label %blocks.next")
        w.begin_block("blocks.end")


def _last_index(extent: Expr) -> float:
    return max(int(extent.value) - 1, 0) if isinstance(extent, Const) else math.inf


def _times(s: BlockState, running: int | Value, extent: Expr) -> int | Value:
    if isinstance(extent, Const) and isinstance(running, int):
        return running * int(extent.value)
    left = running if isinstance(running, Value) else s.w.i64(running)
    return s.w.mul(left, index(s, extent))
