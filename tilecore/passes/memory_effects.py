"""What each statement reads and writes in memory that other lanes see, as boxes.

A box is a buffer with, per axis, a symbolic start and a length. Two boxes are disjoint when on
some axis the starts differ by a known amount that is at least the length, or when both select
different slots of a multi-buffered axis (``k % S`` and ``(k + 1) % S``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Binary, Const, Expr, Var, dtype_of_expr, substitute, walk
from tilecore.ir.knowledge import LARGEST_SIZE
from tilecore.ir.lane_dependence import depends_on_lane
from tilecore.ir.linear import Linear
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import Atomic, Gemm, Intrinsic, Parallel, Reduce, Scan, Stmt, Store
from tilecore.ir.visit import exprs_of
from tilecore.passes.accesses import accesses_of
from tilecore.passes.elementwise import as_parallel
from tilecore.passes.scopes import loads_in

READ, WRITE, ATOMIC = "read", "write", "atomic"
IN_ORDER = "in order"
"""`Effect.op` of atomics that commute with none: they tell what was, or leave what they bring."""
ORDERS = "orders"
"""Hint of a ``barrier.wait``: all that its warps wrote before is seen by those that wait next."""
FREES = "frees"
"""Hint of a ``barrier.wait``: name of a buffer; what any lane did there before, it did before that
barrier's last phase ended."""
SEEN_BY_OTHERS = (Scope.GLOBAL, Scope.SHARED)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangular set of elements.

    Attributes:
        buffer: where.
        axes: per axis (start, length); a length of None is everything.
    """

    buffer: Buffer
    axes: tuple[tuple[Expr, int | None], ...]

    def replaced(self, mapping: dict[Var, Expr]) -> Box:
        """The box in terms of other variables."""
        return Box(self.buffer, tuple((substitute(s, mapping), n) for s, n in self.axes))

    def is_disjoint(self, other: Box, ranges: Ranges) -> bool:
        """True when the boxes provably share no element (of one buffer)."""
        return any(
            _axis_disjoint(start_a, length_a, start_b, length_b, ranges)
            for (start_a, length_a), (start_b, length_b) in zip(self.axes, other.axes, strict=True)
            if length_a is not None and length_b is not None
        )

    def holds(self, other: Box, ranges: Ranges) -> bool:
        """True when every element of the other box (of one buffer) is provably in this one."""
        return all(
            _axis_holds(start_a, length_a, start_b, length_b, ranges)
            or (start_a == Const(0, dtype_of_expr(start_a)) and extent == length_a)
            for (start_a, length_a), (start_b, length_b), extent in zip(
                self.axes, other.axes, map(ranges.size, self.buffer.shape), strict=True
            )
        )


def _axis_disjoint(
    start_a: Expr, length_a: int, start_b: Expr, length_b: int, ranges: Ranges
) -> bool:
    gap = _gap(start_a, start_b)
    if not gap.terms:
        return gap.constant >= length_a or -gap.constant >= length_b
    if length_a == length_b == 1:
        slots_a, slots_b = _slot(start_a), _slot(start_b)
        if slots_a is not None and slots_b is not None and slots_a[1] == slots_b[1]:
            step = _gap(slots_b[0], slots_a[0])
            return not step.terms and step.constant % slots_a[1] != 0
    low, high = ranges.interval_of(gap)
    wraps_at = 1 << dtype_of_expr(start_a).bits
    return (low >= length_a and high <= wraps_at - length_b) or (
        -high >= length_b and -low <= wraps_at - length_a
    )


def _axis_holds(
    start_a: Expr, length_a: int | None, start_b: Expr, length_b: int | None, ranges: Ranges
) -> bool:
    if length_a is None or length_b is None:
        return False
    gap = _gap(start_a, start_b)
    low, high = ranges.interval_of(gap) if gap.terms else (gap.constant, gap.constant)
    return low >= 0 and high + length_b <= length_a


def _gap(a: Expr, b: Expr) -> Linear:
    """``b - a``, in arithmetic that wraps as theirs does."""
    return Ranges().regrouped(b).plus(Ranges().regrouped(a), -1)


def _slot(expr: Expr) -> tuple[Expr, int] | None:
    match expr:
        case Binary(op="floormod", a=a, b=Const(value=value)):
            return a, int(value)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Effect:
    """One memory access of the whole block.

    `kind` is read, write or atomic; `is_async` marks a write that lands only at a later wait; `op`
    is what an atomic does, where the order of different ones shows (a sum before a maximum is none
    after it), `IN_ORDER` where that of equal ones shows, too, and "" where others see to the order.
    """

    kind: str
    box: Box
    is_async: bool = False
    op: str = ""

    def commutes(self, other: Effect) -> bool:
        """True when both are atomics that leave and tell the same in either order."""
        if self.kind != ATOMIC or other.kind != ATOMIC:
            return False
        if not self.op or not other.op:
            return True
        return self.op == other.op != IN_ORDER


@dataclass(frozen=True, slots=True)
class InnerBarrier:
    """A statement's own barrier between its phases."""


@dataclass(frozen=True, slots=True)
class Freed:
    """No access to the buffer of that name is under way any more."""

    buffer: str


@dataclass(frozen=True, slots=True)
class Phase:
    """All warps meet, half of them one phase ahead: a barrier for what lies two of them apart."""


@dataclass(frozen=True, slots=True)
class OtherBlock:
    """What follows is another block of the author's grid, though the same lanes run it."""


@dataclass(frozen=True, slots=True)
class AsyncCommit:
    """The current group of asynchronous writes is closed."""


@dataclass(frozen=True, slots=True)
class AsyncWait:
    """All but the `newest` groups of asynchronous writes of this lane have landed."""

    newest: int


@dataclass(frozen=True, slots=True)
class AgentReads:
    """What a started contraction reads by itself, until it has been waited for."""

    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class AgentWait:
    """All but the `newest` contractions that this lane started have read their operands."""

    newest: int


Step = (
    Effect
    | InnerBarrier
    | Freed
    | Phase
    | OtherBlock
    | AsyncCommit
    | AsyncWait
    | AgentReads
    | AgentWait
)

NEXT_BLOCK = "launch.next_block"
"""Operation at the beginning of a tile, of blocks that stay: `OtherBlock`."""


def box_of(region: Region, ranges: Ranges) -> Box:
    """The box of a region."""
    axes: list[tuple[Expr, int | None]] = []
    for start, extent in zip(region.starts, region.extents, strict=True):
        length = 1 if extent is None else ranges.size(extent)
        axes.append((start, length))
    return Box(region.buffer, tuple(axes))


def _nest_box(
    buffer: Buffer, indices: tuple[Expr, ...], local: Collection[str], ranges: Ranges
) -> Box:
    """The box that an access covers over all iterations of a nest with variables `local`.

    The lane's index, where the author wrote it, is such a variable too.
    """
    axes: list[tuple[Expr, int | None]] = []
    for index in indices:
        form = ranges.regrouped(index)  # slots of a ring stay recognisable
        outer, inner = [], []
        for term, coefficient in form.terms:
            is_inner = depends_on_lane(term, local)
            (inner if is_inner else outer).append((term, coefficient))
        low, high = ranges.interval_of(Linear(tuple(inner), 0))
        is_known = high - low < LARGEST_SIZE and not any(loads_in(term) for term, _ in inner)
        if inner and not (is_known and _never_wraps(index, ranges)):
            axes.append((index, None))
        else:
            start = Linear(tuple(outer), form.constant + low).expr(dtype_of_expr(index))
            axes.append((start, high - low + 1))
    return Box(buffer, tuple(axes))


def _never_wraps(index: Expr, ranges: Ranges) -> bool:
    return ranges.is_index(index) or all(
        ranges.wraps_never(node)
        for node in walk(index)
        if isinstance(node, Binary) and node.op in ("add", "sub", "mul")
    )


def steps_of(stmt: Stmt, ranges: Ranges, lanes: Collection[str] = ()) -> Iterator[Step]:
    """What one statement (without its nested blocks) does to memory, in order.

    `lanes` are names that differ between lanes: what is accessed by them is taken over all lanes.
    """
    match stmt:
        case Gemm(a=a, b=b, c=c):
            yield from _expr_reads(stmt, ranges)
            yield from _region_effects((a, b), READ, ranges)
            yield from _region_effects((c,), WRITE, ranges)
            if dict(stmt.hints).get("asynchronous"):
                yield AgentReads(tuple(_region_effects((a, b), READ, ranges)))
        case Reduce(src=src, dst=dst):
            yield from _region_effects((src,), READ, ranges)
            yield from _region_effects((dst,), WRITE, ranges)
        case Scan(src=src, dst=dst):
            yield from _region_effects((src,), READ, ranges)
            yield from _region_effects((dst,), WRITE, ranges)
        case Intrinsic(op=op, args=args):
            yield from _intrinsic(op, args, stmt, ranges)
        case _ if (nest := as_parallel(stmt)) is not None:
            yield from _nest_effects(nest, ranges)
        case Store(buffer=buffer, indices=indices):
            yield from _expr_reads(stmt, ranges, lanes)
            if buffer.scope in SEEN_BY_OTHERS:
                yield Effect(WRITE, _nest_box(buffer, indices, lanes, ranges))
        case Atomic(dst=dst):
            yield from _expr_reads(stmt, ranges, lanes)
            if dst.buffer.scope in SEEN_BY_OTHERS:
                place = _nest_box(dst.buffer, dst.starts, lanes, ranges)
                yield Effect(ATOMIC, place, op=_ordered(stmt))
        case _:
            yield from _expr_reads(stmt, ranges, lanes)


def _expr_reads(stmt: Stmt, ranges: Ranges, lanes: Collection[str] = ()) -> Iterator[Effect]:
    for expr in exprs_of(stmt):
        for load in loads_in(expr):
            if load.buffer.scope in SEEN_BY_OTHERS:
                yield Effect(READ, _nest_box(load.buffer, load.indices, lanes, ranges))


def _region_effects(regions: tuple[Region, ...], kind: str, ranges: Ranges) -> Iterator[Effect]:
    for region in regions:
        if region.buffer.scope in SEEN_BY_OTHERS:
            yield Effect(kind, box_of(region, ranges))


def _nest_effects(nest: Parallel, ranges: Ranges) -> Iterator[Effect]:
    for var, extent in zip(nest.vars, nest.extents, strict=True):
        ranges = ranges.with_index(var, extent)
    local = {var.name for var in nest.vars}
    reads: list[Effect] = []
    writes: list[Effect] = []
    for access in accesses_of(nest):
        if access.buffer.scope not in SEEN_BY_OTHERS:
            continue
        inside = ranges
        names = set(local)
        for var, start, extent in access.inner:
            inside = inside.with_loop(var, start, extent, _ONE)
            names.add(var.name)
        box = _nest_box(access.buffer, access.indices, names, inside)
        if not access.is_write:
            reads.append(Effect(READ, box))
        else:
            op = _atomic_op(nest, access.buffer)
            writes.append(Effect(WRITE if op is None else ATOMIC, box, op=op or ""))
    yield from reads
    yield from writes


_ONE = Const(1, Var("_").dtype)


def _ordered(stmt: Atomic) -> str:
    """How an atomic counts among others: sums and differences alike, loads among themselves.

    Of two whose old value is wanted the second tells what the first left, and of two that store
    the second one's value stays.
    """
    if stmt.op in ("exchange", "store") or (stmt.previous is not None and stmt.op != "load"):
        return IN_ORDER
    return "add" if stmt.op == "sub" else stmt.op


def _atomic_op(nest: Parallel, buffer: Buffer) -> str | None:
    """What a nest's atomics do to a buffer; None where it stores there, or has none."""
    from tilecore.ir.visit import walk_stmts

    inside = list(walk_stmts(nest.body))
    if any(isinstance(s, Store) and s.buffer == buffer for s in inside):
        return None
    ops = {_ordered(s) for s in inside if isinstance(s, Atomic) and s.dst.buffer == buffer}
    if not ops:
        return None
    return ops.pop() if len(ops) == 1 else IN_ORDER


_NO_EFFECTS = ("async.", "bulk.", "contraction.", "registers.", "memory.", "schedule.", "warp.")


def _intrinsic(
    op: str, args: tuple[Expr | Region, ...], stmt: Stmt, ranges: Ranges
) -> Iterator[Step]:
    yield from _expr_reads(stmt, ranges)
    regions = tuple(arg for arg in args if isinstance(arg, Region))
    if op == "async.copy":
        yield from _region_effects(regions[:1], READ, ranges)
        yield Effect(WRITE, box_of(regions[1], ranges), is_async=True)
    elif op == "async.wait":
        yield AsyncWait(int(args[0].value) if isinstance(args[0], Const) else 0)
    elif op == "async.commit":
        yield AsyncCommit()
    elif op == "contraction.wait":
        yield AgentWait(int(args[0].value) if isinstance(args[0], Const) else 0)
    elif op in ("sync_block", "cluster.sync", "stagger.begin", "stagger.end"):
        yield InnerBarrier()
    elif op == "stagger.phase":
        yield Phase()
    elif op == NEXT_BLOCK:
        yield OtherBlock()
    elif op in ("tile.reduce", "fragment.sum_lanes") and len(regions) > 2:  # with scratch
        yield from _region_effects(regions[2:], WRITE, ranges)
        yield InnerBarrier()
        yield from _region_effects(regions[2:], READ, ranges)
    elif op in ("bulk.load", "bulk.load_windows"):
        # Transaction barriers, not this analysis, order what lands.
        yield from _region_effects(regions[:1], READ, ranges)
    elif op == "bulk.store_fragment":
        # It orders the uses of its staging buffer itself; nothing else touches the destination.
        yield from _region_effects(regions[2:], ATOMIC, ranges)
    elif op == "bulk.store_held":
        yield from _region_effects(regions[3:], ATOMIC, ranges)
    elif op == "launch.take":  # transaction barriers order who reads it
        return
    elif op == "barrier.wait" and dict(stmt.hints).get(ORDERS):  # type: ignore[attr-defined]
        yield InnerBarrier()
    elif op == "barrier.wait" and (freed := dict(stmt.hints).get(FREES)):  # type: ignore[attr-defined]
        yield from _region_effects(regions, ATOMIC, ranges)
        yield Freed(str(freed))
    elif op == "barrier.init":
        yield from _region_effects(regions, WRITE, ranges)
    elif op.startswith("barrier."):
        yield from _region_effects(regions, ATOMIC, ranges)
    elif not op.startswith(_NO_EFFECTS):
        yield from _region_effects(regions, WRITE, ranges)
