"""Leave out a multiplication of many registers by factors that are all one.

    parallel (i, j): out[i, j] = out[i, j] * factor[i]
      ->  if any lane of the warp has a factor other than 1: that nest

A running softmax rescales its result by one in most iterations, and the factors are few compared
with what they multiply. Multiplying by one changes nothing, so neither does leaving it out. A nest
may ask for a test of its own for either of two factors: rows grow one by one.
"""

from __future__ import annotations

import functools

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import boolean
from tilecore.ir.expr import Binary, Call, Load, binary, const, walk
from tilecore.ir.layout import FragmentLayout
from tilecore.ir.stmts import Block, For, If, Intrinsic, Parallel, Stmt, Store
from tilecore.ir.visit import exprs_of, map_stmts, substitute_block, walk_stmts
from tilecore.passes.lowering.lane_nest import with_new_loops
from tilecore.passes.lowering.lane_scope import LaneScope

FLYING = "flying"
"""Hint of a nest: the fragment that a contraction in flight writes, which must land before it."""
FACTORS_APART = "factors_apart"
"""Hint of a nest: two factors of a lane are tested one by one, if they have many products."""
FEWEST_PRODUCTS = 8  # per factor; below, the test costs what it saves
MOST_FACTORS = 8  # registers of one lane
ENOUGH_PRODUCTS = 32
"""Per factor, from which on two factors are tested one by one."""


def skip_unit_scaling(nest: Parallel, lowered: Block, scope: LaneScope) -> Block:
    """`lowered`, the lane's code of `nest`, under the test where the nest is such a scaling."""
    flying = dict(nest.hints).get(FLYING)
    if flying is not None:
        lowered = (*_landed(str(flying), scope), *lowered)
    load = _factor(nest)
    if load is None or scope.context.target.lanes_per_warp == 1:
        return lowered
    assert isinstance(nest.body[0], Store)
    products = scope.fragment_layout(nest.body[0].buffer).registers
    factors = scope.fragment_layout(load.buffer).registers
    if factors > MOST_FACTORS or products < FEWEST_PRODUCTS * factors:
        return lowered
    flat = scope.lane_buffer(load.buffer)
    apart = bool(dict(nest.hints).get(FACTORS_APART))
    if apart and factors == 2 and products >= ENOUGH_PRODUCTS * factors:
        halves = [_for_factor(lowered, flat, register, factors) for register in range(factors)]
        if all(halves):
            second = with_new_loops(halves[1], scope)
            return (_tested(flat, range(1), halves[0]), _tested(flat, range(1, 2), second))
    return (_tested(flat, range(factors), lowered),)


def _tested(factors: Buffer, registers: range, then: Block) -> If:
    """`then` where any lane of the warp has a factor other than one in `registers`."""
    one = const(1, factors.dtype)
    tests = [binary("ne", Load(factors, (const(r),)), one) for r in registers]
    differs = functools.reduce(functools.partial(binary, "or"), tests)
    return If(Call("lane.any", (differs,), boolean), then)


def _for_factor(lowered: Block, factors: Buffer, register: int, count: int) -> Block:
    """The part of a lowered scaling that is by one of `count` factors; empty where none is."""
    at = {
        node.indices[0]
        for stmt in walk_stmts(lowered)
        for expr in exprs_of(stmt)
        for node in walk(expr)
        if isinstance(node, Load) and node.buffer == factors
    }
    loops = [s for s in walk_stmts(lowered) if isinstance(s, For) and {s.var} == at]
    if len(loops) != 1 or not all(isinstance(s, For | Store) for s in walk_stmts(lowered)):
        return ()
    (loop,) = loops
    if loop.extent != const(count) or loop.start != const(0) or loop.step != const(1):
        return ()

    def visit(stmt: Stmt) -> Block | None:
        if not (isinstance(stmt, For) and stmt.var == loop.var):
            return None
        return substitute_block(stmt.body, {loop.var: const(register)})

    return map_stmts(lowered, visit)


def _landed(name: str, scope: LaneScope) -> Block:
    """Until contractions in flight are done; registers of other results stay as they were."""
    layout = scope.layouts[name]
    assert isinstance(layout, FragmentLayout)
    flat = scope.flat[name]
    registers = Region(flat, (const(0),), (const(layout.registers),))
    return (Intrinsic("contraction.wait", (const(0), registers)),)


def _factor(nest: Parallel) -> Load | None:
    """The factor of ``x[vars] = x[vars] * factor[some vars]``, all of it in fragments."""
    if len(nest.body) != 1 or not isinstance(nest.body[0], Store):
        return None
    store = nest.body[0]
    value = store.value
    if not isinstance(value, Binary) or value.op != "mul" or store.indices != nest.vars:
        return None
    for own, other in ((value.a, value.b), (value.b, value.a)):
        if own == Load(store.buffer, store.indices) and isinstance(other, Load):
            buffers = (store.buffer, other.buffer)
            is_float = store.buffer.dtype.is_float
            if is_float and all(b.scope is Scope.FRAGMENT for b in buffers):
                return other if other.buffer != store.buffer else None
    return None
