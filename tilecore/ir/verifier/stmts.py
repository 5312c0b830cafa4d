"""Rules about statements of every level, and the walk over nested blocks."""

from __future__ import annotations

from collections.abc import Iterable

from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Const, Load, Var, dtype_of_expr
from tilecore.ir.program import Level
from tilecore.ir.verifier.exprs import (
    check_condition,
    check_dtype,
    check_expr,
    check_indices,
    check_integer,
)
from tilecore.ir.verifier.regions import check_region, check_same_shape
from tilecore.ir.verifier.state import State
from tilecore.ir.verifier.tiles import TILE_STATEMENTS, check_tile_statement

ATOMIC_OPS = frozenset({
    "add", "sub", "min", "max", "and", "or", "xor", "exchange", "load", "store",
})  # fmt: skip
MEMORY_ORDERS = frozenset({"relaxed", "acquire", "release", "acq_rel", "seq_cst"})
_IN_PARALLEL = (
    S.Let, S.Store, S.Atomic, S.If, S.For, S.Allocate, S.Break, S.Continue, S.Assert, S.Print,
)  # fmt: skip
_IN_LANES = (*_IN_PARALLEL, S.While)  # lanes that run in turn, below the tile level


def check_block(block: S.Block, state: State) -> None:
    """All statements of a block; what they declare is in scope until its end.

    Raises:
        TilecoreError: of the class that `State.fail` chooses.
    """
    scope, loc, checked = dict(state.scope), state.loc, state.checked
    state.checked = {}
    for stmt in block:
        state.loc = getattr(stmt, "loc", None) or loc
        _check_stmt(stmt, state)
    state.scope, state.loc, state.checked = scope, loc, checked


def _check_stmt(stmt: S.Stmt, state: State) -> None:
    legal = _IN_PARALLEL if state.level is Level.TILE else _IN_LANES
    if state.in_parallel and not isinstance(stmt, legal):
        state.fail(f"{type(stmt).__name__} inside a Parallel")
    if state.is_lane and isinstance(stmt, TILE_STATEMENTS):
        state.fail(f"the tile statement {type(stmt).__name__} at the lane level")
    check_hints(getattr(stmt, "hints", ()), state)
    match stmt:
        case S.If(condition=condition, then=then, otherwise=otherwise):
            check_condition(condition, state)
            check_block(then, state)
            check_block(otherwise, state)
        case S.For():
            _check_for(stmt, state)
        case S.While(condition=condition, body=body):
            check_condition(condition, state)
            _check_loop_body((), body, "while", state)
        case S.Break() | S.Continue():
            _check_jump(stmt, state)
        case S.Parallel():
            _check_parallel(stmt, state)
        case S.WarpScope(first=first, last=last, body=body):
            state.require(0 <= first < last, "a warp scope is empty", "first < last", (first, last))
            check_block(body, state)
        case _:
            if not check_tile_statement(stmt, state):
                _check_simple(stmt, state)


def check_hints(hints: S.Hints, state: State) -> None:
    """Hints are sorted by name, each name once."""
    names = [name for name, _ in hints]
    if names != sorted(set(names)):
        state.fail("hints are not sorted by name", sorted(set(names)), names)


def _check_simple(stmt: S.Stmt, state: State) -> None:
    match stmt:
        case S.Let(var=var, value=value):
            check_dtype(value, var.dtype, state, f"the value of {var.name}")
            state.declare(var)
        case S.Allocate():
            _check_allocate(stmt, state)
        case S.Alias():
            _check_alias(stmt, state)
        case S.Store(buffer=buffer, indices=indices, value=value):
            check_indices(Load(buffer, indices), state)
            check_dtype(value, buffer.dtype, state, f"the value stored in {buffer.name}")
        case S.Atomic():
            _check_atomic(stmt, state)
        case S.Print(value=value):
            if isinstance(value, Region):
                state.require(not state.in_parallel, "a tile is printed inside a Parallel")
                check_region(value, state)
            elif value is not None:
                check_expr(value, state)
        case S.Assert(condition=condition):
            check_condition(condition, state)
        case S.Intrinsic(op=op, args=args):
            state.require(bool(op), "an intrinsic without a name")
            for arg in args:
                (check_region if isinstance(arg, Region) else check_expr)(arg, state)  # type: ignore[arg-type]
        case _:
            state.fail("an unknown statement", got=type(stmt).__name__)


# --- loops -------------------------------------------------------------------------------------


def _check_for(stmt: S.For, state: State) -> None:
    state.require(stmt.var.dtype.is_int, "a loop variable is no integer", got=stmt.var.dtype)
    check_dtype(stmt.start, stmt.var.dtype, state, f"the start of loop {stmt.var.name}")
    check_dtype(stmt.step, stmt.var.dtype, state, f"the step of loop {stmt.var.name}")
    check_integer(stmt.extent, state, f"the extent of loop {stmt.var.name}")
    if isinstance(stmt.step, Const) and stmt.step.value == 0:
        state.fail(f"the step of loop {stmt.var.name} is 0")
    if stmt.kind is S.LoopKind.VECTORIZED and not isinstance(stmt.extent, Const):
        state.fail(f"the vectorized loop {stmt.var.name} has no constant extent")
    if stmt.kind is S.LoopKind.PIPELINED and state.in_parallel:
        state.fail("a pipelined loop inside a Parallel")
    has_plan = stmt.pipeline is not None
    if state.level is Level.TILE and has_plan != (stmt.kind is S.LoopKind.PIPELINED):
        state.fail("a pipeline plan belongs to pipelined loops", stmt.kind, stmt.pipeline)
    if stmt.pipeline is not None:
        _check_plan(stmt.pipeline, len(stmt.body), state)
    _check_loop_body((stmt.var,), stmt.body, str(stmt.kind), state)


def _check_plan(plan: S.PipelineSpec, statements: int, state: State) -> None:
    state.require(plan.num_stages >= 0, "num_stages is negative", "0 or more", plan.num_stages)
    if plan.order and plan.stage and len(plan.order) != len(plan.stage):
        state.fail("order and stage of a pipeline differ in length", plan.order, plan.stage)
    places = (*plan.order, *plan.stage, *(i for group in plan.group for i in group))
    if any(place < -1 for place in places):
        state.fail("a pipeline's order, stage and group hold indices", "-1 or more", min(places))
    members = [index for group in plan.group for index in group]
    if any(index >= statements for index in members):
        state.fail("a pipeline's group names a statement that is not there", f"< {statements}")
    if -1 in members or len(set(members)) < len(members):
        state.fail("a pipeline's groups hold each statement at most once", "indices", plan.group)


def _check_loop_body(variables: Iterable[Var], body: S.Block, kind: str, state: State) -> None:
    outside = dict(state.scope)
    for var in variables:
        state.declare(var)
    state.loops.append(kind)
    check_block(body, state)
    state.loops.pop()
    state.scope = outside


def _check_jump(stmt: S.Stmt, state: State) -> None:
    word = type(stmt).__name__.lower()
    if not state.loops:
        state.fail(f"{word} outside a loop" + (" of this Parallel" if state.in_parallel else ""))
    if state.loops[-1] == str(S.LoopKind.VECTORIZED):
        state.fail(f"{word} in a vectorized loop")


def _check_parallel(stmt: S.Parallel, state: State) -> None:
    if not stmt.vars or len(stmt.vars) != len(stmt.extents):
        state.fail(
            "a Parallel needs one extent for each variable", len(stmt.vars), len(stmt.extents)
        )
    for var, extent in zip(stmt.vars, stmt.extents, strict=True):
        state.require(var.dtype.is_int, "a loop variable is no integer", got=var.dtype)
        check_integer(extent, state, f"the extent of {var.name}")
    outside, loops = dict(state.scope), state.loops
    for var in stmt.vars:
        state.declare(var)
    state.loops, state.in_parallel = [], True
    check_block(stmt.body, state)
    state.loops, state.in_parallel, state.scope = loops, False, outside


# --- declarations ------------------------------------------------------------------------------


def _static_shape(buffer: Buffer, state: State) -> tuple[int, ...]:
    shape = buffer.static_shape
    if shape is None:
        state.fail(f"the {buffer.scope} buffer {buffer.name} has a shape that is not constant")
    if any(extent < 1 for extent in shape):
        state.fail(f"the buffer {buffer.name} has no elements", "extents of 1 or more", shape)
    return shape


def _check_allocate(stmt: S.Allocate, state: State) -> None:
    buffer = stmt.buffer
    if buffer.scope is Scope.GLOBAL:
        state.fail(f"the global buffer {buffer.name} is allocated inside a kernel")
    if state.is_lane and buffer.scope is Scope.FRAGMENT:
        state.fail(f"the fragment {buffer.name} at the lane level", "a local array")
    if state.in_parallel and buffer.scope is not Scope.LOCAL:
        state.fail(f"the {buffer.scope} buffer {buffer.name} is allocated inside a Parallel")
    _static_shape(buffer, state)
    if buffer.strides is not None:
        state.fail(f"the {buffer.scope} buffer {buffer.name} has strides", "a layout")
    if stmt.init is not None:
        if buffer.scope is not Scope.LOCAL or buffer.rank:
            state.fail(f"{buffer.name} has an initial value", "a local buffer of rank 0")
        check_dtype(stmt.init, buffer.dtype, state, f"the initial value of {buffer.name}")
    state.declare(buffer)


def _check_alias(stmt: S.Alias, state: State) -> None:
    buffer, source = stmt.buffer, stmt.source
    state.use_buffer(source)
    if buffer.scope is not source.scope:
        state.fail(f"{buffer.name} is a view of another scope", source.scope, buffer.scope)
    if source.strides is not None or buffer.strides is not None:
        state.fail(f"{buffer.name} is a view of a strided buffer", "a compact one")
    sizes = [item.static_shape for item in (source, buffer)]
    if sizes[0] is not None and sizes[1] is not None:
        bits = [_bits(shape, item) for shape, item in zip(sizes, (source, buffer), strict=True)]
        if bits[0] != bits[1]:
            state.fail(f"{buffer.name} is a view of another size", f"{bits[0]} bits", bits[1])
    elif buffer.scope is not Scope.GLOBAL:
        _static_shape(buffer, state)
    for extent in buffer.shape:
        check_integer(extent, state, f"an extent of {buffer.name}")
    state.declare(buffer)


def _bits(shape: tuple[int, ...] | None, buffer: Buffer) -> int:
    total = buffer.dtype.bits
    for extent in shape or ():
        total *= extent
    return total


# --- atomics -----------------------------------------------------------------------------------


def _check_atomic(stmt: S.Atomic, state: State) -> None:
    dst, name = stmt.dst, stmt.dst.buffer.name
    check_region(dst, state)
    state.require(stmt.op in ATOMIC_OPS, "an unknown atomic", sorted(ATOMIC_OPS), stmt.op)
    if stmt.memory_order not in MEMORY_ORDERS:
        state.fail("an unknown memory order", sorted(MEMORY_ORDERS), stmt.memory_order)
    if dst.buffer.scope not in (Scope.GLOBAL, Scope.SHARED):
        state.fail(f"an atomic on {name}", "a global or shared buffer", dst.buffer.scope)
    if stmt.op in ("and", "or", "xor") and dst.dtype.is_float:
        state.fail(f"atomic {stmt.op} on floats", "integers", dst.dtype)
    is_element = not dst.shape
    if isinstance(stmt.value, Region):
        if is_element:
            state.fail(f"an atomic on one element of {name} with a tile", "a scalar")
        check_region(stmt.value, state)
        check_same_shape(dst.shape, stmt.value.shape, state, f"atomic {stmt.op}")
    else:
        check_expr(stmt.value, state)
        if not is_element:
            state.fail(f"an atomic on a tile of {name} with a scalar", "a tile")
        if dtype_of_expr(stmt.value).is_bool and not dst.dtype.is_bool:
            state.fail(f"an atomic on {name} with a bool", dst.dtype, "bool")
    if not is_element and (state.in_parallel or state.is_lane):
        place = "inside a Parallel" if state.in_parallel else "at the lane level"
        state.fail(f"a tile atomic {place}")
    if stmt.previous is not None:
        state.require(is_element, "a tile atomic has no previous value")
        if stmt.previous.dtype != dst.dtype:
            state.fail("the previous value has the wrong dtype", dst.dtype, stmt.previous.dtype)
        state.declare(stmt.previous)
