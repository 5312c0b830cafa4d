"""Tile level in one normal form: small index arithmetic, no dead code, no loops of one round.

before                                      after
    let x = bx * 128                            copy A[bx * 128:+128] -> s[:]
    for k in serial(0, 1) {                     parallel (i) in (128) {
      copy A[x + k:+128] -> s[:]                  B[bx * 128 + i] = s[i]
    }                                           }
    if n < 0 { ... }
    parallel (i) in (128) {
      if i < 128 { B[(x * 8 + i * 8) // 8] = s[i] }
    }

Rules: index and boolean expressions are simplified with the ranges of grid, loop and size
variables (`ir.simplify`); a branch whose condition is known is taken or dropped; a loop that
cannot run is dropped and one of a single round is replaced by its body; a `Let` of a variable or
a constant is put in place of its variable, one that nobody uses is dropped, and so is a buffer
that nobody mentions.

Kept as they are: floats, the order of effects, axes of `Parallel` nests, and the number of
statements in a pipelined loop whose schedule the author gave statement by statement.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilecore.ir import stmts as S
from tilecore.ir.attached import attached_in
from tilecore.ir.expr import Const, Expr, Unary, Var, walk
from tilecore.ir.program import Kernel, Program
from tilecore.ir.ranges import Ranges
from tilecore.ir.simplify import simplify, simplify_node
from tilecore.ir.visit import (
    BODY_FIELDS,
    bound_vars,
    exprs_of,
    map_exprs,
    names_in,
    regions_of,
    substitute_block,
    walk_stmts,
)

if TYPE_CHECKING:
    from tilecore.hooks.context import Context


def canonicalize(program: Program, context: Context | None = None) -> Program:
    """The same program in normal form. Works at every level; `context` is not asked."""
    ranges = Ranges().with_sizes(program.symbols)
    kernels = tuple(_canonical_kernel(kernel, ranges) for kernel in program.kernels)
    return replace(program, kernels=kernels)


def _canonical_kernel(kernel: Kernel, ranges: Ranges) -> Kernel:
    grid = tuple(simplify(extent, ranges) for extent in kernel.grid)
    for var, extent in zip(kernel.grid_vars, grid, strict=True):
        ranges = ranges.with_index(var, extent)
    body = _without_dead(_canonical_block(kernel.body, ranges), set())
    gone = _declared_buffers(kernel.body) - _declared_buffers(body)
    layouts = tuple(item for item in kernel.layouts if item[0] not in gone)
    return replace(kernel, grid=grid, body=body, layouts=layouts)


def _declared_buffers(body: S.Block) -> set[str]:
    found = (s for s in walk_stmts(body) if isinstance(s, S.Allocate | S.Alias))
    return {stmt.buffer.name for stmt in found}


def _canonical_block(block: S.Block, ranges: Ranges) -> S.Block:
    result: list[S.Stmt] = []
    rest = list(block)
    while rest:
        stmt = rest.pop(0)
        if isinstance(stmt, S.Let):
            value = simplify(stmt.value, ranges)
            if _may_replace(stmt.var, value):
                rest = list(substitute_block(tuple(rest), {stmt.var: value}))
            else:
                ranges = ranges.with_value(stmt.var, value)
                result.append(replace(stmt, value=value))
        else:
            result.extend(_canonical_stmt(stmt, ranges))
    return tuple(result)


def _may_replace(var: Var, value: Expr) -> bool:
    """True for a constant, and for a variable when the new one promises nothing of its own."""
    has_promise = var.multiple_of != 1 or var.lower is not None or var.upper is not None
    return isinstance(value, Const) or (isinstance(value, Var) and not has_promise)


def _canonical_stmt(stmt: S.Stmt, ranges: Ranges) -> S.Block:
    stmt = map_exprs(stmt, lambda node: simplify_node(node, ranges))
    match stmt:
        case S.If():
            return _canonical_if(stmt, ranges)
        case S.For():
            return _canonical_for(stmt, ranges)
        case S.While(condition=condition, body=body):
            if ranges.refutes(condition):
                return ()
            return (replace(stmt, body=_canonical_block(body, ranges.assume(condition))),)
        case S.Parallel(vars=variables, extents=extents, body=body):
            if any(ranges.interval(extent)[1] <= 0 for extent in extents):
                return ()
            for var, extent in zip(variables, extents, strict=True):
                ranges = ranges.with_index(var, extent)
            return (replace(stmt, body=_canonical_block(body, ranges)),)
        case S.WarpScope(body=body):
            return (replace(stmt, body=_canonical_block(body, ranges)),)
        case _:
            return (stmt,)


def _canonical_if(stmt: S.If, ranges: Ranges) -> S.Block:
    if ranges.proves(stmt.condition):
        return _canonical_block(stmt.then, ranges)
    if ranges.refutes(stmt.condition):
        return _canonical_block(stmt.otherwise, ranges)
    opposite = simplify(Unary("not", stmt.condition, stmt.condition.dtype), ranges)  # type: ignore[attr-defined]
    then = _canonical_block(stmt.then, ranges.assume(stmt.condition))
    otherwise = _canonical_block(stmt.otherwise, ranges.assume(opposite))
    if not then and not otherwise:
        return ()
    if not then:
        return (replace(stmt, condition=opposite, then=otherwise, otherwise=()),)
    return (replace(stmt, then=then, otherwise=otherwise),)


def _canonical_for(stmt: S.For, ranges: Ranges) -> S.Block:
    low, high = ranges.interval(stmt.extent)
    if high <= 0:
        return ()
    if low == high == 1 and not _leaves_loop(stmt.body):
        body = (S.Let(stmt.var, stmt.start, stmt.loc), *stmt.body)
        return _canonical_block(body, ranges)
    if stmt.pipeline is not None and attached_in(stmt.body):
        # What runs ahead would read at the address of a round before.
        stmt = replace(stmt, kind=S.LoopKind.SERIAL, pipeline=None)
    inside = ranges.with_loop(stmt.var, stmt.start, stmt.extent, stmt.step)
    if _is_planned(stmt):
        return (replace(stmt, body=_canonical_planned(stmt.body, inside)),)
    return (replace(stmt, body=_canonical_block(stmt.body, inside)),)


def _is_planned(stmt: S.Stmt) -> bool:
    """True for a loop whose author numbered the statements of its body."""
    plan = stmt.pipeline if isinstance(stmt, S.For) else None
    return plan is not None and bool(plan.order or plan.stage or plan.group)


def _canonical_planned(body: S.Block, ranges: Ranges) -> S.Block:
    """The same number of statements, each in normal form where that is one statement again."""
    result: list[S.Stmt] = []
    for stmt in body:
        if isinstance(stmt, S.Let):
            stmt = replace(stmt, value=simplify(stmt.value, ranges))
            ranges = ranges.with_value(stmt.var, stmt.value)
            result.append(stmt)
        else:
            new = _canonical_stmt(stmt, ranges)
            result.append(new[0] if len(new) == 1 else stmt)
    return tuple(result)


def _leaves_loop(body: S.Block) -> bool:
    """True when a `Break` or `Continue` in the body belongs to the loop around it."""
    for stmt in body:
        match stmt:
            case S.Break() | S.Continue():
                return True
            case S.If(then=then, otherwise=otherwise):
                if _leaves_loop(then) or _leaves_loop(otherwise):
                    return True
            case S.WarpScope(body=inner):
                if _leaves_loop(inner):
                    return True
            case _:
                pass
    return False


def _without_dead(block: S.Block, live: set[str], keeps_all: bool = False) -> S.Block:
    """Drop bindings that nothing reads; `live` collects the names that are read, last use first."""
    kept: list[S.Stmt] = []
    for stmt in reversed(block):
        if not keeps_all and _is_dead(stmt, live):
            continue
        if isinstance(stmt, S.Atomic) and stmt.op not in ("load", "exchange"):
            previous = stmt.previous
            if previous is not None and previous.name not in live:
                stmt = replace(stmt, previous=None)
        nested = {
            name: _without_dead(getattr(stmt, name), live, _is_planned(stmt))
            for name in BODY_FIELDS
            if hasattr(stmt, name)
        }
        stmt = replace(stmt, **nested) if nested else stmt
        live |= _names_read(stmt)
        kept.append(stmt)
    return tuple(reversed(kept))


def _is_dead(stmt: S.Stmt, live: set[str]) -> bool:
    match stmt:
        case S.Let(var=var):
            return var.name not in live
        case S.Allocate(buffer=buffer) | S.Alias(buffer=buffer):
            return buffer.name not in live
        case _:
            return False


def _names_read(stmt: S.Stmt) -> set[str]:
    """Variables and buffers in the statement's own fields, those that it declares left out."""
    bound = {id(var) for var in bound_vars(stmt)}
    names = _names_in_shapes(stmt) | {region.buffer.name for region in regions_of(stmt)}
    names |= names_in(top for top in exprs_of(stmt) if id(top) not in bound)
    match stmt:
        case S.Store(buffer=buffer):
            names.add(buffer.name)
        case S.Alias(source=source):
            names.add(source.name)
        case _:
            pass
    return names


def _names_in_shapes(stmt: S.Stmt) -> set[str]:
    """Variables that the shape of a buffer declared here depends on."""
    if isinstance(stmt, S.Allocate | S.Alias):
        exprs = (*stmt.buffer.shape, *(stmt.buffer.strides or ()))
        return {node.name for top in exprs for node in walk(top) if isinstance(node, Var)}
    return set()
