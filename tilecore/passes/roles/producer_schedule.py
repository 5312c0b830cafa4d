"""What the producing lane does for one pipelined loop: its copies, in the order of their use.

    for k: wait empty(k); expect bytes; copies of iteration k, group by group

Where the consumers run their last contraction one iteration late, its operand is loaded late, too:
what they wait for first is not queued behind it.

    first groups of 0; for k: first groups of k + 1; the late group of k
"""

from __future__ import annotations

from tilecore.ir.buffers import Region
from tilecore.ir.expr import Expr, Var, binary, const
from tilecore.ir.stmts import Copy, For, If, Let, Stmt
from tilecore.passes.roles.ring import Group, Ring, substituted
from tilecore.passes.roles.window_copies import bulk_load
from tilecore.passes.scopes import Names, bytes_of


def producer_loop(
    loop: For, groups: list[Group], later: Group | None, names: Names, base: Expr | None = None
) -> list[Stmt]:
    """The producer's loop, and what stands before it.

    Args:
        loop: the author's loop.
        groups: its copies.
        later: the one of `groups` that is read one iteration late; None when there is none.
        names: for the loop's variable.
        base: number of the first step; slots and turns of the rings follow it. None is 0.
    """
    dtype = loop.var.dtype
    step = Var(names.fresh(f"{loop.var.name}_ahead"), dtype)
    zero, one = const(0, dtype), const(1, dtype)

    def loads(chosen: list[Group], at: Expr) -> tuple[Stmt, ...]:
        number = at if base is None else binary("add", base, at)
        return tuple(stmt for group in chosen for stmt in load_group(loop, group, at, number))

    before: list[Stmt] = []
    body = loads(groups, step)
    first = [group for group in groups if group is not later]
    if later is not None and first:
        after = binary("add", step, one)
        before = [If(binary("gt", loop.extent, zero), loads(first, zero))]
        body = (If(binary("lt", after, loop.extent), loads(first, after)), *loads([later], step))
    return [*before, For(step, zero, loop.extent, one, body, loc=loop.loc)]


def load_alone(copy: Copy, ring: Ring, dst: Region, step: Expr) -> list[Stmt]:
    """A copy with a ring of its own, into `dst`, its slot of step number `step`."""
    load = bulk_load(copy, copy.src, dst, ring.full_at(step))
    return [ring.wait_empty(step), ring.expect(step, bytes_of(copy.dst)), load]


def load_group(loop: For, group: Group, iteration: Expr, step: Expr) -> list[Stmt]:
    """The copies of one group for an iteration of the loop, into the slot of step number `step`."""
    ring = group.ring
    at = binary("add", loop.start, binary("mul", iteration, loop.step))
    lets = {s.var: s.value for s in loop.body if isinstance(s, Let)}
    total = sum(bytes_of(copy.dst) for copy in group.copies)
    result: list[Stmt] = [ring.wait_empty(step), ring.expect(step, total)]
    for number, (copy, buffer) in enumerate(zip(group.copies, ring.buffers, strict=True)):
        src = substituted(copy.src, lets, {loop.var: at})
        dst = ring.slot(substituted(copy.dst, lets, {loop.var: at}), buffer, step)
        hints = (("parts", ring.sharers),) if number in group.shared else ()
        result.append(bulk_load(copy, src, dst, ring.full_at(step), hints))
    return result
