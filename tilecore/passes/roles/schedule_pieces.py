"""What the schedules of producer and consumer warps are put together from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Expr, Var, binary, const
from tilecore.ir.stmts import Block, For, Gemm, Intrinsic, Let, LoopKind, Stmt
from tilecore.ir.visit import bound_vars, substitute_block, walk_stmts
from tilecore.passes.roles.ring import Group, rebuffered
from tilecore.passes.scopes import Names, with_hint

RunsBeside = Callable[[Gemm], bool]
"""Whether a gemm's atom runs beside the warps that issue it."""


def renamed(block: Block, names: Names) -> Block:
    """A second copy of a block, with new names for all that it binds."""
    mapping: dict[Var, Expr] = {
        var: dataclasses.replace(var, name=names.fresh(var.name))
        for stmt in walk_stmts(block)
        for var in bound_vars(stmt)
    }
    return substitute_block(block, mapping)


def slots_of(groups: list[Group], step: Expr) -> dict[str, tuple[Buffer, Expr]]:
    """By name of the author's buffer: the buffer with slots, and the slot of step number `step`."""
    return {
        buffer.name: (buffer, group.ring.slot_of(step))
        for group in groups
        for buffer in group.ring.buffers
    }


def on_slots(gemm: Gemm, group: Group | None, step: Expr) -> Gemm:
    """A gemm on the slots of iteration `step`."""
    new = gemm if group is None else rebuffered(gemm, slots_of([group], step))
    assert isinstance(new, Gemm)
    return new


def loop_value(loop: For, counter: Var) -> list[Stmt]:
    """The loop's variable, where its ring counts steps by another one."""
    if counter == loop.var:
        return []
    value = binary("add", loop.start, binary("mul", counter, loop.step))
    return [Let(loop.var, value, loop.loc)]


def counted_loop(loop: For, counter: Var, body: list[Stmt]) -> For:
    """The loop over the steps that `counter` counts."""
    dtype = loop.var.dtype
    return For(
        counter, const(0, dtype), loop.extent, const(1, dtype), tuple(body),
        LoopKind.SERIAL, None, loop.hints, loop.loc,
    )  # fmt: skip


def asynchronous(gemm: Gemm) -> Gemm:
    """The gemm, started only."""
    return dataclasses.replace(gemm, hints=with_hint(gemm.hints, "asynchronous", True))


def wait_for(pending: int, gemm: Gemm, with_a: bool = False) -> Stmt:
    """Until at most `pending` contractions run; `gemm` is then finished, and its operands free."""
    regions = (gemm.c, gemm.a) if with_a else (gemm.c,)
    return Intrinsic("contraction.wait", (const(pending), *regions), (), gemm.loc)
