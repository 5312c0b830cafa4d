"""What is known while one block's code is written: values, buffers, ranges, the vector axis."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Expr
from tilecore.ir.layout import Layout

from .analysis import Interval
from .builder import FunctionWriter, Value
from .fusion import Fuser
from .gemm_kernels import GemmEmitter
from .host import HostCpu
from .scheduling import Packing
from .storage import Storage
from .vector_math import VectorMath

if TYPE_CHECKING:
    from .shared_tiles import TileStore
    from .steps import StepState


@dataclass(slots=True)
class VectorAxis:
    """The variable whose consecutive values are the lanes of vectors.

    `base` is its value in lane 0 (64 bits), `active` masks lanes off (None: all run).
    """

    name: str
    base: Value
    lanes: int
    active: Value | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """A counting loop around the code being written: its variable, the variable's step, the number
    of this round, and of all."""

    name: str
    step: Value
    number: Value
    extent: Value


@dataclass(slots=True)
class Arena:
    """Static offsets into the thread's scratch memory.

    Regions of buffers whose padding must stay zero are never shared with others.
    """

    top: int = 0
    bytes: int = 0
    zeroed: list[tuple[int, int]] = field(default_factory=list)

    def take(self, size: int) -> int:
        """Reserve `size` bytes on cache-line bounds; returns the offset."""
        offset = self.top
        # One line between buffers keeps equal offsets of neighbours out of one cache set.
        self.top += -(-size // 64) * 64 + 64
        self.bytes = max(self.bytes, self.top)
        return offset


@dataclass(slots=True)
class BlockState:
    """Everything the emitters share.

    Attributes:
        w: the function under construction.
        values: variables, in their own type (scalars, or vectors for let-bound ones).
        wide: the same as 64-bit scalars, for those that count or index.
        ranges: bounds of integer variables.
        definitions: let-bound expressions of the current elementwise nest.
        storage: buffers by name.
        axis: the vector axis inside elementwise nests.
        is_elementwise: inside an elementwise nest, where accesses outside a buffer are skipped.
        is_guarded: whether accesses with unproven indices carry a bounds test here.
        nest_names: variables of the current elementwise nest.
        nest_changes: buffers that the nest writes or declares, and old values of its atomics.
        lane_locals: scalar local buffers that hold one value per lane here.
        arena_pointer: the thread's scratch memory.
        call: the scratch memory of all threads, by which calls at the same time are told apart.
        kernel_number: place of the kernel in its program.
        block: linear number of the block.
        stops: labels of the innermost loop, to continue and to leave it.
        layouts: of on-chip buffers.
        packings: how B operands are packed, by buffer name.
        fuser: joins neighbouring elementwise statements.
        zeroed: buffers whose padding must be zero.
        pointer_slots: stack slots that hold where a buffer lives now.
        streamed: global buffers to which whole vectors are stored past the caches here.
        has_streamed: whether the function has such stores.
        borrowed: buffers that live inside an input where they can.
        shared_tiles: copies whose result blocks share, by destination buffer.
        rounds: the counting loops around, innermost last.
        steps: products that read their operands where they lie.
        flushed: buffers whose readers take subnormal numbers for zero.
        mentions: how many statements of the kernel mention each buffer; none for views and what
            they show, which other names may touch.
    """

    w: FunctionWriter
    cpu: HostCpu
    math: VectorMath
    arena: Arena
    arena_pointer: Value
    call: Value = field(default_factory=lambda: Value("ptr", "null"))
    kernel_number: int = 0
    block: Value = field(default_factory=lambda: Value("i64", "0"))
    values: dict[str, Value] = field(default_factory=dict)
    wide: dict[str, Value] = field(default_factory=dict)
    ranges: dict[str, Interval] = field(default_factory=dict)
    definitions: dict[str, Expr] = field(default_factory=dict)
    storage: dict[str, Storage] = field(default_factory=dict)
    axis: VectorAxis | None = None
    is_elementwise: bool = False
    is_guarded: bool = True
    nest_names: tuple[str, ...] = ()
    nest_changes: frozenset[str] = frozenset()
    lane_locals: set[str] = field(default_factory=set)
    stops: list[tuple[str, str]] = field(default_factory=list)
    gemm: GemmEmitter | None = None
    layouts: dict[str, Layout] = field(default_factory=dict)
    packings: dict[str, Packing] = field(default_factory=dict)
    fuser: Fuser | None = None
    zeroed: frozenset[str] = frozenset()
    pointer_slots: dict[str, Value] = field(default_factory=dict)
    streamed: frozenset[str] = frozenset()
    has_streamed: bool = False
    borrowed: frozenset[str] = frozenset()
    shared_tiles: dict[str, TileStore] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    steps: StepState | None = None
    flushed: frozenset[str] = frozenset()
    mentions: Counter[str] = field(default_factory=Counter)

    def scratch(self, size: int) -> Value:
        """Address of `size` bytes of the thread's scratch memory, aligned to 64 bytes."""
        return self.w.offset_bytes(self.arena_pointer, self.arena.take(size))

    def bind_index(self, name: str, value: Value, low: float, high: float) -> None:
        """Bind an integer variable given in 64 bits."""
        self.wide[name] = value
        self.ranges[name] = (low, high)

    def storage_of(self, buffer: Buffer) -> Storage:
        """Where `buffer` lives; buffers with a pointer slot live where that points now."""
        storage = self.storage[buffer.name]
        slot = self.pointer_slots.get(buffer.name)
        return storage if slot is None else replace(storage, pointer=self.w.load(slot, "ptr"))
