"""Barriers of the author's (``T.alloc_barrier``): set up once, by one lane, before all else.

    barrier = alloc_barrier(4)             barrier = allocate shared uint64[1]
    barrier.init barrier[0], 4       ->    if lane.id() == 0 { barrier.init barrier[0], 4 }
    ...                                    sync_block; ...

A barrier at which nobody arrives or waits is left away. Barriers that passes make for roles are
set up by those passes, in warp scopes of their own.
"""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Region
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Call, binary, const
from tilecore.ir.program import Kernel, Program
from tilecore.ir.stmts import Allocate, Block, If, Intrinsic, Stmt, WarpScope
from tilecore.ir.visit import buffers_in, walk_stmts
from tilecore.passes.scopes import per_kernel, rewrite_block

_INIT = "barrier.init"
_FIRST = binary("eq", Call("lane.id", (), int32), const(0, int32))


def own_barriers(program: Program, context: Context | None = None) -> Program:
    """See the module's text."""
    del context
    return per_kernel(program, _visit)


def _visit(kernel: Kernel) -> Kernel:
    inits = [s for s in walk_stmts(kernel.body) if isinstance(s, Intrinsic) and s.op == _INIT]
    if not inits or any(isinstance(s, WarpScope) and s.role == "setup" for s in kernel.body):
        return kernel
    names = {arg.buffer.name for s in inits for arg in s.args if isinstance(arg, Region)}
    allocated: list[Stmt] = []

    def take(stmt: Stmt) -> Block | None:
        if isinstance(stmt, Intrinsic) and stmt.op == _INIT:
            return ()
        if isinstance(stmt, Allocate) and stmt.buffer.name in names:
            allocated.append(stmt)
            return ()
        return None

    body = rewrite_block(kernel.body, take)
    used = {buffer.name for buffer in buffers_in(body)} & names
    gone = names - used
    layouts = tuple((name, layout) for name, layout in kernel.layouts if name not in gone)
    kernel = dataclasses.replace(kernel, body=body, layouts=layouts)
    if not used:
        return kernel
    setup = tuple(s for s in inits if _name(s) in used)
    first = If(_FIRST, setup)
    declared = tuple(s for s in allocated if isinstance(s, Allocate) and s.buffer.name in used)
    return dataclasses.replace(kernel, body=(*declared, first, Intrinsic("sync_block"), *body))


def _name(stmt: Intrinsic) -> str:
    place = stmt.args[0]
    assert isinstance(place, Region)
    return place.buffer.name
