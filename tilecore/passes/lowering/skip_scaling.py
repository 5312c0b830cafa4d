"""Leave out a multiplication of many registers by factors that are all one.

    parallel (i, j): out[i, j] = out[i, j] * factor[i]
      ->  if any lane of the warp has a factor other than 1: that nest

A running softmax rescales its result by one in most iterations, and the factors are few compared
with what they multiply. Multiplying by one changes nothing, so neither does leaving it out.
"""

from __future__ import annotations

from tilecore.ir.buffers import Region, Scope
from tilecore.ir.dtypes import boolean
from tilecore.ir.expr import Binary, Call, Expr, Load, binary, const
from tilecore.ir.layout import FragmentLayout
from tilecore.ir.stmts import Block, If, Intrinsic, Parallel, Store
from tilecore.passes.lowering.lane_scope import LaneScope

FLYING = "flying"
"""Hint of a nest: the fragment that a contraction in flight writes, which must land before it."""
FEWEST_PRODUCTS = 8  # per factor; below, the test costs what it saves
MOST_FACTORS = 8  # registers of one lane


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
    one = const(1, flat.dtype)
    differs: Expr | None = None
    for register in range(factors):
        test = binary("ne", Load(flat, (const(register),)), one)
        differs = test if differs is None else binary("or", differs, test)
    assert differs is not None
    return (If(Call("lane.any", (differs,), boolean), lowered),)


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
