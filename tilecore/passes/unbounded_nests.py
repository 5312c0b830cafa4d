"""Elementwise nests over an extent that only the call tells: walked in pieces of constant extent.

    parallel (i, j) in (8, n) { x[i, j] = y }   ->   for p in serial(0, ceil(n / 16)) {
                                                       parallel (i, q) in (8, 16) {
                                                         let j = p * 16 + q
                                                         if j < n { x[i, j] = y }
                                                       }
                                                     }

Lanes are dealt out once and for all, so a nest needs extents with a constant bound. Iterations are
independent, so that their order is free. Of several such axes the last is cut and the others are
walked one by one.
"""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.ir.expr import Expr, Var, binary, const
from tilecore.ir.program import Kernel, Program
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import Block, Copy, Fill, For, If, Let, Parallel, Stmt
from tilecore.passes.elementwise import with_own_vars
from tilecore.passes.scopes import Names, ceil_div, kernel_ranges, per_kernel, rewrite_block

PIECES_A_LANE = 4
"""Iterations of one piece for each lane: enough to move whole vectors."""


def unbounded_nests(program: Program, context: Context) -> Program:
    """See the module's text."""
    names = Names(program)

    def visit_kernel(kernel: Kernel) -> Kernel:
        ranges = kernel_ranges(kernel, program.symbols)

        def visit(stmt: Stmt) -> Block | None:
            if not isinstance(stmt, Parallel | Copy | Fill):
                return None
            extents = stmt.extents if isinstance(stmt, Parallel) else stmt.dst.shape
            if all(ranges.size(extent) is not None for extent in extents):
                return None
            nest = stmt if isinstance(stmt, Parallel) else with_own_vars(stmt, names.fresh)
            return (_pieces(nest, ranges, kernel.threads, names),)

        return dataclasses.replace(kernel, body=rewrite_block(kernel.body, visit))

    return per_kernel(program, visit_kernel)


def _pieces(nest: Parallel, ranges: Ranges, threads: int, names: Names) -> Stmt:
    unbounded = [k for k, extent in enumerate(nest.extents) if ranges.size(extent) is None]
    others = 1
    for extent in nest.extents:
        others *= max(1, ranges.size(extent) or 1)
    piece = 1
    while piece * others < PIECES_A_LANE * threads:
        piece *= 2
    cut = unbounded[-1]
    var, extent = nest.vars[cut], nest.extents[cut]
    inside = dataclasses.replace(var, name=names.fresh(f"{var.name}_in"))
    round_ = dataclasses.replace(var, name=names.fresh(f"{var.name}_piece"))
    first = binary("mul", round_, const(piece, var.dtype))
    body: Block = (
        Let(var, binary("add", first, inside), nest.loc),
        If(binary("lt", var, extent), nest.body, (), nest.loc),
    )
    variables, extents = list(nest.vars), list(nest.extents)
    variables[cut], extents[cut] = inside, const(piece, var.dtype)
    rest = [k for k in range(len(variables)) if k not in unbounded[:-1]]
    stmt: Stmt = Parallel(
        tuple(variables[k] for k in rest), tuple(extents[k] for k in rest), body, nest.hints,
        nest.loc,
    )  # fmt: skip
    stmt = _loop(round_, ceil_div(extent, piece), stmt, nest)
    for k in reversed(unbounded[:-1]):
        stmt = _loop(nest.vars[k], nest.extents[k], stmt, nest)
    return stmt


def _loop(var: Var, extent: Expr, body: Stmt, nest: Parallel) -> For:
    zero, one = const(0, var.dtype), const(1, var.dtype)
    return For(var, zero, extent, one, (body,), loc=nest.loc)
