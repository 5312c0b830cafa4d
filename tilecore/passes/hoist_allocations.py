"""Shared buffers that a pipelined loop's body declares move in front of the loop.

    for k in pipelined(0, n) {            ->   shared s: float16[64, 64]
      shared s: float16[64, 64]                for k in pipelined(0, n) {
      copy A[k] -> s                             copy A[k] -> s
      ...                                        ...

A pipeline copies into the next rounds' buffers before their round begins. A declaration says
nothing about contents, so it may stand earlier; loops whose author numbered their statements keep
them.
"""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Scope
from tilecore.ir.program import Program
from tilecore.ir.stmts import Allocate, Block, For, Stmt
from tilecore.ir.visit import map_stmts
from tilecore.passes.scopes import per_kernel


def hoist_allocations(program: Program, context: Context) -> Program:
    """See the module's text."""
    return per_kernel(
        program, lambda kernel: dataclasses.replace(kernel, body=map_stmts(kernel.body, _hoisted))
    )


def _hoisted(stmt: Stmt) -> Block | None:
    plan = stmt.pipeline if isinstance(stmt, For) else None
    if not isinstance(stmt, For) or plan is None or plan.order or plan.stage or plan.group:
        return None
    moved = tuple(inner for inner in stmt.body if _is_movable(inner))
    if not moved:
        return None
    rest = tuple(inner for inner in stmt.body if not _is_movable(inner))
    return (*moved, dataclasses.replace(stmt, body=rest))


def _is_movable(stmt: Stmt) -> bool:
    return isinstance(stmt, Allocate) and stmt.init is None and stmt.buffer.scope is Scope.SHARED
