"""Nests that read a window of a fragment run over the fragment instead.

A layout gives an element to one lane, so a nest that wants row ``i + 16`` at its step ``i`` finds
it in another lane's registers. Over the fragment's own rows it finds all where they are:

    nest i < 16: out[i] = F[i + 16]   ->   nest at < 32: if 16 <= at < 32: out[at - 16] = F[at]
    nest j < 64: out[j] = F[r, j]     ->   nest at < 32, j < 64: if at == r: out[j] = F[at, j]
"""

from __future__ import annotations

import dataclasses

from tilecore.ir.buffers import Scope
from tilecore.ir.expr import (
    TRUE,
    Expr,
    Load,
    Var,
    all_of,
    binary,
    const,
    dtype_of_expr,
    free_vars,
    reads_memory,
    substitute,
)
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import Allocate, Atomic, Block, For, If, Let, Parallel, Stmt, Store
from tilecore.ir.visit import bound_vars, map_exprs, map_stmts, substitute_block, walk_stmts
from tilecore.passes.accesses import Access
from tilecore.passes.scopes import Names, static


def over_fragment(nest: Parallel, access: Access, ranges: Ranges, names: Names) -> Parallel | None:
    """The same nest with `access`, to a fragment, at the place that its iterations name.

    None where an index is no variable of the nest plus something that all lanes know, or has a name
    that the body gives (to an element that it loads, since others are spelt out by now); where an
    iteration that does something may want an element outside of the fragment, since no iteration
    of the other nest stands for it; and where lanes keep results of their own.
    """
    if not nest.vars or access.inner:
        return None
    for var, extent in zip(nest.vars, nest.extents, strict=True):
        ranges = ranges.with_index(var, extent)
    inside: list[Expr] = []
    for index, extent in zip(access.indices, static(access.buffer), strict=True):
        dtype = dtype_of_expr(index)
        inside.append(binary("ge", index, const(0, dtype)))
        inside.append(binary("lt", index, const(extent, dtype)))
    if not _acts_only_where(nest.body, all_of(inside), ranges):
        return None
    wanted = [free_vars(index) for index in access.indices]
    if any(sum(var in used for used in wanted) > 1 for var in nest.vars):
        return None
    named = {var for stmt in walk_stmts(nest.body) for var in bound_vars(stmt)}
    if any(named & used for used in wanted):
        return None
    for axis, index in enumerate(access.indices):
        moved = _along(nest, axis, index, access, ranges, names)
        if moved is None:
            return None
        nest = moved
    return nest


def _acts_only_where(block: Block, inside: Expr, ranges: Ranges) -> bool:
    """True when all that the body leaves behind is in memory, and is done where `inside` holds."""
    for stmt in block:
        match stmt:
            case If(condition=condition, then=then, otherwise=otherwise):
                if not _acts_only_where(then, inside, ranges.assume(condition)):
                    return False
                if otherwise and not _acts_only_where(otherwise, inside, ranges):
                    return False
            case Store(buffer=buffer) if buffer.scope is not Scope.LOCAL:
                if not ranges.proves(inside):
                    return False
            case Atomic(previous=None):
                if not ranges.proves(inside):
                    return False
            case Let() | Allocate():
                pass
            case For(body=body):
                if not _acts_only_where(body, inside, ranges):
                    return False
            case _:
                return False
    return True


def _along(
    nest: Parallel, axis: int, index: Expr, access: Access, ranges: Ranges, names: Names
) -> Parallel | None:
    """The nest with another variable, or one more, for one axis of the fragment."""
    if index in nest.vars:
        return nest
    used = [var for var in nest.vars if var in free_vars(index)]
    if len(used) > 1 or reads_memory(index):
        return None
    rows = static(access.buffer)[axis]
    at = Var(names.fresh("at"), used[0].dtype if used else dtype_of_expr(index))
    grown = ranges.with_index(at, const(rows, at.dtype))
    body = _named(nest.body, axis, index, at)
    if not used:
        guards = [binary("eq", at, index)]
        nest_vars, extents = (at, *nest.vars), (const(rows, at.dtype), *nest.extents)
    else:
        (var,) = used
        if ranges.regrouped(index).step(var) != 1:
            return None
        where = nest.vars.index(var)
        step = binary("sub", at, substitute(index, {var: const(0, var.dtype)}))
        guards = [
            binary("ge", step, const(0, var.dtype)),
            binary("lt", step, nest.extents[where]),
        ]
        body = substitute_block(body, {var: step})
        nest_vars = (*nest.vars[:where], at, *nest.vars[where + 1 :])
        extents = (*nest.extents[:where], const(rows, at.dtype), *nest.extents[where + 1 :])
    condition = all_of(guard for guard in guards if not grown.proves(guard))
    if condition != TRUE:
        body = (If(condition, body, (), nest.loc),)
    return dataclasses.replace(nest, vars=nest_vars, extents=extents, body=body)


def _named(block: Block, axis: int, index: Expr, at: Var) -> Block:
    """`block` with fragments indexed by `at` where they are by `index` along that axis."""

    def renamed(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        if axis < len(indices) and indices[axis] == index:
            return (*indices[:axis], at, *indices[axis + 1 :])
        return indices

    def load(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer.scope is Scope.FRAGMENT:
            return dataclasses.replace(node, indices=renamed(node.indices))
        return None

    def visit(stmt: Stmt) -> Stmt:
        stmt = map_exprs(stmt, load)
        if isinstance(stmt, Store) and stmt.buffer.scope is Scope.FRAGMENT:
            return dataclasses.replace(stmt, indices=renamed(stmt.indices))
        return stmt

    return map_stmts(block, visit)
