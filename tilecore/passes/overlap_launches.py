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
"""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Scope
from tilecore.ir.expr import Var, free_vars
from tilecore.ir.program import OVERLAPPED, Kernel, Program
from tilecore.ir.stmts import Block, Intrinsic, Let, Stmt
from tilecore.ir.visit import buffers_in, exprs_of, walk_stmts
from tilecore.passes.scopes import with_hint

OVERLAPPED_LAUNCHES = "overlapped_launches"
"""Capability of targets whose kernels can be launched before their predecessor has ended."""

LET_NEXT = Intrinsic("launch.let_next")
WAIT_BEFORE = Intrinsic("launch.wait_before")


def overlap_launches(program: Program, context: Context) -> Program:
    """See the module's text; runs last, when nothing moves any more."""
    if not context.target.has(OVERLAPPED_LAUNCHES) or len(program.kernels) < 2:
        return program
    kernels = tuple(_waiting(kernel) for kernel in program.kernels)
    return dataclasses.replace(program, kernels=kernels)


def _waiting(kernel: Kernel) -> Kernel:
    """A kernel that lets the next one start, and waits for the one before. What needs no memory
    comes before the wait, scalars that are read from it behind."""
    before: list[Stmt] = []
    read: list[Let] = []
    rest: Block = kernel.body
    while rest:
        stmt = rest[0]
        late = _touches_memory(stmt) or bool(_variables(stmt) & {let.var for let in read})
        if late and not isinstance(stmt, Let):
            break
        if isinstance(stmt, Let) and late:
            read.append(stmt)
        else:
            before.append(stmt)
        rest = rest[1:]
    return dataclasses.replace(
        kernel,
        body=(LET_NEXT, *before, WAIT_BEFORE, *read, *rest),
        hints=with_hint(kernel.hints, OVERLAPPED, True),
    )


def _variables(stmt: Stmt) -> set[Var]:
    """Variables that a statement, or one in it, reads."""
    return {var for s in walk_stmts((stmt,)) for e in exprs_of(s) for var in free_vars(e)}


def _touches_memory(stmt: Stmt) -> bool:
    """True when a statement, or one in it, reads or writes global memory."""
    return any(buffer.scope is Scope.GLOBAL for buffer in buffers_in((stmt,)))
