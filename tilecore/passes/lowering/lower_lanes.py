"""Scheduled level -> lane level: what one lane does.

Tile statements become loops over the lane's own elements; global and shared buffers are indexed
by one linear offset, fragments become arrays of registers. Uniform control flow stays. The lane's
index is bound to ``lane`` at the top.
"""

from __future__ import annotations

import dataclasses

from tilecore.errors import LoweringError
from tilecore.hooks.context import Context
from tilecore.ir.attached import ATTACH
from tilecore.ir.buffers import Region, Scope
from tilecore.ir.dtypes import int32, int64
from tilecore.ir.expr import Call, Expr, binary, const, widened
from tilecore.ir.lane_dependence import conditions_of, is_per_lane, lane_dependent_names
from tilecore.ir.program import Kernel, Level, Program
from tilecore.ir.stmts import (
    Alias,
    Allocate,
    Assert,
    Atomic,
    Block,
    Break,
    Continue,
    For,
    Gemm,
    If,
    Intrinsic,
    Let,
    Parallel,
    Print,
    Reduce,
    Stmt,
    Store,
    WarpScope,
    While,
)
from tilecore.ir.visit import map_stmts
from tilecore.passes.async_copies import strides_of
from tilecore.passes.defer_sums import ACROSS, IN_LANE
from tilecore.passes.elementwise import as_parallel
from tilecore.passes.lowering import copies_under_gemm, rotate_gemm
from tilecore.passes.lowering.lane_scope import LANE, LaneScope
from tilecore.passes.lowering.loaded_starts import name_loaded_starts
from tilecore.passes.lowering.lower_async import lower_async_copy
from tilecore.passes.lowering.lower_bulk import (
    lower_bulk_hold_fragment,
    lower_bulk_load,
    lower_bulk_store_fragment,
    lower_bulk_windows,
)
from tilecore.passes.lowering.lower_contraction import lower_gemm
from tilecore.passes.lowering.lower_elementwise import lower_nest, lower_uniform
from tilecore.passes.lowering.lower_memory_contraction import lower_contraction_wait
from tilecore.passes.lowering.lower_reduction import (
    lower_reduce,
    lower_sum_in_lane,
    lower_sum_lanes,
)
from tilecore.passes.lowering.matrix_stores import lower_matrix_store
from tilecore.passes.lowering.skip_scaling import skip_unit_scaling
from tilecore.passes.masks import skip_full_masks
from tilecore.passes.reduction_plan import reduce_of
from tilecore.passes.roles.window_copies import LOAD_WINDOWS
from tilecore.passes.scopes import Names, kernel_ranges, per_kernel
from tilecore.passes.turns.teams import is_team, team_of, teams_of


def lower_lanes(program: Program, context: Context) -> Program:
    """See the module's text."""
    names = Names(program)

    def visit(kernel: Kernel) -> Kernel:
        scope = LaneScope(kernel, context, names, kernel_ranges(kernel, program.symbols))
        scope.ranges = scope.ranges.with_range(LANE, 0, scope.threads - 1)
        if is_per_lane(kernel.body):
            scope.varying = lane_dependent_names(kernel.body)
        index: Expr = Call("lane.id", (), int32)
        if teams_of(kernel) > 1:  # the lane's index in its team
            index = binary("floormod", index, const(scope.threads))
        head = Let(LANE, index)
        lowered = _block(kernel.body, scope)
        body = (head, *scope.head, *lowered)
        return dataclasses.replace(kernel, body=body)

    return per_kernel(program, visit, level=Level.LANE)


def _block(block: Block, scope: LaneScope) -> Block:
    result: list[Stmt] = []
    crowded = copies_under_gemm.is_crowded(scope.kernel)
    position = 0
    while position < len(block):
        found = None if crowded else copies_under_gemm.split(block[position:])
        if found is None:
            result += _stmt(block[position], scope)
            position += 1
            continue
        copies, nests = _each(found.copies, scope), _each(found.registers_only, scope)
        result += [*nests, *lower_gemm(found.gemm, scope, copies)]
        position += found.length
    return tuple(result)


def _each(block: Block, scope: LaneScope) -> Block:
    return tuple(lowered for stmt in block for lowered in _stmt(stmt, scope))


def _stmt(stmt: Stmt, scope: LaneScope) -> Block:
    if isinstance(stmt, Gemm | Reduce | Intrinsic):
        lets, stmt = name_loaded_starts(stmt, scope.names.fresh)
        if lets:
            return (*_each(lets, scope), *_stmt(stmt, scope))
    match stmt:
        case Allocate(buffer=buffer, init=init):
            start = None if init is None else lower_uniform(init, scope)
            return (Allocate(scope.lane_buffer(buffer), start, stmt.loc),)
        case Gemm():
            return lower_gemm(stmt, scope)
        case Reduce():
            return lower_reduce(stmt, None, scope)
        case Intrinsic():
            return _intrinsic(stmt, scope)
        case _ if (nest := as_parallel(stmt)) is not None:
            if (stored := lower_matrix_store(nest, scope)) is not None:
                return stored
            lowered = skip_unit_scaling(nest, lower_nest(nest, scope), scope)
            return skip_full_masks(nest, lowered, scope)
        case Store() | Atomic():
            return lower_nest(Parallel((), (), (stmt,), loc=stmt.loc), scope)
        case _ if scope.is_own(conditions_of(stmt)) and not scope.is_diverged:
            scope.is_diverged = True
            lowered = _control(stmt, scope)
            scope.is_diverged = False
            return lowered
        case _:
            return _control(stmt, scope)


def _control(stmt: Stmt, scope: LaneScope) -> Block:
    match stmt:
        case For(start=start, extent=extent, body=body):
            low, count = lower_uniform(start, scope), lower_uniform(extent, scope)
            if (parts := rotate_gemm.split(stmt)) and rotate_gemm.plan(parts, scope):
                copies = _each(parts.copies, scope)
                if rotated := rotate_gemm.lower_rotated(stmt, (low, count), parts, copies, scope):
                    return rotated
            inner = _block(body, scope)
            return (dataclasses.replace(stmt, start=low, extent=count, body=inner, pipeline=None),)
        case While(condition=condition, body=body):
            return (While(lower_uniform(condition, scope), _block(body, scope), stmt.loc),)
        case If(condition=condition, then=then, otherwise=otherwise):
            test = lower_uniform(condition, scope)
            outside = scope.ranges
            scope.ranges = outside.assume(test)
            new_then = _block(then, scope)
            scope.ranges = scope.ranges.without_assumptions_since(outside)
            new_otherwise = _block(otherwise, scope)
            if not new_then and not new_otherwise:
                return ()
            return (If(test, new_then, new_otherwise, stmt.loc),)
        case Let(value=Call(args=(lanes, _), dtype=dtype) as call) if is_team(call):
            number = binary("floordiv", Call("lane.id", (), int32), lanes)
            return (dataclasses.replace(stmt, value=Call("lane.uniform", (number,), dtype)),)
        case Let(value=value):
            return (dataclasses.replace(stmt, value=lower_uniform(value, scope)),)
        case WarpScope(body=body):
            inner = _block(body, scope)
            if scope.threads < scope.kernel.threads:
                inner = map_stmts(inner, lambda one: _among_tile_threads(one, scope))
            return (dataclasses.replace(stmt, body=inner),)
        case Assert(condition=condition):
            return (dataclasses.replace(stmt, condition=lower_uniform(condition, scope)),)
        case Print(value=value):
            if isinstance(value, Region):
                return lower_print(stmt, value, scope)
            new = None if value is None else lower_uniform(value, scope)
            return (dataclasses.replace(stmt, value=new),)
        case Break() | Continue():
            return (stmt,)
        case Alias():
            raise LoweringError(f"alias {stmt.buffer.name} was not resolved", loc=stmt.loc)
        case _:
            raise LoweringError(f"no lowering of {type(stmt).__name__} to lanes")


TILE_BARRIER = 1
"""Number of the named barrier at which the lanes that work on tiles meet."""


def _among_tile_threads(stmt: Stmt, scope: LaneScope) -> Stmt | None:
    """Inside warp roles, the barrier of the block is one of the lanes that work on tiles."""
    if stmt != Intrinsic("sync_block"):
        return None
    number: Expr = const(TILE_BARRIER)
    if (team := team_of(scope.kernel)) is not None:
        number = binary("add", number, team)
    return Intrinsic("named_barrier.sync", (number, const(scope.threads)))


def lower_print(stmt: Print, region: Region, scope: LaneScope) -> Block:
    """Every element, by the lane that holds it."""
    from tilecore.ir.expr import Load
    from tilecore.passes.elementwise import loop_vars

    at = loop_vars(region.shape)
    one = Print(stmt.message, Load(region.buffer, region.indices(at)), stmt.loc)
    return lower_nest(Parallel(at, region.shape, (one,), (), stmt.loc), scope)


def _intrinsic(stmt: Intrinsic, scope: LaneScope) -> Block:
    if stmt.op == "async.copy":
        return lower_async_copy(stmt, scope)
    if stmt.op == "bulk.load":
        return lower_bulk_load(stmt, scope)
    if stmt.op == LOAD_WINDOWS:
        return lower_bulk_windows(stmt, scope)
    if stmt.op in ("bulk.store_fragment", "bulk.store_held"):
        return lower_bulk_store_fragment(stmt, scope)
    if stmt.op == "bulk.hold_fragment":
        return lower_bulk_hold_fragment(stmt, scope)
    if stmt.op in ("contraction.wait", "contraction.settle"):
        return lower_contraction_wait(stmt, scope)
    if stmt.op == IN_LANE:
        return lower_sum_in_lane(stmt, scope)
    if stmt.op == ACROSS:
        return lower_sum_lanes(stmt, scope)
    if stmt.op == ATTACH:
        return (_attach(stmt, scope),)
    if stmt.op == "tile.reduce":
        reduce, scratch = reduce_of(stmt)
        return lower_reduce(reduce, scratch, scope)
    args = tuple(
        _element(arg, scope) if isinstance(arg, Region) else lower_uniform(arg, scope)
        for arg in stmt.args
    )
    return (dataclasses.replace(stmt, args=args),)


def _attach(stmt: Intrinsic, scope: LaneScope) -> Intrinsic:
    """A buffer's flat form, the address, and how many bytes lie there."""
    region, address = stmt.args
    assert isinstance(region, Region) and isinstance(address, Expr)
    buffer = region.buffer
    elements: Expr = const(1, int64)
    for extent, stride in zip(buffer.shape, strides_of(buffer.shape, buffer.strides), strict=True):
        last = binary("sub", widened(extent), const(1, int64))
        elements = binary("add", elements, binary("mul", last, widened(stride)))
    size = binary("mul", elements, const(buffer.dtype.bytes, int64))
    flat = Region(scope.lane_buffer(buffer), (const(0),), (None,))
    args = (flat, lower_uniform(address, scope), lower_uniform(size, scope))
    return dataclasses.replace(stmt, args=args)


def _element(region: Region, scope: LaneScope) -> Region:
    """A region as a flat one that starts at its first element."""
    starts: tuple[Expr, ...] = tuple(lower_uniform(start, scope) for start in region.starts)
    if region.buffer.scope is Scope.FRAGMENT:
        raise LoweringError(f"fragment {region.buffer.name} cannot be an intrinsic's operand")
    offset = scope.offset(region.buffer, starts)
    return Region(scope.lane_buffer(region.buffer), (offset,), (None,))
