"""Make what lanes write to shared memory visible to agents that read it on their own.

Contractions that read shared memory themselves, and copy engines, see a lane's ordinary writes only
after the lane has published them. Where such an agent reads a buffer that lanes write, every
barrier of the block is preceded by

    memory.publish()

so that whoever starts an agent after a barrier finds all that was written before it. A second one
is left out where lanes have touched no memory since the first: what they read before that one, of a
slot that they then let go, it has ordered, too.
"""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Region, Scope
from tilecore.ir.program import Kernel, Program
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import Block, Gemm, Intrinsic, Parallel, Stmt
from tilecore.ir.visit import BODY_FIELDS, walk_stmts
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
        body = rewrite_block(kernel.body, _before_barriers)
        return dataclasses.replace(kernel, body=_once(body, kernel, context))

    return per_kernel(program, visit)


def _once(block: Block, kernel: Kernel, context: Context) -> Block:
    """The block without publishing that follows another one with nothing to publish between."""
    result: list[Stmt] = []
    is_done = False
    for stmt in block:
        if stmt == PUBLISH:
            if not is_done:
                result.append(stmt)
            is_done = True
            continue
        changes = {
            name: _once(inner, kernel, context)
            for name in BODY_FIELDS
            if not isinstance(stmt, Parallel) and (inner := getattr(stmt, name, None))
        }
        result.append(dataclasses.replace(stmt, **changes) if changes else stmt)
        is_done = is_done and not changes and _is_silent(stmt, kernel, context)
    return tuple(result)


def _is_silent(stmt: Stmt, kernel: Kernel, context: Context) -> bool:
    """True for statements in which lanes touch no memory: barriers, and what agents do."""
    if isinstance(stmt, Gemm):
        return _agent_reads(stmt, kernel, context)
    if isinstance(stmt, Intrinsic):
        return stmt.op in _SILENT
    return False


_SILENT = ("sync_block", "sync_warp", "contraction.wait", "contraction.settle")
"""Operations that neither read nor write memory for a lane."""


def read_by_agents(kernel: Kernel, context: Context) -> set[str]:
    """Names of the shared buffers that agents read."""
    found: set[str] = set()
    for stmt in walk_stmts(kernel.body):
        regions: tuple[Region, ...] = ()
        if isinstance(stmt, Gemm):
            if _agent_reads(stmt, kernel, context):
                regions = (stmt.a, stmt.b)
        elif isinstance(stmt, Intrinsic) and stmt.op == "bulk.store":
            regions = tuple(arg for arg in stmt.args if isinstance(arg, Region))
        found |= {r.buffer.name for r in regions if r.buffer.scope is Scope.SHARED}
    return found


def _agent_reads(gemm: Gemm, kernel: Kernel, context: Context) -> bool:
    """True when a contraction reads shared memory on its own."""
    threads = int(dict(kernel.hints).get("tile_threads", kernel.threads))
    atom = select_atom(gemm, threads, context)
    return atom is not None and atom.b is None


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
