"""Loops that multiply, weigh rows and multiply again: both products run under the weighing.

    for step:                                first product of step 0
        first:  S = Q K(step)          =>    for step:
        rows:   W = f(S), row by row             rows of W, a few at a time; between them a block of
        second: O += W V(step)                   O += W V of the step before, or S = Q K of the next
                                             second product of the last step

Tile instructions run beside vector instructions: a block's are issued in front of a few rows and
are done when the rows are. And the tile unit never rests: after some 0.3 microseconds without work
it takes about as long to wake (measured). S and W exist twice, K and V once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import Const
from tilecore.ir.stmts import Block, Break, Continue, Copy, For, Gemm, Let, Stmt
from tilecore.ir.visit import destinations, walk_stmts

from .builder import Value
from .contractions import is_in_place, operands_in_place
from .expressions import index
from .fusion import FusedNest
from .gemm_kernels import emit_tile_block
from .readers import mentions, unread_stores
from .register_blocks import Sums
from .row_nests import emit_fused
from .scheduling import gemm_plan, is_whole_matrix
from .state import BlockState, Round
from .tile_blocks import TileRows

BLOCK = 32
"""Rows and columns of a block of products."""

EmitStatement = Callable[[BlockState, Stmt], None]


@dataclass(frozen=True, slots=True)
class Chain:
    """A loop's statements, by their part.

    `lets` and the copies of K and V come first, then the first product, what follows it up to the
    nest that writes the weights, the nest, the rest, and last the second product.
    """

    loop: For
    stmts: tuple[Stmt, ...]
    lets: tuple[Let, ...]
    key_copy: Copy
    value_copy: Copy
    first: Gemm
    second: Gemm
    nest: FusedNest

    @property
    def scores(self) -> Buffer:
        """S."""
        return self.first.c.buffer

    @property
    def weights(self) -> Buffer:
        """W."""
        return self.second.a.buffer

    @property
    def rows_per_block(self) -> int:
        """Rows that are weighed between two blocks; 0 if there are more blocks than rows."""
        rows, blocks = _rows(self.first), blocks_of(self.first) + blocks_of(self.second)
        return next((n for n in (16, 8, 4, 2, 1) if rows // n >= blocks), 0)


def _rows(gemm: Gemm) -> int:
    shape = gemm.c.static_shape
    return 0 if shape is None else shape[0]


def blocks_of(gemm: Gemm) -> int:
    """Blocks of a product whose sizes are multiples of `BLOCK`."""
    shape = gemm.c.static_shape
    assert shape is not None
    return shape[0] // BLOCK * (shape[1] // BLOCK)


def find_chain(s: BlockState, loop: For) -> Chain | None:
    """The parts of a loop of this kind; None for any other loop."""
    gemms = [stmt for stmt in walk_stmts(loop.body) if isinstance(stmt, Gemm)]
    if len(gemms) != 2 or s.fuser is None or not _are_tiles(s, gemms):
        return None
    first, second = gemms
    stmts = s.fuser.fuse(loop.body)
    if first not in stmts or stmts[-1] is not second:
        return None
    at = stmts.index(first)
    copies = {stmt.dst.buffer.name: stmt for stmt in stmts[:at] if isinstance(stmt, Copy)}
    lets = tuple(stmt for stmt in stmts[:at] if isinstance(stmt, Let))
    keys, values = (copies.get(gemm.b.buffer.name) for gemm in gemms)
    nests = [stmt for stmt in stmts[at:] if _writes(stmt, second.a.buffer)]
    if keys is None or values is None or len(copies) + len(lets) != at or len(nests) != 1:
        return None
    if not isinstance(nests[0], FusedNest):
        return None
    chain = Chain(loop, tuple(stmts), lets, keys, values, first, second, nests[0])
    return chain if _may_turn(s, chain) and chain.rows_per_block else None


def _are_tiles(s: BlockState, gemms: Sequence[Gemm]) -> bool:
    """Whether both are tile products of whole blocks, cleared first and added to in the end."""
    clears = [gemm.clear_accum for gemm in gemms]
    if not all(isinstance(clear, Const) for clear in clears):
        return False
    shapes = [gemm.c.static_shape for gemm in gemms]
    return (
        [bool(clear.value) for clear in clears if isinstance(clear, Const)] == [True, False]
        and all(gemm_plan(gemm, s.cpu).kind == "tile" for gemm in gemms)
        and all(x is not None and len(x) == 2 and x[0] and x[1] for x in shapes)
        and all(extent % BLOCK == 0 for shape in shapes for extent in shape or ())
        and is_whole_matrix(gemms[0].c)
        and is_whole_matrix(gemms[1].a)
    )


def _writes(stmt: Stmt, buffer: Buffer) -> bool:
    body: Block = (*stmt.nest.body,) if isinstance(stmt, FusedNest) else (stmt,)
    return any(buffer in destinations(inner) for inner in walk_stmts(body))


def _may_turn(s: BlockState, chain: Chain) -> bool:
    """Whether products may leave their step: nobody else touches what they read and write."""
    first, second, body = chain.first, chain.second, chain.loop.body
    counts = mentions(body)
    operands = (first.b.buffer.name, second.b.buffer.name)
    owned = (*operands, chain.scores.name, chain.weights.name)
    are_own = all(counts[name] == s.mentions[name] for name in owned) and len(set(owned)) == 4
    are_copied_once = all(counts[name] == 2 for name in operands)
    written = {buffer.name for stmt in walk_stmts(body) for buffer in destinations(stmt)}
    sources = {chain.key_copy.src.buffer.name, chain.value_copy.src.buffer.name}
    have_one_name = all(
        s.mentions[name] for name in (*sources, first.a.buffer.name, second.c.buffer.name)
    )
    until = chain.stmts[: chain.stmts.index(chain.nest) + 1]
    is_result_free = second.c.buffer.name not in mentions(until)
    rows = chain.nest.nest.extents[0]
    return (
        are_own
        and have_one_name
        and are_copied_once
        and not written & {first.a.buffer.name, *sources}
        and is_result_free
        and isinstance(rows, Const)
        and rows.value == _rows(first) == _rows(second)
        and not any(isinstance(stmt, Break | Continue) for stmt in walk_stmts(body))
        and not any(name in s.pointer_slots or name in s.zeroed for name in owned[2:])
        and chain.scores.scope in (Scope.SHARED, Scope.FRAGMENT)
        and all(is_in_place(s, gemm) for gemm in (first, second))
    )


class ChainEmitter:
    """Writes one such loop."""

    def __init__(self, s: BlockState, chain: Chain, emit: EmitStatement) -> None:
        self.s, self.chain, self.emit_statement = s, chain, emit

    def emit(self) -> None:
        """The loop, with a first product before it and a second one after it."""
        s, w, chain = self.s, self.s.w, self.chain
        top = s.arena.top
        start, extent, step = (
            index(s, e) for e in (chain.loop.start, chain.loop.extent, chain.loop.step)
        )
        scores, weights = self._twins(chain.scores), self._twins(chain.weights)
        has_steps = w.icmp("slt", w.i64(0), extent)
        with w.when(has_steps):
            self._bind(start)
            self.emit_statement(s, chain.key_copy)
            self.emit_statement(s, chain.first)
        with w.loop(w.i64(0), extent) as loop:
            s.stops.append((loop.latch, loop.done))
            s.rounds.append(Round(chain.loop.var.name, step, loop.index, extent))
            following = w.add(loop.index, w.i64(1))
            has_next = w.icmp("slt", following, extent)
            with w.when(has_next):
                self._bind(w.add(start, w.mul(following, step)))
                self.emit_statement(s, chain.key_copy)
            self._bind(w.add(start, w.mul(loop.index, step)))
            is_later = w.icmp("sgt", loop.index, w.i64(0))
            self._step(is_later, has_next, scores[1], weights[1])
            for now, other in (scores, weights):
                one, two = w.load(now, "ptr"), w.load(other, "ptr")
                w.store(two, now)
                w.store(one, other)
            s.stops.pop()
            s.rounds.pop()
        with w.when(has_steps):
            s.pointer_slots[chain.weights.name] = weights[1]
            self.emit_statement(s, chain.second)
        for buffer in (chain.scores, chain.weights):
            del s.pointer_slots[buffer.name]
        s.arena.top = top

    def _twins(self, buffer: Buffer) -> tuple[Value, Value]:
        """Slots with the addresses of a buffer and of its twin; the buffer lives in the first."""
        s, w = self.s, self.s.w
        storage = s.storage[buffer.name]
        assert storage.layout is not None
        twin = s.scratch(storage.layout.span * buffer.dtype.bytes + s.cpu.vector_bits // 8)
        slots = (w.alloca("ptr", 1, 8), w.alloca("ptr", 1, 8))
        w.store(storage.pointer, slots[0])
        w.store(twin, slots[1])
        s.pointer_slots[buffer.name] = slots[0]
        return slots

    def _bind(self, step: Value) -> None:
        """The loop's variable, and what the step derives from it."""
        self.s.wide[self.chain.loop.var.name] = step
        for let in self.chain.lets:
            self.emit_statement(self.s, let)

    def _step(self, is_later: Value, has_next: Value, scores: Value, weights: Value) -> None:
        s, chain = self.s, self.chain

        def products(row: Value) -> None:
            self._products(row, is_later, has_next, scores, weights)

        stmts = zip(chain.stmts, unread_stores(chain.stmts, s.mentions), strict=True)
        for stmt, unread in list(stmts)[chain.stmts.index(chain.first) + 1 : -1]:
            if stmt is chain.nest:
                emit_fused(s, chain.nest, unread, (products, chain.rows_per_block))
                self.emit_statement(s, chain.value_copy)
            elif isinstance(stmt, FusedNest):
                emit_fused(s, stmt, unread)
            else:
                self.emit_statement(s, stmt)

    def _products(
        self, row: Value, is_later: Value, has_next: Value, scores: Value, weights: Value
    ) -> None:
        """In front of row `row`: a block of the step before, or of the next one."""
        s, w, chain = self.s, self.s.w, self.chain
        number = w.binary("udiv", row, w.i64(chain.rows_per_block))
        seconds, firsts = blocks_of(chain.second), blocks_of(chain.first)
        is_second = w.binary("and", is_later, w.icmp("slt", number, w.i64(seconds)))
        with w.when(is_second):
            self._block(chain.second, number, chain.weights, weights)
        rest = w.sub(number, w.i64(seconds))
        is_first = w.binary("and", has_next, w.icmp("ult", rest, w.i64(firsts)))
        with w.when(is_first):
            self._block(chain.first, rest, chain.scores, scores)
        s.axis = None

    def _block(self, gemm: Gemm, number: Value, buffer: Buffer, twin: Value) -> None:
        """Block `number` of a product, one of whose buffers is the twin."""
        s, w = self.s, self.s.w
        slot = s.pointer_slots[buffer.name]
        s.pointer_slots[buffer.name] = twin
        (a, b, c), shape = operands_in_place(s, gemm)
        s.pointer_slots[buffer.name] = slot
        plan = gemm_plan(gemm, s.cpu)
        down = w.i64(shape.m // BLOCK)
        m, n = w.binary("urem", number, down), w.binary("udiv", number, down)
        k_tiles = -(-shape.k // plan.k_block)
        a_pitch, panel = shape.a_pitch * shape.a_dtype.bytes, k_tiles * plan.k_block * BLOCK
        a = w.offset_bytes(a, w.mul(m, w.i64(BLOCK * a_pitch)))
        b = w.offset_bytes(b, w.mul(n, w.i64(panel * shape.b_dtype.bytes)))
        c = w.offset_bytes(c, w.mul(m, w.i64(BLOCK * shape.c_pitch * 4)))
        c = w.offset_bytes(c, w.mul(n, w.i64(BLOCK * 4)))
        rows = TileRows.in_rows(a_pitch)
        is_clear = gemm is self.chain.first
        sums = Sums(c, c, is_clear)
        emit_tile_block(w, shape, (2, 2, k_tiles), (a, b, rows), w.i64(k_tiles), sums)
