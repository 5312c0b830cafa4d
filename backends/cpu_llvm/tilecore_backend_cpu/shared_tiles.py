"""Tiles of read-only operands that several blocks want: packed once per launch, then shared.

Where many blocks copy the same tile of an input into the same kind of buffer before multiplying
with it, the first one writes the packed tile into a workspace that all threads see, and later ones
use it there. A block that finds a tile being packed by another thread packs its own copy, so that
nobody ever waits. The program's meaning does not change: the input is not written in the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilecore.ir.attached import attached_in
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Binary, Cast, Const, Expr, Load, Var, binary, const
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Copy, For, Gemm, Let, Stmt
from tilecore.ir.visit import walk_stmts

from .analysis import depends_on, mentioned_through
from .builder import Value
from .contractions import zero_bytes
from .expressions import index
from .operands import sole_copy
from .packing import emit_copy, source_matrix
from .scheduling import BufferPlan
from .state import BlockState

LEAST_USERS = 12
"""Fewer blocks pack for themselves: their tiles stay in the second-level cache, while a shared one
travels to memory and back."""

_EMPTY, _BUSY, _READY = 0, 1, 2


@dataclass(frozen=True, slots=True)
class SharedTile:
    """One copy statement whose result blocks share.

    `users` is how many blocks want each tile, `counts` are tiles along each axis of the source,
    `extents` the tile's extent there (1 for points), `tile_bytes` the size of one packed tile.
    """

    copy: Copy
    users: Expr
    counts: tuple[Expr, ...]
    extents: tuple[int, ...]
    tile_bytes: int


@dataclass(frozen=True, slots=True)
class TileStore:
    """Where the tiles of one `SharedTile` are while a kernel runs: flags, data, and this block's
    current pointer (a stack slot)."""

    tile: SharedTile
    flags: Value
    tiles: Value
    slot: Value


def find_shared_tiles(kernel: Kernel, plan: BufferPlan) -> list[SharedTile]:
    """The copies of a kernel that are worth sharing and may be."""
    apart = attached_in(kernel.body)  # blocks find other tensors under one name
    stmts = list(walk_stmts(kernel.body))
    definitions: dict[str, Expr] = {s.var.name: s.value for s in stmts if isinstance(s, Let)}
    loops = {s.var.name: s for s in stmts if isinstance(s, For)}
    operands = {r.buffer.name for s in plan.steps.values() for r in (s.gemm.a, s.gemm.b)}
    found = []
    for stmt in stmts:
        if (
            isinstance(stmt, Copy)
            and stmt.dst.buffer.name not in operands
            and stmt.src.buffer.name not in apart
            and stmt.dst.buffer.name not in plan.borrowed
            and _may_share(stmt, stmts)
        ):
            starts = stmt.src.starts
            if not all(_is_plain(start, definitions) for start in starts):
                continue
            users = _users(starts, kernel, definitions)
            if isinstance(users, Const) and users.value < LEAST_USERS:
                continue
            tile = _describe(stmt, users, plan, definitions, loops)
            if tile is not None:
                found.append(tile)
    return found


def _may_share(copy: Copy, stmts: list[Stmt]) -> bool:
    """A whole operand of a multiplication, written only here, from an input only read here."""
    buffer = copy.dst.buffer
    is_operand = any(isinstance(s, Gemm) and buffer in (s.a.buffer, s.b.buffer) for s in stmts)
    return is_operand and sole_copy(buffer, stmts) is copy


def _is_plain(expr: Expr, definitions: Mapping[str, Expr]) -> bool:
    """Made of grid indices, loop counters and sizes only."""
    return not any(isinstance(node, Load) for node in mentioned_through(expr, definitions))


def _users(
    starts: tuple[Expr, ...],
    kernel: Kernel,
    definitions: Mapping[str, Expr],
) -> Expr:
    """How many blocks copy one and the same tile: they differ in the other grid indices only."""
    total: Expr = const(1)
    for var, extent in zip(kernel.grid_vars, kernel.grid, strict=True):
        if not any(depends_on(start, var.name, definitions) for start in starts):
            total = binary("mul", total, Cast(extent, int32) if extent.dtype != int32 else extent)  # type: ignore[attr-defined]
    return total


def _describe(
    copy: Copy,
    users: Expr,
    plan: BufferPlan,
    definitions: Mapping[str, Expr],
    loops: Mapping[str, For],
) -> SharedTile | None:
    extents, counts = [], []
    for start, extent, size in zip(
        copy.src.starts, copy.src.extents, copy.src.buffer.shape, strict=True
    ):
        width = 1 if extent is None else int(extent.value)  # type: ignore[attr-defined]
        if width == 0 or not _is_multiple(start, width, definitions, loops):
            return None
        dtype = size.dtype  # type: ignore[attr-defined]
        rounded = binary("add", size, const(width - 1, dtype))
        extents.append(width)
        counts.append(binary("floordiv", rounded, const(width, dtype)))
    layout = plan.layouts[copy.dst.buffer.name]
    tile_bytes = -(-layout.span * copy.dst.dtype.bytes // 64) * 64 + 64
    return SharedTile(copy, users, tuple(counts), tuple(extents), tile_bytes)


def _is_multiple(
    expr: Expr, width: int, definitions: Mapping[str, Expr], loops: Mapping[str, For]
) -> bool:
    """Whether an expression is always a multiple of `width`."""
    if width == 1:
        return True
    match expr:
        case Const(value=value):
            return int(value) % width == 0
        case Var(name=name, multiple_of=multiple):
            if name in definitions:
                return _is_multiple(definitions[name], width, definitions, loops)
            if name in loops:
                loop = loops[name]
                return all(
                    _is_multiple(e, width, definitions, loops) for e in (loop.start, loop.step)
                )
            return multiple % width == 0
        case Binary(op="add" | "sub", a=a, b=b):
            return all(_is_multiple(e, width, definitions, loops) for e in (a, b))
        case Binary(op="mul", a=a, b=b):
            return any(_is_multiple(e, width, definitions, loops) for e in (a, b))
        case _:
            return False


def emit_shared_copy(s: BlockState, store: TileStore) -> None:
    """The copy statement: use the shared tile, or make it, or make a private one."""
    w = s.w
    copy, name = store.tile.copy, store.tile.copy.dst.buffer.name
    own = s.storage[name].pointer
    label = w.fresh("tile")
    number, is_inside = _tile_number(s, store.tile)
    is_shared = w.binary("and", is_inside, w.icmp("ne", store.flags, Value("ptr", "null")))
    target = w.alloca("ptr", 1, 8)
    owner = w.alloca("i1", 1, 8)
    w.store(own, target)
    w.store(w.const(False, "i1"), owner, 1)
    flag = w.offset(store.flags, "i64", number)
    data = w.offset_bytes(store.tiles, w.mul(number, w.i64(store.tile.tile_bytes)))
    w.terminate(f"br {is_shared}, label %{label}.look, label %{label}.pack")
    w.begin_block(f"{label}.look")
    seen = w.emit("i64", f"load atomic i64, {flag} acquire, align 8")
    w.store(data, store.slot)
    w.terminate(f"br {w.icmp('eq', seen, w.i64(_READY))}, label %{label}.end, label %{label}.claim")
    w.begin_block(f"{label}.claim")
    pair = w.emit(
        "{ i64, i1 }", f"cmpxchg {flag}, i64 {_EMPTY}, i64 {_BUSY} acquire monotonic, align 8"
    )
    is_owner = w.emit("i1", f"extractvalue {pair}, 1")
    w.store(w.select(is_owner, data, own), target)
    w.store(is_owner, owner, 1)
    w.begin_block(f"{label}.pack")
    place = w.load(target, "ptr")
    _pack(s, copy, place)
    w.store(place, store.slot)
    w.terminate(f"br {w.load(owner, 'i1', 1)}, label %{label}.publish, label %{label}.end")
    w.begin_block(f"{label}.publish")
    w.line(f"store atomic i64 {_READY}, {flag} release, align 8")
    w.begin_block(f"{label}.end")


def emit_borrow(s: BlockState, copy: Copy) -> None:
    """A borrowed operand: point into the input, or copy where it reaches over an edge."""
    w = s.w
    name = copy.dst.buffer.name
    slot = s.pointer_slots[name]
    matrix = source_matrix(s, copy.src)
    own = s.storage[name].pointer
    if matrix is None:
        _pack(s, copy, own)
        w.store(own, slot)
        return
    whole = w.const(True, "i1")
    for inside, size in (
        (matrix.rows_inside, matrix.rows),
        (matrix.columns_inside, matrix.columns),
    ):
        if inside is not None:
            whole = w.binary("and", whole, w.icmp("eq", inside, w.i64(size)))
    w.store(matrix.pointer, slot)
    if whole.ref == "true":
        return
    with w.when(w.binary("xor", whole, w.const(True, "i1"))):
        _pack(s, copy, own)
        w.store(own, slot)


def _pack(s: BlockState, copy: Copy, place: Value) -> None:
    """The copy into `place`, which for the time being is where the buffer lives."""
    name = copy.dst.buffer.name
    before, slots = s.storage[name], s.pointer_slots
    s.pointer_slots = {key: slot for key, slot in slots.items() if key != name}
    s.storage[name] = replace(before, pointer=place)
    if name in s.zeroed:
        assert before.layout is not None
        zero_bytes(s, place, before.layout.span * copy.dst.dtype.bytes)
    emit_copy(s, copy.src, copy.dst)
    s.storage[name], s.pointer_slots = before, slots


def _tile_number(s: BlockState, tile: SharedTile) -> tuple[Value, Value]:
    """Which tile the copy's source is, and whether it is one (starts may lie past the end)."""
    w = s.w
    number, is_inside = w.i64(0), w.const(True, "i1")
    for start, extent, count in zip(tile.copy.src.starts, tile.extents, tile.counts, strict=True):
        digit = w.binary("udiv", index(s, start), w.i64(extent))
        limit = index(s, count)
        is_inside = w.binary("and", is_inside, w.icmp("ult", digit, limit))
        number = w.add(w.mul(number, limit), digit)
    return number, is_inside
