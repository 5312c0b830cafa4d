"""Frozen data that crosses the border between core and backends."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tilecore.errors import BackendError
from tilecore.hooks.matrix_moves import MatrixLoad as MatrixLoad
from tilecore.hooks.matrix_moves import MatrixStore as MatrixStore
from tilecore.ir.buffers import Buffer
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Expr
from tilecore.ir.layout import FragmentLayout, Layout
from tilecore.ir.program import Kernel
from tilecore.ir.signature import Argument
from tilecore.ir.stmts import Copy, For, Gemm, Stmt
from tilecore.ir.windows import Windows


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device that is present here.

    Attributes:
        name: what the vendor calls it.
        arch: the `Target.arch` that fits it.
        processors: multiprocessors, compute units or cores.
        memory_bytes: its memory; 0 when unknown.
        details: further facts to show, as (name, text) pairs.
    """

    name: str
    arch: str
    processors: int
    memory_bytes: int = 0
    details: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ToolchainInfo:
    """Whether the backend can turn source into binaries here, and with what.

    `missing` is one sentence that says what to install, or "" when all is present.
    """

    name: str
    version: str
    missing: str = ""


@dataclass(frozen=True, slots=True)
class MmaRequest:
    """Asks for the MMA atom of one gemm. Operand scopes, dtypes and shapes are in `gemm`."""

    gemm: Gemm
    threads: int


@dataclass(frozen=True, slots=True)
class MmaAtom:
    """The smallest matrix instruction, with the layouts of its operands.

    Attributes:
        name: the backend's name of the instruction; emit rules know it.
        m, n, k: its tile.
        a_dtype, b_dtype, c_dtype: operand and accumulator types.
        lanes: lanes that execute it together (a warp's, or a warpgroup's).
        a, b: register layouts over (m, k) and (k, n); None when read from shared memory.
        c: register layout of the accumulator over (m, n).
        source: manual section that states the layouts.
        loads: matrix loads that may fill a and b from shared memory; plain loads otherwise.
        a_round, b_round: a unary operation that operands need first, or "".
        register_dtype: dtype of operand registers where it differs from the operands': they are
            widened when loaded.
        operand_sets: 2 where lanes should load the next slice of k under the products of this one,
            into registers of their own.
    """

    name: str
    m: int
    n: int
    k: int
    a_dtype: DType
    b_dtype: DType
    c_dtype: DType
    lanes: int
    a: FragmentLayout | None
    b: FragmentLayout | None
    c: FragmentLayout
    source: str = ""
    loads: tuple[MatrixLoad, ...] = ()
    a_round: str = ""
    b_round: str = ""
    register_dtype: DType | None = None
    operand_sets: int = 1

    def __post_init__(self) -> None:
        for what, layout, shape in (
            ("A", self.a, (self.m, self.k)),
            ("B", self.b, (self.k, self.n)),
            ("C", self.c, (self.m, self.n)),
        ):
            if layout is None:
                continue
            if layout.shape != shape or layout.threads != self.lanes:
                raise BackendError(
                    f"MMA atom {self.name}: layout of {what} does not cover its tile",
                    expected=f"shape {shape} on {self.lanes} lanes",
                    got=f"shape {layout.shape} on {layout.threads} lanes",
                )
            if layout.registers * self.lanes != math.prod(shape) * layout.replicas:
                raise BackendError(f"MMA atom {self.name}: layout of {what} is not a bijection")


@dataclass(frozen=True, slots=True)
class LayoutRequest:
    """Asks for the memory layout of one shared buffer.

    Attributes:
        buffer: the buffer; its shape is static.
        uses: statements of the kernel that touch it, in program order.
        kernel: the kernel, with the layouts and atoms chosen so far.
        is_tight: the kernel does not fit with gaps between rows or columns.
    """

    buffer: Buffer
    uses: tuple[Stmt, ...]
    kernel: Kernel
    is_tight: bool = False


@dataclass(frozen=True, slots=True)
class PipelineRequest:
    """Asks how to overlap the iterations of one pipelined loop.

    `smem_bytes_free` is what the block has left besides one copy of each buffer; `options` are
    those of the compilation.
    """

    loop: For
    kernel: Kernel
    smem_bytes_free: int
    options: CompileOptions = field(default_factory=lambda: CompileOptions())


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """How a pipelined loop is overlapped.

    Attributes:
        num_stages: slots of each multi-buffered shared buffer; 1 means no overlap.
        stage: for each statement of the loop's body the stage it belongs to (0 is earliest).
        order: for each statement its place in the schedule of one steady iteration.
        producer_warps: warps set apart to issue copies; 0 when all warps do everything.
        persistent: with producer warps, blocks may stay and take one tile after the other.
        cluster: with persistent blocks, how many may share what they load.
        alternates: sums that one iteration uses up may take turns in two sets of registers, so
            that the next contraction runs beside the work on them.
        takes_turns: two teams of warps may take the tiles of chained contractions by turns.
        held_registers: with `takes_turns`, 32-bit registers of a lane in which a team may keep
            columns of an operand that all tiles share.
        takes_tiles: persistent blocks may take tiles from a counter of the launch (`launch.take`).
        through_registers: copies that run ahead wait in lanes' registers, one iteration each, and
            are stored to one slot of shared memory, or two (`num_stages`).
        staggered: with `through_registers`, half of the warps run one phase behind the others
            (`tilecore.passes.stagger`), where the loop has a form for it.
        hold_operands: gemm operands in shared memory that the loop does not change are read into
            registers once, before it.
        asks_early: where the last contraction runs one iteration late, consumers ask whether the
            next iteration's data is there before the work in front of their wait for it, and
            count the slots of all rings along.
    """

    num_stages: int
    stage: tuple[int, ...]
    order: tuple[int, ...]
    producer_warps: int = 0
    persistent: bool = False
    cluster: int = 1
    takes_tiles: bool = False
    through_registers: bool = False
    hold_operands: bool = False
    staggered: bool = False
    alternates: bool = False
    takes_turns: bool = False
    held_registers: int = 0
    asks_early: bool = False


@dataclass(frozen=True, slots=True)
class AsyncCopyRequest:
    """Asks whether one global-to-shared copy can run asynchronously.

    Attributes:
        copy: the copy.
        kernel: the kernel, with the layouts of now.
        parts: blocks of a cluster that load equal parts of it for one another (bulk copies only).
        windows: the source is the matrix of these windows, which only a bulk copy can read; its
            rows and columns are the region's.
        options: those of the compilation.
    """

    copy: Copy
    kernel: Kernel
    parts: int = 1
    windows: Windows | None = None
    options: CompileOptions = field(default_factory=lambda: CompileOptions())


@dataclass(frozen=True, slots=True)
class AsyncCopyAtom:
    """How a copy is issued asynchronously by lanes.

    Attributes:
        name: the backend's name of the instruction; emit rules know it.
        widths: bytes that one lane can move at once, widest first.
        in_lane_order: a warp's pieces land side by side, in the order of its lanes: lanes take
            their pieces in the order of shared memory, and only layouts without gaps will do. Such
            copies are waited for by counting them (hint ``operations`` of ``async.wait``).
    """

    name: str
    widths: tuple[int, ...]
    in_lane_order: bool = False


@dataclass(frozen=True, slots=True)
class BulkPiece:
    """One box of a bulk copy.

    Attributes:
        at: per axis of the source buffer, where the box begins relative to the region's start.
        offset: element offset in the destination, relative to the destination region's first.
    """

    at: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class BulkCopyPlan:
    """How a copy engine moves a region to shared memory, or a fragment to global memory.

    One lane starts it; its bytes complete on a transaction barrier. Parts outside the source
    arrive as zeros and are counted, too.

    Attributes:
        kind: the backend's name for how a box is arranged in shared memory.
        box: per axis of the source buffer, elements of one piece.
        pieces: the boxes that make up the region, of a copy to shared memory; those of each part
            stand together, in the same order.
        staging: layout of the shared buffer through which a fragment goes to global memory.
        rounds: parts in which a fragment may leave later, one after the other, while lanes hold it
            rounded beside the next one; 0 where registers do not allow that.
        begins_at: a box begins at a multiple of so many elements of the tensor's last axis, and one
            that is written begins inside the tensor (lanes move others); 0: it may begin anywhere.
        refused: why the engine does not take windows, for the kernel's hints; then all else is
            empty. Other copies are refused by None.
    """

    kind: str
    box: tuple[int, ...]
    pieces: tuple[BulkPiece, ...] = ()
    staging: Layout | None = None
    rounds: int = 0
    begins_at: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class KernelSource:
    """One entry point in a `Source`, and what its launch needs.

    Attributes:
        name: symbol name.
        arguments: in the order of the entry point's parameters.
        grid: blocks along each axis, as expressions over constants and dynamic sizes.
        threads: lanes of one block.
        smem_bytes: dynamic shared memory of one block.
        cluster: blocks of one cluster.
        extra: backend-specific launch facts, e.g. descriptors to encode, as (name, value) pairs.
    """

    name: str
    arguments: tuple[Argument, ...]
    grid: tuple[Expr, ...]
    threads: int
    smem_bytes: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    extra: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """Generated source text of a program.

    Attributes:
        text: the source; equal programs give equal texts.
        language: e.g. ``"c++"`` or ``"llvm"``; names the file suffix in dumps.
        kernels: entry points, in launch order.
        headers: (file name, text) pairs that the text includes.
    """

    text: str
    language: str
    kernels: tuple[KernelSource, ...]
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class EmulatorSupport:
    """What a backend adds to the emulator.

    Attributes:
        header: name of its emulated header, which takes the place of the device header.
        include_directories: where that header and what it includes are found.
        sources: C++ files compiled once, together with the engine.
        lanes_per_warp: 32 or 64; equals TC_LANES_PER_WARP of the header.
        defines: macros (``NAME`` or ``NAME=value``) for the engine and for kernels.
    """

    header: str
    include_directories: tuple[Path, ...]
    sources: tuple[Path, ...]
    lanes_per_warp: int
    defines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What one compiled kernel uses; None means that this backend does not say.

    `notes` holds the toolchain's remarks that cost speed (spills, serialised instructions).
    """

    name: str
    threads: int | None = None
    registers: int | None = None
    smem_bytes: int | None = None
    stack_bytes: int | None = None
    spill_bytes: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Artifact:
    """A loadable binary. It is what the disk cache stores, next to its `Source`.

    Attributes:
        data: the binary.
        format: what `data` is; only the backend that made it reads it.
        resources: one entry per kernel.
        log: what the toolchain printed.
    """

    data: bytes
    format: str
    resources: tuple[KernelResources, ...] = ()
    log: str = ""


class Launcher(Protocol):
    """A loaded program. Calling it enqueues all its kernels.

    `arguments` are flat, in the order of `ir.signature.program_arguments`: addresses for buffers,
    Python numbers for scalars and dynamic sizes. `stream` is the backend's stream handle, or 0
    for its default.
    """

    def __call__(self, arguments: tuple[int | float, ...], stream: int = 0) -> None:
        """Launch all kernels, in order."""
        ...


EmitRule = Callable[..., object]
"""Turns one backend operation into text; its signature is the emitter's business."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of one compilation, all part of the cache key.

    Attributes:
        fast_math: allow approximate division and transcendental functions.
        debug: keep assertions and bounds checks of generated code.
        line_info: put the user's file and line into the generated code.
        extra: backend options by name, as sorted (name, value) pairs.
    """

    fast_math: bool = False
    debug: bool = False
    line_info: bool = True
    extra: tuple[tuple[str, int | float | str | bool], ...] = field(default=())
