"""A program's kernels start while what comes before still runs, and wait for it where they must.

    kernel 0: read lengths; allocate, set up barriers; body
    kernel 1: allocate, set up barriers; body
      ->
    kernel 0: launch.let_next(); allocate, set up barriers; launch.wait_before(); read lengths; body
    kernel 1: launch.let_next(); allocate, set up barriers; launch.wait_before(); body

On targets that can launch so (capability ``overlapped_launches``), the blocks of a kernel come to
the device as soon as all blocks of the kernel before are there, and find it ready to go on:
`launch.wait_before` lasts until all of that kernel has ended and its writes are seen. It stands
before the first access to global memory. The first kernel waits so for whatever was enqueued
before the program, often the last kernel of the same program: programs of several kernels are short
ones, whose launches count. A program of one kernel starts as every launch does.

Tensors that the author calls settled (hints ``settled.NAME``) are read before the wait. Where warps
have roles, each waits for itself then, before it touches anything else.
"""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import Expr, Load, Var, free_vars, walk
from tilecore.ir.program import OVERLAPPED, Kernel, Program, settled_names
from tilecore.ir.stmts import Block, If, Intrinsic, Let, Stmt, WarpScope
from tilecore.ir.visit import buffers_in, destinations, exprs_of, walk_stmts
from tilecore.passes.scopes import with_hint

OVERLAPPED_LAUNCHES = "overlapped_launches"
"""Capability of targets whose kernels can be launched before their predecessor has ended."""

LET_NEXT = Intrinsic("launch.let_next")
WAIT_BEFORE = Intrinsic("launch.wait_before")


def overlap_launches(program: Program, context: Context) -> Program:
    """See the module's text; runs last, when nothing moves any more."""
    if not context.target.has(OVERLAPPED_LAUNCHES) or len(program.kernels) < 2:
        return program
    written = {b.name for k in program.kernels for s in walk_stmts(k.body) for b in destinations(s)}
    kernels = tuple(_waiting(k, settled_names(k) - written) for k in program.kernels)
    return dataclasses.replace(program, kernels=kernels)


def _waiting(kernel: Kernel, settled: frozenset[str]) -> Kernel:
    """A kernel that lets the next one start, and waits for the one before. What needs no memory
    comes before the wait, scalars that are read from it behind."""
    before: list[Stmt] = []
    read: list[Let] = []
    rest: Block = kernel.body
    while rest:
        stmt = rest[0]
        late = _touches_memory(stmt, settled) or bool(_variables(stmt) & {let.var for let in read})
        if late and not isinstance(stmt, Let):
            break
        if isinstance(stmt, Let) and late:
            read.append(stmt)
        else:
            before.append(stmt)
        rest = rest[1:]
    waiting = (WAIT_BEFORE, *read, *rest)
    if settled and not read:
        waiting = _each_waits(rest, settled)
    return dataclasses.replace(
        kernel,
        body=(LET_NEXT, *before, *waiting),
        hints=with_hint(kernel.hints, OVERLAPPED, True),
    )


def _variables(stmt: Stmt) -> set[Var]:
    """Variables that a statement, or one in it, reads."""
    return {var for s in walk_stmts((stmt,)) for e in exprs_of(s) for var in free_vars(e)}


def _each_waits(block: Block, settled: frozenset[str]) -> Block:
    """A block with waits before its first statements that touch memory which is not settled.

    A wait within a role, or under a condition, is for the warps there only: what follows has its
    own.
    """
    result: list[Stmt] = []
    for k, stmt in enumerate(block):
        if not _touches_memory(stmt, settled):
            result.append(stmt)
        elif isinstance(stmt, WarpScope):
            result.append(dataclasses.replace(stmt, body=_each_waits(stmt.body, settled)))
        elif isinstance(stmt, If) and not stmt.otherwise and not _reads(stmt.condition, settled):
            result.append(dataclasses.replace(stmt, then=_each_waits(stmt.then, settled)))
        else:
            return (*result, WAIT_BEFORE, *block[k:])
    return tuple(result)


def _reads(expr: Expr, settled: frozenset[str]) -> bool:
    """True when an expression reads global memory that is not settled."""
    return any(isinstance(node, Load) and _is_late(node.buffer, settled) for node in walk(expr))


def _is_late(buffer: Buffer, settled: frozenset[str]) -> bool:
    return buffer.scope is Scope.GLOBAL and buffer.name not in settled


def _touches_memory(stmt: Stmt, settled: frozenset[str]) -> bool:
    """True when a statement, or one in it, reads or writes global memory that is not settled."""
    return any(_is_late(buffer, settled) for buffer in buffers_in((stmt,)))
