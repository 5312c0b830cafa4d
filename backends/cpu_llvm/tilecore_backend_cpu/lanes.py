"""Statements inside an elementwise nest, for the lanes of the current vector axis."""

from __future__ import annotations

from tilecore.errors import UnsupportedError
from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Expr, Load
from tilecore.ir.stmts import Allocate, Block, For, If, Let, Stmt, Store

from .builder import lane_count, vector_type
from .conversions import narrow, storage_type
from .expressions import evaluate, evaluate_stored, same_lanes
from .lane_analysis import is_raw_copy
from .memory import load_element, store_element
from .state import BlockState
from .storage import Storage


def emit_lane_block(s: BlockState, body: Block) -> None:
    """The statements of a nest's body, for the lanes of the current vector axis."""
    for stmt in body:
        _emit_lane(s, stmt)


def _emit_lane(s: BlockState, stmt: Stmt) -> None:
    match stmt:
        case Let(var=var, value=value):
            s.values[var.name] = evaluate(s, value)
        case Store(buffer=buffer, indices=indices, value=value):
            if is_raw_copy(stmt):
                assert isinstance(value, Load)
                stored = load_element(s, value.buffer, value.indices)
            else:
                stored = evaluate_stored(s, value, buffer.dtype)
            store_element(s, buffer, indices, stored)
        case If():
            _emit_if(s, stmt)
        case Allocate(buffer=buffer, init=init) if not buffer.shape:
            _allocate_lane_local(s, buffer, init)
        case _:
            _emit_scalar(s, stmt)


def _emit_scalar(s: BlockState, stmt: Stmt) -> None:
    """Loops, and what only runs one lane at a time."""
    from .statements import emit_statement

    lanes = 1 if s.axis is None else s.axis.lanes
    if lanes > 1 and not isinstance(stmt, For):
        raise UnsupportedError(f"{type(stmt).__name__} cannot be part of an elementwise nest")
    emit_statement(s, stmt, emit_lane_block)


def _allocate_lane_local(s: BlockState, buffer: Buffer, init: Expr | None) -> None:
    w = s.w
    lanes = 1 if s.axis is None else s.axis.lanes
    place = w.alloca(vector_type(storage_type(buffer.dtype), lanes))
    s.storage[buffer.name] = Storage(buffer, place, ())
    s.lane_locals.add(buffer.name)
    if init is not None:
        value = narrow(w, w.splat(evaluate(s, init), lanes), buffer.dtype)
        w.store(value, place, 64)


def _emit_if(s: BlockState, stmt: If) -> None:
    from .statements import emit_branch

    w = s.w
    assert s.axis is not None
    condition = evaluate(s, stmt.condition)
    if lane_count(condition.type) == 1:
        emit_branch(s, condition, stmt.then, stmt.otherwise, emit_lane_block)
        return
    before = s.axis.active
    for chosen, body in ((condition, stmt.then), (None, stmt.otherwise)):
        if not body:
            continue
        if chosen is None:
            chosen = w.binary("xor", condition, w.const(True, condition.type))
        if before is not None:
            chosen = w.binary("and", *same_lanes(s, [chosen, before]))
        s.axis.active = chosen
        emit_lane_block(s, body)
    s.axis.active = before
