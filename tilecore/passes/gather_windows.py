"""Windows of an image (``tile.windows``) as nests in which lanes gather them.

    tile.windows A, s, row, column   ->   parallel i, j: s[i, j] = A[...], 0 outside of the image

Before all other passes, wherever no copy engine could take the statement: the target has none for
windows (capability ``window_copies``), or the tile is no shared buffer that a pipelined loop at the
top of its kernel fills. `roles/specialize_warps` decides about the rest, and gathers what it
leaves.
"""

from __future__ import annotations

import dataclasses
from typing import TypeGuard

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Scope
from tilecore.ir.expr import Var
from tilecore.ir.lane_dependence import is_per_lane
from tilecore.ir.program import Kernel, Program
from tilecore.ir.stmts import Alias, Block, Intrinsic, Stmt
from tilecore.ir.visit import map_stmts, walk_stmts
from tilecore.ir.windows import WINDOWS, nest, windows_of
from tilecore.passes.scopes import Names, is_pipelined, is_whole

CAPABILITY = "window_copies"
GATHERED = "gathered"
"""Hint ``gathered.NAME`` of a kernel: why lanes gather the windows in this shared buffer."""


def gather_windows(program: Program, context: Context) -> Program:
    """See the module's text."""
    if not any(_has_windows(kernel) for kernel in program.kernels):
        return program
    names = Names(program)
    takes = context.target.has(CAPABILITY)
    kernels = tuple(
        gathered(kernel, names, _candidates(kernel) if takes else ()) for kernel in program.kernels
    )
    return dataclasses.replace(program, kernels=kernels)


def gathered(kernel: Kernel, names: Names, kept: Block = ()) -> Kernel:
    """The kernel with nests in place of its ``tile.windows``, but for those of `kept`."""

    def visit(stmt: Stmt) -> Stmt | None:
        if not is_windows(stmt) or any(stmt is one for one in kept):
            return None
        name = windows_of(stmt)[1].buffer.name
        i, j = (Var(names.fresh(f"{name}_{side}")) for side in ("row", "column"))
        return nest(stmt, (i, j))

    return dataclasses.replace(kernel, body=map_stmts(kernel.body, visit))


def is_windows(stmt: Stmt) -> TypeGuard[Intrinsic]:
    """True for ``tile.windows``."""
    return isinstance(stmt, Intrinsic) and stmt.op == WINDOWS


def _has_windows(kernel: Kernel) -> bool:
    return any(is_windows(stmt) for stmt in walk_stmts(kernel.body))


def _candidates(kernel: Kernel) -> Block:
    """Statements that a copy engine may take, as far as the author's program tells."""
    if is_per_lane(kernel.body) or any(isinstance(s, Alias) for s in walk_stmts(kernel.body)):
        return ()
    loops = [s for s in kernel.body if is_pipelined(s)]
    found: list[Stmt] = []
    for stmt in (inner for loop in loops for inner in loop.body):
        if not is_windows(stmt):
            continue
        windows, dst, _, _ = windows_of(stmt)
        same = windows.image.dtype == dst.dtype and dst.dtype.bits >= 8
        if same and dst.buffer.scope is Scope.SHARED and is_whole(dst):
            found.append(stmt)
    return tuple(found)
