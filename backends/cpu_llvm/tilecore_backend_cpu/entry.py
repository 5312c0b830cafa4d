"""The host's side of generated code: the entry that runs a program's kernels in order.

It lays a kernel's arguments into a record on its stack and starts the team of workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilecore.ir.buffers import Buffer
from tilecore.ir.program import Kernel, Program
from tilecore.ir.signature import Argument, program_arguments

from .builder import FunctionWriter, ModuleWriter, Value
from .expressions import index
from .host import detect_host
from .llvm_types import plain_name
from .shared_tiles import LEAST_USERS, SharedTile
from .state import Arena, BlockState
from .vector_math import VectorMath

ENTRY = "tilecore_run"
"""``void tilecore_run(ptr scratch, i64 scratch_bytes_per_thread, i64 max_threads, ptr workspace,
arguments...)``; the workspace may be null; integers and sizes are i64, floats double."""

WORKSPACE = "tilecore_workspace"
"""``i64 tilecore_workspace(arguments...)``: bytes of workspace that the call would like."""

# Slots (of 8 bytes) of the record that workers share; the two counters have a cache line each.
NEXT_BLOCK_SLOT = 0
NEXT_THREAD_SLOT = 8
TOTAL_SLOT = 16
CHUNK_SLOT = 17
SCRATCH_SLOT = 18
SCRATCH_BYTES_SLOT = 19
GRID_SLOT = 20
ARGUMENTS_SLOT = 23
CHUNKS_PER_THREAD = 32
"""Blocks are handed out in chunks, so many to a thread that a slow one holds up no other."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel as the entry sees it."""

    kernel: Kernel
    arguments: tuple[Argument, ...]
    worker: str
    shared: tuple[SharedTile, ...]


def parameter_type(argument: Argument) -> str:
    """LLVM type of an argument of the entry."""
    if isinstance(argument, Buffer):
        return "ptr"
    return "double" if argument.dtype.is_float else "i64"


def _parameters(arguments: Sequence[Argument]) -> list[tuple[str, str]]:
    """LLVM types and names of arguments as parameters."""
    return [(parameter_type(one), f"arg.{plain_name(one.name)}") for one in arguments]


def emit_workspace(module: ModuleWriter, program: Program, launches: list[Launch]) -> None:
    """The function that says how much workspace the shared tiles of a call take."""
    everything = program_arguments(program)
    w = module.function(WORKSPACE, "i64", _parameters(everything))
    by_name = dict(zip((a.name for a in everything), w.parameters, strict=True))
    state = _host_state(w, by_name)
    most: Value = w.i64(0)
    for launch in launches:
        total: Value = w.i64(0)
        for tile in launch.shared:
            total = w.add(total, _store_bytes(state, tile)[1])
        most = w.intrinsic("smax", [most, total])
    w.ret(most)


def _store_bytes(state: BlockState, tile: SharedTile) -> tuple[Value, Value]:
    """Bytes of the flags, and of flags and tiles, of one shared copy."""
    w = state.w
    tiles: Value = w.i64(1)
    for count in tile.counts:
        tiles = w.mul(tiles, index(state, count))
    lines = w.binary("sdiv", w.add(w.mul(tiles, w.i64(8)), w.i64(63)), w.i64(64))
    flag_bytes = w.mul(lines, w.i64(64))
    return flag_bytes, w.add(flag_bytes, w.mul(tiles, w.i64(tile.tile_bytes)))


def emit_entry(module: ModuleWriter, program: Program, launches: list[Launch]) -> None:
    """Write the entry."""
    everything = program_arguments(program)
    parameters = [("ptr", "scratch"), ("i64", "scratch_bytes"), ("i64", "max_threads")]
    parameters.append(("ptr", "workspace"))
    w = module.function(ENTRY, "void", [*parameters, *_parameters(everything)])
    by_name = dict(zip((a.name for a in everything), w.parameters[4:], strict=True))
    for launch in launches:
        _emit_launch(w, launch, by_name)
    w.ret()


def _emit_launch(w: FunctionWriter, launch: Launch, by_name: Mapping[str, Value]) -> None:
    """Fill the record of one kernel and run its workers."""
    kernel, arguments, worker = launch.kernel, launch.arguments, launch.worker
    record = w.alloca("i64", ARGUMENTS_SLOT + len(arguments) + 2 * len(launch.shared))
    state = _host_state(w, by_name)
    total: Value = w.i64(1)
    for axis in range(3):
        extent = index(state, kernel.grid[axis]) if axis < len(kernel.grid) else w.i64(1)
        extent = w.intrinsic("smax", [extent, w.i64(0)])
        total = w.mul(total, extent)
        w.store(extent, w.offset(record, "i64", GRID_SLOT + axis))
    for slot, argument in enumerate(arguments):
        w.store(by_name[argument.name], w.offset(record, "i64", ARGUMENTS_SLOT + slot))
    _place_tiles(state, launch, record)
    most = w.cast("sext", w.call("omp_get_max_threads", "i32", []), "i64")
    threads = w.intrinsic("smin", [w.intrinsic("smin", [most, w.parameters[2]]), total])
    shares = w.mul(w.intrinsic("smax", [threads, w.i64(1)]), w.i64(CHUNKS_PER_THREAD))
    chunk = w.intrinsic("smax", [w.binary("sdiv", total, shares), w.i64(1)])
    for slot, value in (
        (NEXT_BLOCK_SLOT, w.i64(0)),
        (NEXT_THREAD_SLOT, w.i64(0)),
        (TOTAL_SLOT, total),
        (CHUNK_SLOT, chunk),
        (SCRATCH_SLOT, w.parameters[0]),
        (SCRATCH_BYTES_SLOT, w.parameters[1]),
    ):
        w.store(value, w.offset(record, "i64", slot))
    label = w.fresh("launch")
    w.terminate(f"br {w.icmp('sgt', threads, w.i64(1))}, label %{label}.team, label %{label}.few")
    w.begin_block(f"{label}.team")
    count = w.cast("trunc", threads, "i32")
    w.module.declare("GOMP_parallel", "void", ["ptr", "ptr", "i32", "i32"])
    w.line(f"call void @GOMP_parallel(ptr @{worker}, {record}, {count}, i32 0)")
    w.terminate(f"br label %{label}.end")
    w.begin_block(f"{label}.few")
    with w.when(w.icmp("eq", threads, w.i64(1))):
        w.call(worker, "void", [record])
    w.begin_block(f"{label}.end")


def _place_tiles(state: BlockState, launch: Launch, record: Value) -> None:
    """Cut the workspace into the stores of the shared tiles; none is ready yet."""
    w = state.w
    workspace = w.parameters[3]
    has_workspace = w.icmp("ne", workspace, Value("ptr", "null"))
    offset: Value = w.i64(0)
    for number, tile in enumerate(launch.shared):
        slot = ARGUMENTS_SLOT + len(launch.arguments) + 2 * number
        flag_bytes, all_bytes = _store_bytes(state, tile)
        is_used = w.icmp("sge", index(state, tile.users), w.i64(LEAST_USERS))
        is_used = w.binary("and", is_used, has_workspace)
        flags = w.select(is_used, w.offset_bytes(workspace, offset), Value("ptr", "null"))
        tiles = w.offset_bytes(workspace, w.add(offset, flag_bytes))
        w.store(flags, w.offset(record, "i64", slot))
        w.store(tiles, w.offset(record, "i64", slot + 1))
        with w.when(is_used):
            w.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
            w.line(f"call void @llvm.memset.p0.i64({flags}, i8 0, {flag_bytes}, i1 false)")
        offset = w.add(offset, all_bytes)


def _host_state(w: FunctionWriter, by_name: Mapping[str, Value]) -> BlockState:
    """A state in which grid expressions can be evaluated."""
    cpu = detect_host()
    state = BlockState(w, cpu, VectorMath(w, cpu), Arena(), Value("ptr", "null"))
    state.wide.update({name: value for name, value in by_name.items() if value.type == "i64"})
    return state
