"""Masks: nests that replace elements where a condition on their place does not hold.

    parallel (i, j): x[i, j] = select(key + j < limit and key + j <= query + i, x[i, j], c)

Each conjunct is written as "slack >= 0". The least slack over a group's rows tells when a mask
changes nothing (`skip_full_masks`), the largest when it leaves nothing, and how many steps of a
loop come before that (`steps_of_groups`). Rows that a kernel stores nowhere, because they lie
behind a tensor's end, need no step at all.
"""

from __future__ import annotations

from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Binary, Call, Const, Expr, Load, Select, Var, binary, const, free_vars
from tilecore.ir.expr import dtype_of_expr as type_of
from tilecore.ir.layout import THREAD, FragmentLayout
from tilecore.ir.linear import Linear
from tilecore.ir.program import Kernel
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import (
    Block,
    Copy,
    For,
    If,
    Intrinsic,
    Let,
    Parallel,
    Stmt,
    Store,
)
from tilecore.ir.visit import destinations, regions_of, walk_stmts
from tilecore.passes.lowering.lane_scope import LaneScope
from tilecore.passes.roles.ring import inlined

IDLE_HINT = "masked_is_idle"
"""Of a loop: a step changes nothing in rows of which its mask leaves nothing."""

GROUP = Var("lane.group")
"""The number of a lane's group."""


def slacks_of(nest: Parallel) -> tuple[Expr, ...] | None:
    """For a mask over (rows, columns) the conjuncts, as what must not be negative; else None."""
    if len(nest.vars) != 2 or len(nest.body) != 1 or not isinstance(nest.body[0], Store):
        return None
    store = nest.body[0]
    value = store.value
    if store.indices != nest.vars or not isinstance(value, Select):
        return None
    if value.a != Load(store.buffer, store.indices) or not isinstance(value.b, Const):
        return None
    found = [_slack(part) for part in _conjuncts(value.condition)]
    return None if None in found else tuple(one for one in found if one is not None)


def _conjuncts(condition: Expr) -> list[Expr]:
    if isinstance(condition, Binary) and condition.op == "and":
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def _slack(condition: Expr) -> Expr | None:
    if not isinstance(condition, Binary) or type_of(condition.a) != int32:
        return None
    a, b = condition.a, condition.b
    match condition.op:
        case "lt":
            return binary("sub", binary("sub", b, a), const(1))
        case "le":
            return binary("sub", b, a)
        case "gt":
            return binary("sub", binary("sub", a, b), const(1))
        case "ge":
            return binary("sub", a, b)
        case _:
            return None


def group_rows(layout: object, threads: int) -> tuple[int, int] | None:
    """(lanes of a group, rows that it owns) where groups of lanes own neighbouring whole rows."""
    if not isinstance(layout, FragmentLayout) or layout.replication or not layout.axes[0]:
        return None
    last = layout.axes[0][-1]
    if last.space != THREAD or last.extent < 2 or last.extent * last.stride != threads:
        return None
    rows = layout.shape[0]
    return last.stride, rows // last.extent


def _extreme(
    slack: Expr, nest: Parallel, group: Var, rows: int, largest: bool, ranges: Ranges
) -> Linear | None:
    """The largest or least slack over a group's rows and all columns."""
    columns = nest.extents[1]
    if not isinstance(columns, Const):
        return None
    first = Linear(((group, rows),))
    ends = {
        nest.vars[0]: (first, first.shifted(rows - 1)),
        nest.vars[1]: (Linear(), Linear((), int(columns.value) - 1)),
    }
    form = ranges.linear(slack)
    for term, coefficient in form.terms:
        if isinstance(term, Var) and term in ends:
            low, high = ends[term]
            form = form.replaced(term, high if (coefficient > 0) == largest else low)
        elif any(var in ends for var in free_vars(term)):
            return None
    return form


# --- masks that change nothing -------------------------------------------------------------------


def skip_full_masks(nest: Parallel, lowered: Block, scope: LaneScope) -> Block:
    """`lowered`, the lane's code of a mask, only where it may change something in the group's rows;
    nothing where it never does, as in the steps behind a loop's first."""
    slacks = slacks_of(nest)
    if slacks is None or scope.context.target.lanes_per_warp == 1:
        return lowered
    assert isinstance(nest.body[0], Store)
    layout = scope.kernel.layout_of(nest.body[0].buffer)
    owned = group_rows(layout, scope.threads)
    if owned is None or owned[0] % scope.context.target.lanes_per_warp:
        return lowered
    group = scope.group_of(owned[0])
    assert isinstance(group, Var)
    hides: Expr | None = None
    for slack in slacks:
        least = _extreme(slack, nest, group, owned[1], False, scope.ranges)
        if least is None:
            return lowered
        if scope.ranges.is_nonnegative(least):
            continue
        test = binary("lt", least.expr(int32), const(0))
        hides = test if hides is None else binary("or", hides, test)
    return () if hides is None else (If(hides, lowered),)


# --- steps that leave nothing --------------------------------------------------------------------


def steps_of_groups(
    kernel: Kernel, loop: For, scores: Buffer, layout: object, ranges: Ranges
) -> tuple[Expr, int] | None:
    """(steps that the lane's group must take, lanes of a group), in terms of the variable `GROUP`.

    None where groups own no rows, or where nothing is known.

    Args:
        kernel: the whole kernel, whose threads hold `scores`.
        loop: the loop.
        scores: what its mask works on.
        layout: of `scores`.
        ranges: bounds of the kernel's variables.
    """
    owned = group_rows(layout, kernel.threads)
    if owned is None or loop.var.dtype != int32:
        return None
    if not (isinstance(loop.step, Const) and loop.step.value == 1):
        return None
    count = _steps_before_idle(loop, scores, owned[1], ranges)
    slack = _stored_rows(kernel, (scores.static_shape or (0,))[0], ranges)
    if slack is not None:  # the group's first row is stored, or none is
        left = slack.plus(Linear(((GROUP, owned[1]),)), -1).expr(int32)
        end = binary("add", loop.start, loop.extent) if count is None else count
        count = Select(binary("ge", left, const(0)), end, loop.start, int32)
    if count is None:
        return None
    count = binary("sub", count, loop.start)
    return binary("max", const(0), binary("min", loop.extent, count)), owned[0]


def _steps_before_idle(loop: For, scores: Buffer, rows: int, ranges: Ranges) -> Expr | None:
    """The first step of which a mask leaves nothing, where the author says that such ones change
    nothing."""
    if not dict(loop.hints).get(IDLE_HINT):
        return None
    lets = {s.var: s.value for s in loop.body if isinstance(s, Let)}
    masks = [s for s in walk_stmts(loop.body) if isinstance(s, Parallel) and slacks_of(s)]
    masks = [s for s in masks if isinstance(s.body[0], Store) and s.body[0].buffer == scores]
    if len(masks) != 1:
        return None
    count: Expr | None = None
    for slack in slacks_of(masks[0]) or ():
        most = _extreme(inlined(slack, lets), masks[0], GROUP, rows, True, ranges)
        if most is None:
            continue
        terms = dict(most.terms)
        slope = terms.pop(loop.var, 0)
        if slope >= 0 or any(loop.var in free_vars(term) for term in terms):
            continue
        if GROUP not in {var for term in terms for var in free_vars(term)}:
            continue  # the same for all groups: the author's loop ends there
        left = Linear(tuple(terms.items()), most.constant).expr(int32)
        steps = binary("add", binary("floordiv", left, const(-slope)), const(1))
        count = steps if count is None else binary("min", count, steps)
    return count


def _stored_rows(kernel: Kernel, rows: int, ranges: Ranges) -> Linear | None:
    """What is not negative, less a row's number, exactly if the kernel stores that row of a tile.

    None where it stores anything else than tiles of so many rows that all begin at one place and
    end at equal extents, and where no row lies behind those.
    """
    found: set[Linear] = set()
    for stmt in walk_stmts(kernel.body):
        if not _writes_global(stmt):
            continue
        if not isinstance(stmt, Copy) or stmt.src.buffer.scope is not Scope.FRAGMENT:
            return None
        dst, shape = stmt.dst, stmt.dst.static_shape
        if not shape or shape[0] != rows or stmt.src.static_shape != shape:
            return None
        last = ranges.linear(dst.buffer.shape[dst.axes[0]]).shifted(-1)
        found.add(last.plus(ranges.linear(dst.starts[dst.axes[0]]), -1))
    if len(found) != 1:
        return None
    (slack,) = found
    return None if ranges.is_nonnegative(slack.shifted(1 - rows)) else slack


def _writes_global(stmt: Stmt) -> bool:
    """Whether a statement itself may write global memory."""
    buffers = destinations(stmt)
    if isinstance(stmt, Intrinsic):  # any argument, the first one too
        buffers = tuple(region.buffer for region in regions_of(stmt))
    return any(buffer.scope is Scope.GLOBAL for buffer in buffers)


def group_number(lanes: int) -> Expr:
    """The number of the lane's group, as an expression."""
    number = binary("floordiv", Call("lane.id", (), int32), const(lanes))
    return Call("lane.uniform", (number,), int32)
