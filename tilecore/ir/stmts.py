"""Statements: everything with an effect. Read this file to know what a tile program can say.

Blocks are tuples of statements. All nodes are frozen and compared by structure; `loc` is the
user's line and takes no part in comparison. Passes rebuild, never mutate (`visit.py` helps).

The first group is legal at every level, the second is the tile level (what the author wrote) and
stays until the scheduled level, where layouts, atoms and stages are attached to it; the third
appears from the scheduled level on.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tilecore.errors import Loc
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import FALSE, Expr, Var

Hints = tuple[tuple[str, int | float | str | bool], ...]
"""Named advice that never changes a result, sorted by name: (("coalesced_width", 8),)."""


@dataclass(frozen=True, slots=True)
class Stmt:
    """Base of all statements."""


Block = tuple[Stmt, ...]

# --- every level -------------------------------------------------------------------------------


class LoopKind(enum.Enum):
    """How a `For` runs. All kinds have the meaning of the serial loop."""

    SERIAL = "serial"
    UNROLL = "unroll"
    VECTORIZED = "vectorized"
    PIPELINED = "pipelined"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """What the author asked of a pipelined loop (T.Pipelined).

    Attributes:
        num_stages: buffers in flight; 0 or 1 means no overlap.
        order: for each top-level statement of the body its place in the software schedule, or ().
        stage: for each statement its stage, or (); empty means that the compiler plans.
        group: statements that stay together, as tuples of indices, or (). Statements that are in
            none are groups of their own. Then `order` and `stage` may be told for each group
            instead, in the order of `group`, those of its own last.
    """

    num_stages: int = 0
    order: tuple[int, ...] = ()
    stage: tuple[int, ...] = ()
    group: tuple[tuple[int, ...], ...] = ()

    def groups(self, count: int) -> tuple[tuple[int, ...], ...]:
        """All groups of a body of `count` statements: the author's, then single statements."""
        named = {index for members in self.group for index in members}
        return (*self.group, *((index,) for index in range(count) if index not in named))

    def by_statement(self, values: tuple[int, ...], count: int) -> tuple[int, ...] | None:
        """`order` or `stage` for each of `count` statements; None where it is of no such length."""
        if len(values) == count:
            return values
        groups = self.groups(count)
        if len(values) != len(groups):
            return None
        of = {index: value for value, group in zip(values, groups, strict=True) for index in group}
        return tuple(of[index] for index in range(count))


@dataclass(frozen=True, slots=True)
class For(Stmt):
    """``for var in range(start, start + extent * step, step)``; `extent` counts iterations.

    A negative or zero extent runs nothing. `pipeline` is set exactly for PIPELINED loops.
    """

    var: Var
    start: Expr
    extent: Expr
    step: Expr
    body: Block
    kind: LoopKind = LoopKind.SERIAL
    pipeline: PipelineSpec | None = None
    hints: Hints = ()
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class While(Stmt):
    """Runs `body` while `condition`, evaluated before each round, holds."""

    condition: Expr
    body: Block
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class If(Stmt):
    """A branch. At block scope the condition is uniform over the block's lanes."""

    condition: Expr
    then: Block
    otherwise: Block = ()
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Break(Stmt):
    """Leaves the innermost `For` or `While` (never a `Parallel`)."""

    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Continue(Stmt):
    """Starts the next round of the innermost `For` or `While`."""

    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Let(Stmt):
    """Binds `var` to `value` for the rest of the enclosing block."""

    var: Var
    value: Expr
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Allocate(Stmt):
    """Declares a shared, fragment or local buffer for the rest of the enclosing block.

    Contents are undefined, except that `init` (rank-0 local buffers only) sets a value.
    """

    buffer: Buffer
    init: Expr | None = None
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Alias(Stmt):
    """Declares `buffer` as another view (shape, dtype) of all of `source`'s storage.

    Row-major order of elements is what both views agree on (T.view, T.reshape).
    """

    buffer: Buffer
    source: Buffer
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Store(Stmt):
    """Writes one element; `value` has the buffer's dtype.

    At block scope (outside `Parallel`) every element is written once for the block; indices into
    fragments there need not be constants.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Atomic(Stmt):
    """Read-modify-write of global or shared memory: ``dst = op(dst, value)``.

    `dst` is one element (all axes points) with an `Expr` value, or a tile with a `Region` value
    of the same shape; dtypes may differ, the value is cast to the destination's. Elements outside
    the destination's shape are dropped.

    Attributes:
        op: add, sub, min, max, and, or, xor, exchange, load or store.
        memory_order: relaxed, acquire, release, acq_rel or seq_cst.
        previous: when set (one element only), bound to the old value for the rest of the block.
    """

    op: str
    dst: Region
    value: Expr | Region
    memory_order: str = "relaxed"
    previous: Var | None = None
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Print(Stmt):
    """Prints `message`, then a scalar or a whole buffer, once per block."""

    message: str
    value: Expr | Region | None = None
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Assert(Stmt):
    """Stops the kernel with `message` when the condition is false."""

    condition: Expr
    message: str
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Intrinsic(Stmt):
    """An effect that has no node of its own: barriers, waits, asynchronous operations.

    `op` is a dotted name; core's names are listed in ``ir/README.md``, backends add theirs with
    their own prefix and give them meaning by emit rules.
    """

    op: str
    args: tuple[Expr | Region, ...] = ()
    hints: Hints = ()
    loc: Loc | None = field(default=None, compare=False)


# --- tile level --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parallel(Stmt):
    """An elementwise nest: iterations are independent and run in any order, on all lanes.

    The body may hold Let, Store, Atomic, If, serial For over Let/Store, Allocate of local
    buffers. An iteration that reads or writes an on-chip or global buffer outside its shape is
    guarded: the access is skipped (a read gives the safe value).
    """

    vars: tuple[Var, ...]
    extents: tuple[Expr, ...]
    body: Block
    hints: Hints = ()
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Copy(Stmt):
    """``dst = cast(src)`` elementwise between any two scopes; equal shapes.

    Reads outside the source's buffer give its safe value; writes outside are dropped.
    """

    src: Region
    dst: Region
    hints: Hints = ()
    loc: Loc | None = field(default=None, compare=False)

    @property
    def fills_shared(self) -> bool:
        """True for copies from global to shared memory."""
        return self.src.buffer.scope is Scope.GLOBAL and self.dst.buffer.scope is Scope.SHARED


@dataclass(frozen=True, slots=True)
class Fill(Stmt):
    """Sets every element of `dst` to `value` (of dst's dtype)."""

    dst: Region
    value: Expr
    loc: Loc | None = field(default=None, compare=False)


class WarpPolicy(enum.Enum):
    """How a gemm's output tile is divided among the block's warps."""

    SQUARE = "square"
    FULL_ROW = "full_row"  # all warps along m
    FULL_COL = "full_col"  # all warps along n

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Gemm(Stmt):
    """``c += op(a) @ op(b)``, or ``c = ...`` where `clear_accum` holds.

    Shapes after transposition: a (m, k), b (k, n), c (m, n). `transpose_a` says that a is stored
    (k, m), `transpose_b` that b is stored (n, k). Products and sums are formed in c's dtype (tensor
    cores' own internal precision counts as that).
    """

    a: Region
    b: Region
    c: Region
    transpose_a: bool = False
    transpose_b: bool = False
    clear_accum: Expr = FALSE
    policy: WarpPolicy = WarpPolicy.SQUARE
    hints: Hints = ()
    loc: Loc | None = field(default=None, compare=False)


REDUCE_OPS = ("sum", "max", "min", "abssum", "absmax", "bitand", "bitor", "bitxor", "any", "all")


@dataclass(frozen=True, slots=True)
class Reduce(Stmt):
    """Reduces `src` along `axis` (of its shape) into `dst`.

    dst's shape drops the axis, or keeps it with extent 1. With `clear` the old contents are
    ignored, else they are combined in. ``max``/``min`` skip nans unless `nan_propagate`.
    An empty axis gives the operation's neutral element.
    """

    op: str
    src: Region
    dst: Region
    axis: int
    clear: bool = True
    nan_propagate: bool = False
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Scan(Stmt):
    """Inclusive prefix ``sum`` or ``max`` of `src` along `axis` into `dst` (may be the same)."""

    op: str
    src: Region
    dst: Region
    axis: int
    reverse: bool = False
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class WarpScope(Stmt):
    """Runs `body` on warps ``first <= warp < last`` only (warp specialisation).

    The author's T.ws and the planner's warp roles; `role` names the duty in generated code.
    """

    first: int
    last: int
    body: Block
    role: str = ""
    loc: Loc | None = field(default=None, compare=False)
