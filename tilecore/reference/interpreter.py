"""Statements executed for one block, over a domain of lanes or iterations at once.

At block scope the domain is one point. A `Parallel` runs its body once, over the whole grid of
its iterations. A kernel that asks for its lane index (`block.thread`) runs over all lanes in
lockstep: with correct barriers that is one of the orders that the program allows. Branches and
loops over a domain run under masks, and give back the mask of those that reached the end.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TextIO

import numpy as np

from tilecore.errors import (
    DeviceAssertError,
    EmulatorFault,
    LanguageError,
    Loc,
    TilecoreError,
    UnsupportedError,
)
from tilecore.ir import stmts as S
from tilecore.ir.attached import ATTACH
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Expr, Var, dtype_of_expr
from tilecore.ir.lane_dependence import WARP
from tilecore.ir.visit import walk_stmts
from tilecore.ir.waiting import refuse_waits_out_of_order
from tilecore.ir.windows import WINDOWS, nest
from tilecore.reference.evaluate import LANE, Frame, evaluate, refuse_outside
from tilecore.reference.host_memory import array_at
from tilecore.reference.lanes import is_uniform, lane_frame, uses_lanes
from tilecore.reference.reductions import run_reduce, run_scan
from tilecore.reference.storage import Storage, alias_storage, make_storage
from tilecore.reference.tile_ops import (
    ACTIVE,
    load_region,
    run_copy,
    run_fill,
    run_gemm,
    run_tile_atomic,
    scalar,
    updated,
)
from tilecore.reference.values import Array, cast, encode, value_dtype

ORDERING = frozenset({
    "sync_warp", "barrier.init", "barrier.arrive", "barrier.arrive_expect", "barrier.expect",
    "barrier.wait", "async.commit", "async.wait", "named_barrier.sync", "named_barrier.arrive",
    "stagger.begin", "stagger.phase", "stagger.end", "schedule.in_order", "warp.priority",
})  # fmt: skip
"""What keeps lanes and asynchronous copies in step: nothing to do where both run in order."""
_ROW, _COLUMN = Var("window_row"), Var("window_column")


@dataclass(slots=True)
class Interpreter:
    """Runs the body of one block.

    Attributes:
        frame: the block's variables and buffers; global buffers are in it already.
        threads: lanes of the block.
        is_exact: round floats to their dtype at every operation and store.
        tracks_writes: fault on reads of on-chip elements that were never written.
        raw: names of buffers that must keep their bits since a view of another dtype reads them.
        output: where `Print` writes.
        place: the block's index in words, for messages.
    """

    frame: Frame
    threads: int
    is_exact: bool = False
    tracks_writes: bool = False
    raw: frozenset[str] = frozenset()
    output: TextIO = field(default_factory=lambda: sys.stdout)
    place: str = ""
    broken: Array = field(default_factory=lambda: np.asarray(False))
    attached: dict[str, tuple[Storage, Array]] = field(default_factory=dict)

    def run(self, body: S.Block) -> None:
        """Execute a block's statements.

        Raises:
            EmulatorFault: the program does something undefined.
            DeviceAssertError: an assertion of the program failed.
            UnsupportedError: warps wait for what comes later in the program.
        """
        refuse_waits_out_of_order(body)
        mask = ACTIVE
        if uses_lanes(body):
            self.frame.domain = (self.threads,)
            self.frame.values[LANE] = np.arange(self.threads, dtype=np.int32)
            mask = np.ones(self.threads, bool)
        self.block(body, mask)
        for name in list(self.attached):
            self.detach(name)

    def block(self, block: S.Block, mask: Array) -> Array:
        """Execute statements for the active iterations; those that reached the end come back."""
        for stmt in block:
            if not mask.any():
                break
            mask = self.statement(stmt, mask)
        return mask

    def statement(self, stmt: S.Stmt, mask: Array) -> Array:
        """Execute one statement; errors get its line and the block's index."""
        try:
            return self._statement(stmt, mask)
        except TilecoreError as error:
            loc: Loc | None = getattr(stmt, "loc", None)
            if error.loc is None and loc is not None:
                error.loc = loc
            if self.place and self.place not in error.reason:
                error.reason += f", in {self.place}"
            raise

    def _statement(self, stmt: S.Stmt, mask: Array) -> Array:
        match stmt:
            case S.Let(var=var, value=value):
                self.frame.values[var.name] = evaluate(value, self.frame, mask)
            case S.Store():
                self._store(stmt, mask)
            case S.If():
                return self._if(stmt, mask)
            case S.For():
                return self._for(stmt, mask)
            case S.While():
                return self._while(stmt, mask)
            case S.Break():
                self.broken = self.broken | mask
                return np.zeros_like(mask)
            case S.Continue():
                return np.zeros_like(mask)
            case S.Allocate():
                self._allocate(stmt, mask)
            case S.Alias(buffer=buffer, source=source):
                storage = self.frame.storage(source.name)
                self.frame.storages[buffer.name] = alias_storage(
                    storage, buffer, self.shape_of(buffer)
                )
            case S.Assert(condition=condition, message=message):
                if np.any(mask & ~np.asarray(evaluate(condition, self.frame, mask), bool)):
                    raise DeviceAssertError(f"assertion failed: {message}")
            case S.Print():
                self._print(stmt, mask)
            case S.Parallel():
                self._parallel(stmt, mask)
            case S.WarpScope():
                self._warp_scope(stmt, mask)
            case S.Intrinsic():
                self._intrinsic(stmt, mask)
            case S.Atomic() if all(extent is None for extent in stmt.dst.extents):
                self._atomic(stmt, mask)
            case _:
                self._tile(stmt, mask)
        return mask

    # --- control flow --------------------------------------------------------------------------

    def _if(self, stmt: S.If, mask: Array) -> Array:
        condition = np.asarray(evaluate(stmt.condition, self.frame, mask), bool)
        then, otherwise = np.asarray(mask & condition), np.asarray(mask & ~condition)
        if then.any():
            then = self.block(stmt.then, then)
        if otherwise.any():
            otherwise = self.block(stmt.otherwise, otherwise)
        return np.asarray(then | otherwise)

    def _for(self, stmt: S.For, mask: Array) -> Array:
        start = evaluate(stmt.start, self.frame, mask)
        extent = evaluate(stmt.extent, self.frame, mask)
        step = evaluate(stmt.step, self.frame, mask)
        outer, self.broken = self.broken, np.zeros_like(mask)
        kind = value_dtype(stmt.var.dtype)
        round_index = 0
        while (active := np.asarray(mask & (round_index < extent) & ~self.broken)).any():
            value = start + np.asarray(round_index, kind) * step
            self.frame.values[stmt.var.name] = np.asarray(value).astype(kind, copy=False)
            self.block(stmt.body, active)
            round_index += 1
        self.broken = outer
        return mask

    def _while(self, stmt: S.While, mask: Array) -> Array:
        outer, self.broken = self.broken, np.zeros_like(mask)
        active = mask
        while True:
            holds = np.asarray(evaluate(stmt.condition, self.frame, active), bool)
            active = np.asarray(active & holds)
            if not active.any():
                break
            self.block(stmt.body, active)
            active = np.asarray(active & ~self.broken)
            if not active.any():
                break
        self.broken = outer
        return mask

    def _warp_scope(self, stmt: S.WarpScope, mask: Array) -> None:
        inner = [s.op for s in walk_stmts(stmt.body) if isinstance(s, S.Intrinsic)]
        if "named_barrier.sync" in inner:
            raise UnsupportedError("the reference cannot execute warps that wait for each other")
        if self.frame.domain:
            warp = np.arange(self.threads) // WARP
            mask = np.asarray(mask & (stmt.first <= warp) & (warp < stmt.last))
        self.block(stmt.body, mask)

    # --- declarations --------------------------------------------------------------------------

    def shape_of(self, buffer: Buffer) -> tuple[int, ...]:
        """A buffer's extents as numbers."""
        return tuple(int(scalar(extent, self.frame)) for extent in buffer.shape)

    def _allocate(self, stmt: S.Allocate, mask: Array) -> None:
        buffer = stmt.buffer
        prefix = self.frame.domain if buffer.scope is Scope.LOCAL else ()
        storage = make_storage(
            buffer,
            self.shape_of(buffer),
            prefix=prefix,
            is_raw=buffer.name in self.raw,
            rounds=self.is_exact,
            tracks_writes=self.tracks_writes,
        )
        self.frame.storages[buffer.name] = storage
        if stmt.init is not None:
            value = evaluate(stmt.init, self.frame, mask)
            storage.write([], value, self.frame.domain, mask)

    # --- elements ------------------------------------------------------------------------------

    def _own_storage(self, name: str) -> Storage:
        """A buffer to write to: a local one of the surrounding block becomes private first."""
        storage = self.frame.storage(name)
        is_local = storage.buffer.scope is Scope.LOCAL
        if is_local and storage.prefix != self.frame.domain:
            storage = storage.spread(self.frame.domain)
            self.frame.storages[name] = storage
        return storage

    def _store(self, stmt: S.Store, mask: Array) -> None:
        places = [evaluate(index, self.frame, mask) for index in stmt.indices]
        value = evaluate(stmt.value, self.frame, mask)
        self._write(stmt.buffer.name, places, value, mask)

    def _write(self, name: str, places: list[Array], value: Array, mask: Array) -> None:
        storage = self._own_storage(name)
        if not self.frame.is_guarded:
            refuse_outside(storage, places, mask, "writes")
        storage.write(places, value, self.frame.domain, mask)

    def _atomic(self, stmt: S.Atomic, mask: Array) -> None:
        """One element each, one iteration after the other."""
        dtype = stmt.dst.dtype
        if isinstance(stmt.value, Region):
            raise LanguageError("an atomic on one element needs a scalar value")
        frame, name = self.frame, stmt.dst.buffer.name
        places = [evaluate(start, frame, mask) for start in stmt.dst.starts]
        value = evaluate(stmt.value, frame, mask)
        value = cast(value, dtype_of_expr(stmt.value), dtype, self.is_exact)
        shape = frame.domain
        spread = [np.broadcast_to(item, shape) for item in (*places, value)]
        previous = np.zeros(shape, value_dtype(dtype))
        storage = frame.storage(name)
        for at in zip(*np.nonzero(np.broadcast_to(mask, shape)), strict=True) if shape else ((),):
            place = [item[at] for item in spread[:-1]]
            old = storage.read(place, (), ACTIVE)
            new = updated(stmt.op, old, spread[-1][at], dtype)
            previous[at] = old
            if stmt.op != "load":
                storage.write(place, new, (), ACTIVE)
        if stmt.previous is not None:
            frame.values[stmt.previous.name] = previous

    def _print(self, stmt: S.Print, mask: Array) -> None:
        text = stmt.message
        if isinstance(stmt.value, Region):
            text += f"{load_region(stmt.value, self._block_frame(stmt, mask))}"
        elif stmt.value is not None:
            text += f"{evaluate(stmt.value, self.frame, mask)}"
        print(text, file=self.output)

    # --- tile statements -----------------------------------------------------------------------

    def _parallel(self, stmt: S.Parallel, mask: Array) -> None:
        outer = self.frame
        frame = self._block_frame(stmt, mask)
        extents = [int(scalar(extent, frame)) for extent in stmt.extents]
        if min(extents, default=1) <= 0:
            return
        inner = replace(
            frame,
            domain=tuple(extents),
            values=dict(frame.values),
            storages=dict(frame.storages),
            is_guarded=True,
        )
        grid = np.ogrid[tuple(slice(extent) for extent in extents)]
        for var, index in zip(stmt.vars, grid, strict=True):
            inner.values[var.name] = np.asarray(index).astype(value_dtype(var.dtype))
        broken, self.broken = self.broken, np.asarray(False)
        self.frame = inner
        try:
            self.block(stmt.body, np.ones(extents, bool))
        finally:
            self.frame, self.broken = outer, broken
        for name, storage in frame.storages.items():
            if inner.storages[name] is not storage:
                storage.forget()  # each iteration wrote its own copy: nothing is known afterwards

    def _tile(self, stmt: S.Stmt, mask: Array) -> None:
        if self.frame.is_guarded:
            raise LanguageError(f"{type(stmt).__name__} inside a Parallel")
        for frame in self._frames(stmt, mask):
            match stmt:
                case S.Copy(src=src, dst=dst):
                    run_copy(src, dst, frame)
                case S.Fill():
                    run_fill(stmt, frame)
                case S.Gemm():
                    run_gemm(stmt, frame)
                case S.Reduce():
                    run_reduce(stmt, frame)
                case S.Scan():
                    run_scan(stmt, frame)
                case S.Atomic():
                    run_tile_atomic(stmt, frame)
                case _:
                    raise UnsupportedError("unknown statement", got=type(stmt).__name__)

    def _intrinsic(self, stmt: S.Intrinsic, mask: Array) -> None:
        if stmt.op == "sync_block":
            if not mask.all():
                raise EmulatorFault("a barrier that not all lanes of the block reach")
        elif stmt.op == "async.copy":
            src, dst = stmt.args
            if not isinstance(src, Region) or not isinstance(dst, Region):
                raise LanguageError("async.copy needs two regions")
            for frame in self._frames(stmt, mask):
                run_copy(src, dst, frame)
        elif stmt.op == ATTACH:
            self._attach(stmt, mask)
        elif stmt.op == WINDOWS:
            self.block((nest(stmt, (_ROW, _COLUMN)),), mask)
        elif stmt.op not in ORDERING:
            raise UnsupportedError(f"the reference cannot execute {stmt.op}")

    def _attach(self, stmt: S.Intrinsic, mask: Array) -> None:
        place, address = stmt.args
        assert isinstance(place, Region) and isinstance(address, Expr)
        found = np.unique(np.broadcast_to(evaluate(address, self.frame, mask), mask.shape)[mask])
        if found.size != 1:
            raise EmulatorFault(f"the address of {place.buffer.name} differs between lanes")
        buffer, name = place.buffer, place.buffer.name
        self.detach(name)
        memory = array_at(buffer, int(found[0]), self.frame)
        storage = make_storage(buffer, memory.shape, is_raw=name in self.raw, rounds=self.is_exact)
        storage.array[...] = storage.encode(memory.astype(value_dtype(buffer.dtype)))
        self.frame.storages[name] = storage
        self.attached[name] = (storage, memory)

    def detach(self, name: str) -> None:
        """Write what changed in a tensor at an address to its memory."""
        if name in self.attached:
            storage, memory = self.attached.pop(name)
            if storage.dirty:
                values = storage.decode(storage.array)
                memory[...] = encode(values, storage.buffer.dtype).astype(memory.dtype)

    def _frames(self, stmt: S.Stmt, mask: Array) -> list[Frame]:
        """Where a tile statement runs: once for the block, or per lane on lanes' own operands."""
        if not self.frame.domain:
            return [self.frame]
        lanes = [int(lane) for lane in np.flatnonzero(mask)]
        if is_uniform(stmt, self.frame, mask):
            lanes = lanes[:1]
        return [lane_frame(self.frame, lane) for lane in lanes]

    def _block_frame(self, stmt: S.Stmt, mask: Array) -> Frame:
        if not self.frame.domain:
            return self.frame
        if self.frame.is_guarded or not is_uniform(stmt, self.frame, mask):
            raise LanguageError(f"{type(stmt).__name__} done by the block depends on the lane")
        return lane_frame(self.frame, int(np.flatnonzero(mask)[0]))
