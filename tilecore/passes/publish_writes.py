"""Make what lanes write to shared memory visible to agents that read it on their own.

Contractions that read shared memory themselves, and copy engines, see a lane's ordinary writes only
after the lane has published them. Where such an agent reads a buffer that lanes write, every
barrier of the block is preceded by

    memory.publish()

so that whoever starts an agent after a barrier finds all that was written before it.
"""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Region, Scope
from tilecore.ir.program import Kernel, Program
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import Block, Gemm, Intrinsic, Stmt
from tilecore.ir.visit import walk_stmts
from tilecore.passes.contraction import select_atom
from tilecore.passes.memory_effects import READ, Effect, InnerBarrier, steps_of
from tilecore.passes.scopes import per_kernel, rewrite_block

PUBLISH = Intrinsic("memory.publish")


def publish_writes(program: Program, context: Context) -> Program:
    """See the module's text; runs after barriers are in their places."""

    def visit(kernel: Kernel) -> Kernel:
        read = read_by_agents(kernel, context)
        if not read & written_by_lanes(kernel):
            return kernel
        return dataclasses.replace(kernel, body=rewrite_block(kernel.body, _before_barriers))

    return per_kernel(program, visit)


def read_by_agents(kernel: Kernel, context: Context) -> set[str]:
    """Names of the shared buffers that agents read."""
    found: set[str] = set()
    threads = int(dict(kernel.hints).get("tile_threads", kernel.threads))
    for stmt in walk_stmts(kernel.body):
        regions: tuple[Region, ...] = ()
        if isinstance(stmt, Gemm):
            atom = select_atom(stmt, threads, context)
            if atom is not None and atom.b is None:
                regions = (stmt.a, stmt.b)
        elif isinstance(stmt, Intrinsic) and stmt.op == "bulk.store":
            regions = tuple(arg for arg in stmt.args if isinstance(arg, Region))
        found |= {r.buffer.name for r in regions if r.buffer.scope is Scope.SHARED}
    return found


def written_by_lanes(kernel: Kernel) -> set[str]:
    """Names of the shared buffers that lanes write, by stores or by asynchronous copies."""
    return {
        step.box.buffer.name
        for stmt in walk_stmts(kernel.body)
        for step in steps_of(stmt, Ranges())
        if isinstance(step, Effect) and step.kind != READ and step.box.buffer.scope is Scope.SHARED
    }


def _before_barriers(stmt: Stmt) -> Block | None:
    if isinstance(stmt, Intrinsic) and stmt.op == "barrier.wait":
        return None  # who arrives there publishes
    if any(isinstance(step, InnerBarrier) for step in steps_of(stmt, Ranges())):
        return (PUBLISH, stmt)
    return None
