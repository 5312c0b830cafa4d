"""Sums that a loop only adds up are carried by each lane, and cross lanes once, after the loop.

    fill total = 0                                    fill total = 0
    for k:                                            for k:
      reduce sum x -> part                     ->       sum_in_lane x -> part
      total[i] = total[i] * f[i] + part[i]              total[i] = total[i] * f[i] + part[i]
                                                      sum_lanes total

Every lane that holds a copy of `total` adds its own share of `x`; factors are equal in all copies,
so the copies' sum is the total. The rounding of the sums changes, their number of additions does
not grow.
"""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Binary, Const, Expr, Load
from tilecore.ir.layout import FragmentLayout
from tilecore.ir.program import Kernel, Program
from tilecore.ir.stmts import Allocate, Block, Fill, For, Intrinsic, Parallel, Reduce, Stmt, Store
from tilecore.ir.visit import buffers_in, child_blocks, walk_stmts
from tilecore.passes.reduction_plan import plan_reduction, reduce_of
from tilecore.passes.scopes import loads_in, per_kernel, whole

IN_LANE, ACROSS = "fragment.sum_in_lane", "fragment.sum_lanes"


def defer_sums(program: Program, context: Context) -> Program:
    """See the module's text."""
    warp = context.target.lanes_per_warp
    if warp == 1:
        return program

    def visit(kernel: Kernel) -> Kernel:
        return dataclasses.replace(kernel, body=_in_block(kernel.body, kernel, warp))

    return per_kernel(program, visit)


def _in_block(block: Block, kernel: Kernel, warp: int) -> Block:
    result: list[Stmt] = []
    for index, stmt in enumerate(block):
        if isinstance(stmt, For):
            stmt, sums = _in_loop(stmt, block[:index], block[index + 1 :], kernel, warp)
            result += [stmt, *sums]
        else:
            result.append(stmt)
    return tuple(result)


def _in_loop(
    loop: For, before: Block, after: Block, kernel: Kernel, warp: int
) -> tuple[For, list[Stmt]]:
    body, sums = list(loop.body), []
    for index, stmt in enumerate(body):
        reduce = sum_of(stmt)
        if reduce is None:
            continue
        part = reduce.dst.buffer
        total = _carried(loop.body, part)
        layout = kernel.layout_of(reduce.src.buffer)
        if total is None or not isinstance(layout, FragmentLayout) or not part.dtype.is_float:
            continue
        plan = plan_reduction(layout, reduce.axis, warp)
        same = kernel.layout_of(part) == kernel.layout_of(total) and total.dtype == reduce.src.dtype
        if not (plan.masks or plan.across) or not same or total.shape != part.shape:
            continue
        if not (_starts_at_zero(before, total) and is_dead(after, part)):
            continue
        axis = ("axis", reduce.axis)
        body[index] = Intrinsic(IN_LANE, (reduce.dst, reduce.src), (axis,), reduce.loc)
        regions: tuple[Region, ...] = (whole(total), reduce.src)
        if isinstance(stmt, Intrinsic):  # warps share a row: scratch, now used once
            scratch = stmt.args[2]
            assert isinstance(scratch, Region)
            regions = (*regions, scratch)
            sums.append(Allocate(scratch.buffer, loc=reduce.loc))
        sums.append(Intrinsic(ACROSS, regions, (axis,), reduce.loc))
    moved = {s.buffer.name for s in sums if isinstance(s, Allocate)}
    kept = tuple(s for s in body if not (isinstance(s, Allocate) and s.buffer.name in moved))
    return dataclasses.replace(loop, body=kept), sums


def sum_of(stmt: Stmt) -> Reduce | None:
    """The sum that a statement is, inside warps or across them."""
    if isinstance(stmt, Intrinsic) and stmt.op == "tile.reduce":
        stmt, _ = reduce_of(stmt)
    return stmt if isinstance(stmt, Reduce) and stmt.op == "sum" and stmt.clear else None


def _carried(body: Block, part: Buffer) -> Buffer | None:
    """The buffer to which a loop adds `part`, if that is all it does with the two."""
    stores = [
        s
        for s in walk_stmts(body)
        if isinstance(s, Store) and any(load.buffer == part for load in loads_in(s.value))
    ]
    if len(stores) != 1:
        return None
    (store,) = stores
    total = store.buffer
    parallels = [s for s in walk_stmts(body) if isinstance(s, Parallel) and store in s.body]
    if len(parallels) != 1 or store.indices != parallels[0].vars or total == part:
        return None
    if not any(parallels[0] is s for s in body) or not _adds(store, part):
        return None
    # Nothing else in the loop reads or writes either.
    others = [s for s in walk_stmts(body) if s is not store and s is not parallels[0]]
    for other in others:
        if isinstance(other, Allocate) or _sums_to(other, part):
            continue
        if isinstance(other, For | Parallel) or _children(other):
            continue  # what is inside comes by itself
        if {total, part} & set(buffers_in((other,))):
            return None
    reduces = [s for s in walk_stmts(body) if _sums_to(s, part)]
    return total if len(reduces) == 1 and total.scope is Scope.FRAGMENT else None


def _sums_to(stmt: Stmt, part: Buffer) -> bool:
    reduce = sum_of(stmt)
    return reduce is not None and reduce.dst.buffer == part


def _children(stmt: Stmt) -> bool:
    return any(child_blocks(stmt))


def _adds(store: Store, part: Buffer) -> bool:
    """True for ``total * x + part`` and ``total + part``, where x holds neither."""
    match store.value:
        case Binary(op="add", a=a, b=b):
            for one, other in ((a, b), (b, a)):
                if other == Load(part, store.indices) and _scaled(one, store, part):
                    return True
        case _:
            pass
    return False


def _scaled(value: Expr, store: Store, part: Buffer) -> bool:
    own = Load(store.buffer, store.indices)
    if value == own:
        return True
    match value:
        case Binary(op="mul", a=a, b=b):
            for one, other in ((a, b), (b, a)):
                held = {load.buffer for load in loads_in(other)}
                if one == own and not held & {store.buffer, part}:
                    return True
        case _:
            pass
    return False


def _starts_at_zero(before: Block, total: Buffer) -> bool:
    touching = [s for s in before if total in buffers_in((s,)) and not isinstance(s, Allocate)]
    if not touching or not isinstance(touching[-1], Fill):
        return False
    fill = touching[-1]
    value = fill.value
    return fill.dst == whole(total) and isinstance(value, Const) and value.value == 0


def is_dead(after: Block, part: Buffer) -> bool:
    """True when what comes after the loop writes all of `part` before it reads any of it."""
    for stmt in after:
        if part not in buffers_in((stmt,)) or isinstance(stmt, Allocate):
            continue
        if isinstance(stmt, Fill | Reduce):
            is_source = isinstance(stmt, Reduce) and (stmt.src.buffer == part or not stmt.clear)
            return stmt.dst == whole(part) and not is_source
        if not isinstance(stmt, Parallel) or stmt.extents != part.shape:
            return False
        first = next((s for s in stmt.body if part in buffers_in((s,))), None)
        if not isinstance(first, Store) or first.buffer != part or first.indices != stmt.vars:
            return False
        return not any(load.buffer == part for load in loads_in(first.value))
    return True
