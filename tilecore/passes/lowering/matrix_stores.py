"""A fragment on its way to shared memory by warp-wide stores of small matrices.

Where a lane holds few neighbours of a row (two, in the usual accumulators), its own stores are
narrow. A target may have an instruction that stores whole matrices: each lane brings its registers
and the address of one row. It is taken for a nest that does nothing but store a value computed from
fragments, in a layout that begins like the instruction's, to a shared tile that keeps the matrix'
rows together: along either axis, so a transposed tile is as good.

    for i, j: S[i, j] = cast(F[i, j])   ->   P[r] = cast(F[r]), all r (unrolled)
                                             matrix_store P[0 : 8] -> row of S, 4 matrices
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilecore.hooks.records import MatrixStore
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import TRUE, Const, Expr, Load, Var, binary, const, substitute, walk
from tilecore.ir.layout import THREAD, FragmentLayout
from tilecore.ir.stmts import Allocate, Block, Intrinsic, Let, Parallel, Stmt, Store
from tilecore.passes.elementwise import loop_layout
from tilecore.passes.lowering.lane_nest import mentions
from tilecore.passes.lowering.lane_scope import LANE, LaneScope
from tilecore.passes.lowering.lower_elementwise import lower_nest
from tilecore.passes.scopes import static

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a nest's elements leave.

    Attributes:
        store: the only statement.
        move: the instruction.
        row, column: which nest variable runs along the rows and the columns of its matrices.
        loop: fragment layout over the nest's variables.
    """

    store: Store
    move: MatrixStore
    row: int
    column: int
    loop: FragmentLayout


def lower_matrix_store(nest: Parallel, scope: LaneScope) -> Block | None:
    """Lower a nest by matrix stores; None where they do not fit.

    All lanes of a warp must come here together, and every element must lie in the tile.
    """
    outside = scope.ranges
    extents = _extents(nest)
    if extents is None or scope.is_diverged:
        return None
    for var, extent in zip(nest.vars, extents, strict=True):
        scope.ranges = scope.ranges.with_range(var, 0, extent - 1)
    plan = _plan(nest, extents, scope)
    scope.ranges = outside
    if plan is None:
        return None
    head, registers = _registers(nest, plan, scope)
    return (*head, *_stores(nest.vars, plan, registers, scope))


def _extents(nest: Parallel) -> tuple[int, int] | None:
    """Extents of a nest of two constant ones whose body may be a matrix store."""
    if len(nest.vars) != 2 or len(nest.body) != 1 or not isinstance(nest.body[0], Store):
        return None
    if nest.body[0].buffer.scope is not Scope.SHARED:
        return None
    numbers = [int(e.value) for e in nest.extents if isinstance(e, Const)]
    return (numbers[0], numbers[1]) if len(numbers) == 2 and 0 not in numbers else None


def _plan(nest: Parallel, extents: Place, scope: LaneScope) -> _Plan | None:
    store = nest.body[0]
    assert isinstance(store, Store)
    loads = [node for node in walk(store.value) if isinstance(node, Load)]
    if not loads or any(load.buffer.scope is not Scope.FRAGMENT for load in loads):
        return None
    hooks, target = scope.context.hooks, scope.context.target
    moves: tuple[MatrixStore, ...] = hooks.call("tilecore_matrix_stores", target=target) or ()
    moves = tuple(move for move in moves if move.element_bits == store.buffer.dtype.bits)
    loop = loop_layout(nest, scope.layouts, scope.threads, scope.ranges) if moves else None
    if loop is None or loop.shape != extents or loop.replicas > 1 or loop.threads != scope.threads:
        return None
    axes = [_axis_of(var, nest.vars, store, scope) for var in nest.vars]
    if None in axes or scope.inside(store.buffer, store.indices) != TRUE:
        return None
    layout = scope.shared_layout(store.buffer)
    for move in moves:
        for row, column in ((0, 1), (1, 0)):
            axis = axes[column]
            assert axis is not None
            start = substitute(store.indices[axis], {nest.vars[column]: const(0)})
            width = move.layout.shape[1]
            if layout.vector_run(axis) % width or scope.multiple(scope.simplify(start)) % width:
                continue
            if _begins_like(loop, move.layout, row, column):
                return _Plan(store, move, row, column, loop)
    return None


def _axis_of(var: Var, both: tuple[Var, ...], store: Store, scope: LaneScope) -> int | None:
    """The axis of the tile along which `var` alone counts, by ones."""
    axes = [k for k, index in enumerate(store.indices) if mentions(index, var)]
    if len(axes) != 1:
        return None
    form = scope.ranges.regrouped(scope.simplify(store.indices[axes[0]]))
    steps = [form.step(one) for one in both]
    return axes[0] if steps == [int(one == var) for one in both] else None


def _begins_like(loop: FragmentLayout, matrix: FragmentLayout, row: int, column: int) -> bool:
    """True when each warp holds whole matrices, arranged as `matrix`."""
    lanes = matrix.threads
    for axis, modes in zip((row, column), matrix.axes, strict=True):
        have = loop.axes[axis]
        if have[: len(modes)] != modes:
            return False
        if any(m.space == THREAD and m.stride % lanes for m in have[len(modes) :]):
            return False
    return loop.threads % lanes == 0


def _registers(nest: Parallel, plan: _Plan, scope: LaneScope) -> tuple[Block, Buffer]:
    """The values in registers of the tile's type, in the order of the loop layout."""
    store, value = plan.store, plan.store.value
    if isinstance(value, Load) and value.indices == nest.vars:
        known = scope.layouts.get(value.buffer.name)
        if value.buffer.dtype == store.buffer.dtype and known == plan.loop:
            return (), scope.lane_buffer(value.buffer)
    shape = plan.loop.shape
    name = f"{store.buffer.name}_words"
    values = scope.names.buffer(name, shape, store.buffer.dtype, Scope.FRAGMENT)
    layouts = (*scope.kernel.layouts, (values.name, plan.loop))
    scope.kernel = dataclasses.replace(scope.kernel, layouts=layouts)
    fill = dataclasses.replace(nest, body=(Store(values, nest.vars, value, store.loc),))
    registers = scope.lane_buffer(values)
    return (Allocate(registers, loc=store.loc), *lower_nest(fill, scope)), registers


def _stores(vars: tuple[Var, ...], plan: _Plan, registers: Buffer, scope: LaneScope) -> Block:
    """One instruction for as many matrices at a time as it takes."""
    move, per_matrix = plan.move, plan.move.layout.registers
    flat = scope.lane_buffer(plan.store.buffer)
    places: list[Place] = []
    for first in range(0, plan.loop.registers, per_matrix):
        at = plan.loop.coordinates(0, first)
        places.append((at[0], at[1]))
    result: list[Stmt] = []
    bases: list[tuple[Var, Expr]] = []
    done = 0
    while done < len(places):
        rest = places[done:]
        count = next(c for c in move.counts if c <= len(rest) and _is_grid(rest[:c]))
        at = _coordinates(plan, rest[:count], scope)
        mapping: dict[Var, Expr] = dict(zip(vars, at, strict=True))
        indices = tuple(scope.simplify(substitute(i, mapping)) for i in plan.store.indices)
        lets, offset = _near(bases, scope.offset(plan.store.buffer, indices), flat, scope)
        row = Region(flat, (offset,), (const(1),))
        source = Region(registers, (const(done * per_matrix),), (const(count * per_matrix),))
        hints = (("count", count),)
        result += lets
        result.append(Intrinsic(move.name, (source, row), hints, plan.store.loc))
        done += count
    return tuple(result)


def _near(
    bases: list[tuple[Var, Expr]], offset: Expr, flat: Buffer, scope: LaneScope
) -> tuple[Block, Expr]:
    """`offset` as a named one plus a constant, and the definition of the name if it is new."""
    for name, known in bases:
        rest = scope.ranges.linear(binary("sub", offset, known))
        if not rest.terms:
            return (), binary("add", name, const(rest.constant))
    (size,) = static(flat)
    name = scope.var(f"{flat.name}_at", 0, size - 1)
    bases.append((name, offset))
    return (Let(name, offset),), name


def _is_grid(group: list[Place]) -> bool:
    """True when the matrices' places are affine in the bits of their number."""
    if len(group) == 4:
        (r0, c0), (r1, c1), (r2, c2), last = group
        return last == (r1 + r2 - r0, c1 + c2 - c0)
    return len(group) <= 2


def _coordinates(plan: _Plan, group: list[Place], scope: LaneScope) -> tuple[Expr, ...]:
    """Of the row that this lane passes: row ``lane % rows`` of matrix ``lane / rows``."""
    move = plan.move
    rows, lanes = move.layout.shape[0], move.layout.threads
    lane = scope.simplify(binary("floormod", LANE, const(lanes)))
    result: list[Expr] = []
    for axis in (0, 1):
        modes = plan.loop.axes[axis]
        inner = len(move.layout.axes[0 if axis == plan.row else 1])
        total: Expr = const(group[0][axis])
        weight = 1
        for k, mode in enumerate(modes):
            if k >= inner and mode.space == THREAD and mode.extent > 1:
                digit = scope.thread_digit(mode)
                total = binary("add", total, binary("mul", digit, const(weight)))
            weight *= mode.extent
        for bit in range(len(group).bit_length() - 1):
            stride = group[1 << bit][axis] - group[0][axis]
            digit = binary("floordiv", lane, const(rows << bit))
            digit = scope.simplify(binary("floormod", digit, const(2)))
            total = binary("add", total, binary("mul", digit, const(stride)))
        if axis == plan.row:
            total = binary("add", total, scope.simplify(binary("floormod", lane, const(rows))))
        result.append(scope.simplify(total))
    return tuple(result)
