"""A program's kernels start while the one before still runs, and wait for it where they must.

    kernel 0: body
    kernel 1: allocate, set up barriers; body
      ->
    kernel 0: launch.let_next(); body
    kernel 1: allocate, set up barriers; launch.wait_before(); body

On targets that can launch so (capability ``overlapped_launches``), the blocks of a kernel come to
the device as soon as all blocks of the kernel before are there, and find it ready to go on:
`launch.wait_before` lasts until all of that kernel has ended and its writes are seen. It stands
before the first access to global memory. The first kernel of a program starts as every launch does,
so that nothing is promised about what was enqueued before.
"""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Scope
from tilecore.ir.program import OVERLAPPED, Kernel, Program
from tilecore.ir.stmts import Block, Intrinsic, Stmt
from tilecore.ir.visit import buffers_in
from tilecore.passes.scopes import with_hint

OVERLAPPED_LAUNCHES = "overlapped_launches"
"""Capability of targets whose kernels can be launched before their predecessor has ended."""

LET_NEXT = Intrinsic("launch.let_next")
WAIT_BEFORE = Intrinsic("launch.wait_before")


def overlap_launches(program: Program, context: Context) -> Program:
    """See the module's text; runs last, when nothing moves any more."""
    if not context.target.has(OVERLAPPED_LAUNCHES) or len(program.kernels) < 2:
        return program
    last = len(program.kernels) - 1
    kernels = []
    for number, kernel in enumerate(program.kernels):
        if number > 0:
            kernel = _waiting(kernel)
        if number < last:
            kernel = dataclasses.replace(kernel, body=(LET_NEXT, *kernel.body))
        kernels.append(kernel)
    return dataclasses.replace(program, kernels=tuple(kernels))


def _waiting(kernel: Kernel) -> Kernel:
    body: Block = kernel.body
    at = next((k for k, stmt in enumerate(body) if _touches_memory(stmt)), len(body))
    return dataclasses.replace(
        kernel,
        body=(*body[:at], WAIT_BEFORE, *body[at:]),
        hints=with_hint(kernel.hints, OVERLAPPED, True),
    )


def _touches_memory(stmt: Stmt) -> bool:
    """True when a statement, or one in it, reads or writes global memory."""
    return any(buffer.scope is Scope.GLOBAL for buffer in buffers_in((stmt,)))
