"""Statements of a block to LLVM: dispatch, scalar control flow, atomics, prints."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tilecore.errors import UnsupportedError
from tilecore.ir.attached import attachment
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Const, Expr, reads_memory
from tilecore.ir.stmts import (
    Alias,
    Allocate,
    Assert,
    Atomic,
    Block,
    Break,
    Continue,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Intrinsic,
    Let,
    Parallel,
    Print,
    Reduce,
    Scan,
    Stmt,
    Store,
    While,
)

from .analysis import interval
from .atomics import emit_atomic
from .builder import Value
from .chains import ChainEmitter, find_chain
from .contractions import emit_gemm
from .conversions import convert, narrow, storage_type
from .diagnostics import emit_assert, emit_print
from .elementwise import emit_parallel
from .expressions import evaluate, evaluate_stored, index, wrapped
from .factors import any_differs_from_one, row_factors
from .fusion import FusedNest
from .memory import store_element
from .packing import emit_copy
from .readers import unread_stores
from .reductions import emit_reduce, emit_scan
from .regions import emit_fill_nest
from .row_nests import emit_fused
from .shared_tiles import emit_borrow, emit_shared_copy
from .state import BlockState, Round
from .steps import emit_fill, emit_step, is_result_missing, prepare_result
from .storage import Storage

EmitBlock = Callable[[BlockState, Block], None]

# One worker runs a whole block in program order, so that everything is visible at once: barriers,
# waits and groups have nothing to do.
_NO_EFFECT = frozenset({
    "sync_block", "sync_warp", "barrier.init", "barrier.arrive", "barrier.arrive_expect",
    "barrier.expect", "barrier.wait", "named_barrier.sync", "named_barrier.arrive",
    "async.commit", "async.wait",
})  # fmt: skip


def emit_block(s: BlockState, body: Block) -> None:
    """Statements in order; what they allocate is given back at the end."""
    top = s.arena.top
    stmts = s.fuser.fuse(body) if s.fuser is not None else body
    for stmt, unread in zip(stmts, unread_stores(stmts, s.mentions), strict=True):
        if isinstance(stmt, FusedNest):
            emit_fused(s, stmt, unread)
        else:
            emit_statement(s, stmt, emit_block)
    s.arena.top = top


def emit_statement(s: BlockState, stmt: Stmt, emit: EmitBlock) -> None:
    """One statement; `emit` writes nested blocks."""
    match stmt:
        case Let(var=var, value=value):
            _emit_let(s, var.name, value)
        case Allocate():
            allocate(s, stmt)
        case Alias(buffer=buffer, source=source):
            _emit_alias(s, buffer, source)
        case Store(buffer=buffer, indices=indices, value=value):
            store_element(s, buffer, indices, evaluate_stored(s, value, buffer.dtype))
        case Parallel():
            factors = row_factors(s, stmt)
            if factors is None:
                emit_parallel(s, stmt)
            else:
                with s.w.when(any_differs_from_one(s, *factors)):
                    emit_parallel(s, stmt)
        case Copy(src=src, dst=dst):
            store = s.shared_tiles.get(dst.buffer.name)
            if s.steps is not None and s.steps.is_operand(dst.buffer):
                return  # the step reads the source
            if s.steps is not None and (step := s.steps.step_of_result(stmt)) is not None:
                with s.w.when(is_result_missing(s, s.steps, step)):
                    emit_copy(s, src, dst)
            elif store is not None:
                emit_shared_copy(s, store)
            elif dst.buffer.name in s.borrowed:
                emit_borrow(s, stmt)
            else:
                emit_copy(s, src, dst)
        case Fill(dst=dst, value=value):
            if s.steps is not None and (step := s.steps.step_of_fill(stmt)) is not None:
                emit_fill(s, step)
            else:
                emit_fill_nest(s, dst, value)
        case Gemm(a=a):
            step = None if s.steps is None else s.steps.steps.get(a.buffer.name)
            if s.steps is not None and step is not None:
                emit_step(s, s.steps, step)
            else:
                emit_gemm(s, stmt)
        case Reduce():
            emit_reduce(s, stmt)
        case Scan():
            emit_scan(s, stmt)
        case Atomic():
            emit_atomic(s, stmt)
        case Print():
            emit_print(s, stmt)
        case Assert():
            emit_assert(s, stmt)
        case Intrinsic():
            _emit_intrinsic(s, stmt)
        case _:
            _emit_control(s, stmt, emit)


def _emit_control(s: BlockState, stmt: Stmt, emit: EmitBlock) -> None:
    match stmt:
        case For():
            chain = find_chain(s, stmt) if emit is emit_block else None
            if chain is None:
                _emit_for(s, stmt, emit)
            else:
                _bind_loop(s, stmt)
                ChainEmitter(s, chain, lambda s, inner: emit_statement(s, inner, emit)).emit()
        case While():
            _emit_while(s, stmt, emit)
        case If(condition=condition, then=then, otherwise=otherwise):
            if isinstance(condition, Const):
                emit(s, then if condition.value else otherwise)
            else:
                emit_branch(s, evaluate(s, condition), then, otherwise, emit)
        case Break():
            s.w.terminate(f"br label %{s.stops[-1][1]}")
        case Continue():
            s.w.terminate(f"br label %{s.stops[-1][0]}")
        case _:
            raise UnsupportedError(
                f"the CPU backend cannot run {type(stmt).__name__}",
                loc=getattr(stmt, "loc", None),
            )


def _emit_let(s: BlockState, name: str, value: Expr) -> None:
    dtype = value.dtype  # type: ignore[attr-defined]
    if dtype.kind == "int" and dtype.bits >= 32 and not reads_memory(value):
        s.wide[name] = wrapped(s, value)
        s.ranges[name] = interval(value, s.ranges, s.definitions)
        return
    s.values[name] = evaluate(s, value)


def emit_branch(
    s: BlockState, condition: Value, then: Block, otherwise: Block, emit: EmitBlock
) -> None:
    """A branch on a scalar."""
    w = s.w
    label = w.fresh("if")
    last = "else" if otherwise else "end"
    w.terminate(f"br {condition}, label %{label}.then, label %{label}.{last}")
    w.begin_block(f"{label}.then")
    emit(s, then)
    w.terminate(f"br label %{label}.end")
    if otherwise:
        w.begin_block(f"{label}.else")
        emit(s, otherwise)
    w.begin_block(f"{label}.end")


def _emit_for(s: BlockState, stmt: For, emit: EmitBlock) -> None:
    w = s.w
    start, extent, step = (wrapped(s, e) for e in (stmt.start, stmt.extent, stmt.step))
    _bind_loop(s, stmt)
    if s.steps is not None and (gemm_step := s.steps.step_of_loop(stmt)) is not None:
        prepare_result(s, s.steps, gemm_step)
    with w.loop(w.i64(0), extent) as loop:
        s.stops.append((loop.latch, loop.done))
        s.rounds.append(Round(stmt.var.name, step, loop.index, extent))
        s.wide[stmt.var.name] = w.add(start, w.mul(loop.index, step))
        emit(s, stmt.body)
        s.stops.pop()
        s.rounds.pop()


def _bind_loop(s: BlockState, stmt: For) -> None:
    """The range of a loop's variable."""
    low = interval(stmt.start, s.ranges, s.definitions)
    count = interval(stmt.extent, s.ranges, s.definitions)
    if isinstance(stmt.step, Const):
        reach = max(count[1] - 1, 0) * stmt.step.value
        s.ranges[stmt.var.name] = (low[0] + min(reach, 0), low[1] + max(reach, 0))
    else:
        s.ranges.pop(stmt.var.name, None)


def _emit_while(s: BlockState, stmt: While, emit: EmitBlock) -> None:
    w = s.w
    label = w.fresh("while")
    w.begin_block(f"{label}.head")
    condition = evaluate(s, stmt.condition)
    w.terminate(f"br {condition}, label %{label}.body, label %{label}.done")
    w.begin_block(f"{label}.body")
    s.stops.append((f"{label}.head", f"{label}.done"))
    emit(s, stmt.body)
    s.stops.pop()
    w.terminate(f"br label %{label}.head")
    w.begin_block(f"{label}.done")


def allocate(s: BlockState, stmt: Allocate) -> None:
    """Give a buffer its place: scalars on the stack, tiles in the scratch memory."""
    w, buffer = s.w, stmt.buffer
    kind = storage_type(buffer.dtype)
    if buffer.scope is Scope.LOCAL and not buffer.shape:
        place = w.alloca(kind, 1, 8)
        s.storage[buffer.name] = Storage(buffer, place, ())
        if stmt.init is not None:
            source = stmt.init.dtype  # type: ignore[attr-defined]
            value = convert(w, evaluate(s, stmt.init), source, buffer.dtype)
            w.store(narrow(w, value, buffer.dtype), place)
        return
    if s.is_elementwise:
        _place_of_lane(s, buffer)
        return
    if s.steps is not None and s.steps.is_operand(buffer):
        return
    if buffer.name in s.storage:  # placed before the blocks' loop, because its padding is zeroed
        return
    place_buffer(s, buffer)


MOST_STACK_BYTES = 4096
"""Local arrays up to this size live on the stack, where LLVM may keep them in registers."""


def _place_of_lane(s: BlockState, buffer: Buffer) -> None:
    """An array that one lane declares for itself, in each version of its nest anew."""
    from .scheduling import layout_of
    from .storage import plain_strides

    layout = layout_of(s.layouts, buffer)
    if layout.span * buffer.dtype.bytes > MOST_STACK_BYTES:
        place_buffer(s, buffer)
        return
    place = s.w.alloca(storage_type(buffer.dtype), layout.span, 64)
    s.storage[buffer.name] = Storage(buffer, place, plain_strides(layout), layout)


def place_buffer(s: BlockState, buffer: Buffer) -> None:
    """Reserve scratch memory for one on-chip buffer."""
    from .scheduling import layout_of
    from .storage import plain_strides

    layout = layout_of(s.layouts, buffer)
    size = layout.span * buffer.dtype.bytes
    # Masked and padded accesses of whole vectors may read past the last element.
    place = s.scratch(size + s.cpu.vector_bits // 8)
    s.storage[buffer.name] = Storage(buffer, place, plain_strides(layout), layout)


def _emit_alias(s: BlockState, buffer: Buffer, source: Buffer) -> None:
    from tilecore.ir.layout import Layout

    from .storage import plain_strides

    shape = buffer.static_shape
    if shape is None:  # a view of a global tensor
        strides: list[int | Value] = []
        total: Value = s.w.i64(1)
        for extent in reversed(buffer.shape):
            strides.append(total)
            total = s.w.mul(total, index(s, extent))
        s.storage[buffer.name] = Storage(
            buffer, s.storage_of(source).pointer, tuple(reversed(strides))
        )
        return
    layout = Layout.row_major(shape)
    s.storage[buffer.name] = Storage(
        buffer, s.storage_of(source).pointer, plain_strides(layout), layout
    )


def _emit_intrinsic(s: BlockState, stmt: Intrinsic) -> None:
    if stmt.op in _NO_EFFECT:
        return
    if stmt.op == "async.copy":
        src, dst = stmt.args
        assert isinstance(src, Region) and isinstance(dst, Region)
        emit_copy(s, src, dst)
        return
    if (attached := attachment(stmt)) is not None:
        buffer, address = attached
        pointer = s.w.cast("inttoptr", evaluate(s, address), "ptr")
        s.storage[buffer.name] = dataclasses.replace(s.storage[buffer.name], pointer=pointer)
        return
    raise UnsupportedError(f"the CPU backend has no operation {stmt.op!r}", loc=stmt.loc)
