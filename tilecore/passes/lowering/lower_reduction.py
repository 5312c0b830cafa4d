"""A reduction as one lane's code: in the lane, then inside the warp, then across warps.

for each of the lane's results: acc = neutral; for reduced registers: acc = op(acc, src)
acc = op(acc, exchange with lane ^ mask)                       for each mask of the plan
scratch[part, element] = acc; barrier; acc = op of all parts   when warps share an element
dst = acc, or op(dst, acc) without `clear`
"""

from __future__ import annotations

import itertools

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import boolean, float32
from tilecore.ir.expr import (
    Call,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    all_of,
    as_dtype,
    binary,
    const,
    dtype_of_expr,
)
from tilecore.ir.layout import THREAD, FragmentLayout
from tilecore.ir.reductions import COMBINES, accumulator_dtype, neutral
from tilecore.ir.stmts import Allocate, Block, For, If, Intrinsic, LoopKind, Reduce, Stmt, Store
from tilecore.passes.lowering.lane_scope import LANE, LaneScope, guarded
from tilecore.passes.reduction_plan import ReductionPlan, plan_reduction
from tilecore.passes.scopes import static
from tilecore.passes.spread import drop_axis, register_modes

MAX_OF_THREE = "max_of_three"
"""Capability: the largest of three signed integers in one instruction, `lane.max_bits`."""
FEWEST_ELEMENTS = 8  # of one result; below, the test costs what it saves
MOST_RESULTS = 8  # of a lane
ALWAYS = const(True, boolean)


def lower_reduce(reduce: Reduce, scratch: Region | None, scope: LaneScope) -> Block:
    """Lower a reduction of a whole fragment into a whole fragment of its natural layout."""
    return _Reduction(reduce, scratch, scope).run()


def lower_sum_in_lane(intrinsic: Intrinsic, scope: LaneScope) -> Block:
    """Lower ``fragment.sum_in_lane``: each lane's share of a sum."""
    dst, src = intrinsic.args
    assert isinstance(dst, Region) and isinstance(src, Region)
    axis = int(dict(intrinsic.hints)["axis"])
    reduce = Reduce("sum", src, dst, axis, True, False, intrinsic.loc)
    return _Reduction(reduce, None, scope).run(crosses_lanes=False)


def lower_sum_lanes(intrinsic: Intrinsic, scope: LaneScope) -> Block:
    """Lower ``fragment.sum_lanes``: all copies of an element become the sum of the copies."""
    total, src, *scratch = intrinsic.args
    assert isinstance(total, Region) and isinstance(src, Region)
    axis = int(dict(intrinsic.hints)["axis"])
    place = scratch[0] if scratch and isinstance(scratch[0], Region) else None
    reduce = Reduce("sum", src, total, axis, True, False, intrinsic.loc)
    reduction = _Reduction(reduce, place, scope)
    plan = plan_reduction(reduction.layout, axis, scope.context.target.lanes_per_warp)
    flat = scope.lane_buffer(total.buffer)
    across = reduction.across_warps(flat, plan) if plan.across else ()
    return (*((reduction.in_warp(flat, plan),) if plan.masks else ()), *across)


def combine(op: str, a: Expr, b: Expr, nan_propagate: bool) -> Expr:
    """``a op b`` in their common dtype."""
    name, dtype = COMBINES[op], dtype_of_expr(a)
    if nan_propagate and name in ("max", "min") and dtype.is_float:
        return Call(f"lane.{name}_nan", (a, b), dtype)
    return binary(name, a, b)


class _Reduction:
    def __init__(self, reduce: Reduce, scratch: Region | None, scope: LaneScope) -> None:
        self.reduce = reduce
        self.scratch = scratch
        self.scope = scope
        self.layout = scope.fragment_layout(reduce.src.buffer)
        self.dtype = accumulator_dtype(reduce.op, reduce.dst.dtype)
        keep = len(reduce.dst.shape) == len(reduce.src.shape)
        self.natural: FragmentLayout = drop_axis(self.layout, reduce.axis, keep)
        self.keep = keep

    def run(self, crosses_lanes: bool = True) -> Block:
        """The statements; without `crosses_lanes` each lane keeps what it has of a result."""
        scope, reduce = self.scope, self.reduce
        plan = plan_reduction(self.layout, reduce.axis, scope.context.target.lanes_per_warp)
        results = self.natural.registers
        acc = scope.names.buffer(
            f"{reduce.dst.buffer.name}_acc", (results,), self.dtype, Scope.LOCAL
        )
        block: list[Stmt] = [Allocate(acc, loc=reduce.loc)]
        r = scope.var("r", 0, results - 1)
        zero = Store(acc, (r,), neutral(reduce.op, self.dtype), reduce.loc)
        block += self.by_bits(acc, (_unrolled(r, results, (zero,)), self.in_lane(acc)))
        if plan.masks and crosses_lanes:
            block.append(self.in_warp(acc, plan))
        if plan.across and crosses_lanes:
            block += self.across_warps(acc, plan)
        return (*block, self.finish(acc))

    def by_bits(self, acc: Buffer, plain: Block) -> Block:
        """`plain`, or a maximum over bit patterns, three at once, and `plain` where that fails.

        Signed integers and floats that are not negative have one order, and each of these is above
        all negative ones of either: a result that is not negative (and no nan) is the maximum.
        """
        scope, reduce = self.scope, self.reduce
        sources = self.sources()
        if sources is None or not scope.context.target.has(MAX_OF_THREE):
            return plain
        flat = scope.lane_buffer(reduce.src.buffer)
        block: list[Stmt] = []
        failed: Expr | None = None
        for result, registers in enumerate(sources):
            values: list[Expr] = [Load(flat, (const(register),)) for register in registers]
            own = Load(acc, (const(result),))
            if not reduce.clear:
                values.insert(0, Load(scope.lane_buffer(reduce.dst.buffer), (const(result),)))
            block.append(Store(acc, (const(result),), values.pop(0), reduce.loc))
            while values:
                taken, values = values[:2], values[2:]
                total = Call("lane.max_bits", (own, *taken, *([own] * (2 - len(taken)))), float32)
                block.append(Store(acc, (const(result),), total, reduce.loc))
            test = Unary("not", binary("ge", own, const(0.0, float32)), boolean)
            failed = test if failed is None else binary("or", failed, test)
        assert failed is not None
        return (*block, If(Call("lane.any", (failed,), boolean), plain))

    def sources(self) -> list[list[int]] | None:
        """Registers that each result is the maximum of; None where `by_bits` does not apply."""
        scope, reduce = self.scope, self.reduce
        dtypes = {reduce.src.dtype, reduce.dst.dtype, self.dtype}
        if reduce.op != "max" or reduce.nan_propagate or dtypes != {float32}:
            return None
        if self.natural.registers > MOST_RESULTS or scope.in_use(self.layout) != ALWAYS:
            return None
        if self.layout.shape != static(reduce.src):
            return None
        modes = register_modes(self.layout)
        found: list[list[int]] = [[] for _ in range(self.natural.registers)]
        for digits in itertools.product(*(range(mode.extent) for _, _, mode in modes)):
            register = result = 0
            stride = self.natural.registers
            for digit, (axis, _, mode) in zip(digits, modes, strict=True):
                register += digit * mode.stride
                if axis != reduce.axis:
                    stride //= mode.extent
                    result += digit * stride
            found[result].append(register)
        return found if len(found[0]) >= FEWEST_ELEMENTS else None

    def in_lane(self, acc: Buffer) -> Stmt:
        """Combine the lane's own registers."""
        scope, reduce = self.scope, self.reduce
        modes = register_modes(self.layout)
        digits = [scope.var("r", 0, mode.extent - 1) for _, _, mode in modes]
        source: Expr = const(0)
        result: Expr = const(0)
        stride = self.natural.registers
        along: Expr = scope.thread_parts(self.layout)[reduce.axis]
        for digit, (axis, weight, mode) in zip(digits, modes, strict=True):
            source = binary("add", source, binary("mul", digit, const(mode.stride)))
            if axis == reduce.axis:
                along = binary("add", along, binary("mul", digit, const(weight)))
            else:
                stride //= mode.extent
                result = binary("add", result, binary("mul", digit, const(stride)))
        value: Expr = Load(scope.lane_buffer(reduce.src.buffer), (source,))
        value = as_dtype(_prepared(reduce.op, value), self.dtype)
        extent = const(static(reduce.src)[reduce.axis])
        inside = binary("lt", along, extent)
        needed = () if scope.ranges.proves(inside) else (scope.simplify(inside),)
        exists = all_of((*needed, scope.in_use(self.layout)))
        if exists != const(True, dtype_of_expr(exists)):
            value = Select(exists, value, neutral(reduce.op, self.dtype), self.dtype)
        total = combine(reduce.op, Load(acc, (result,)), value, reduce.nan_propagate)
        body: Block = (Store(acc, (result,), total, reduce.loc),)
        for digit, (_, _, mode) in reversed(list(zip(digits, modes, strict=True))):
            body = (_unrolled(digit, mode.extent, body),)
        if len(body) == 1 and isinstance(body[0], For):
            return body[0]
        once = scope.var("r", 0, 0)
        return _unrolled(once, 1, body)

    def in_warp(self, acc: Buffer, plan: ReductionPlan) -> Stmt:
        scope, reduce = self.scope, self.reduce
        r = scope.var("r", 0, self.natural.registers - 1)
        body: list[Stmt] = []
        for mask in plan.masks:
            own = Load(acc, (r,))
            other = Call("lane.shuffle_xor", (own, const(mask)), self.dtype)
            # The exchange comes first: `and` and `or` skip what cannot matter, and a lane
            # that skips an exchange leaves the others waiting for it.
            total = combine(reduce.op, other, own, reduce.nan_propagate)
            body.append(Store(acc, (r,), total, reduce.loc))
        return _unrolled(r, self.natural.registers, tuple(body))

    def across_warps(self, acc: Buffer, plan: ReductionPlan) -> Block:
        scope, reduce = self.scope, self.reduce
        assert self.scratch is not None, "reduction_plan gave every such reduction its scratch"
        parts, elements = static(self.scratch)
        flat = scope.lane_buffer(self.scratch.buffer)
        part: Expr = const(0)
        weight = 1
        for mode in plan.across:
            digit = scope.thread_digit(mode)
            part = binary("add", part, binary("mul", digit, const(weight)))
            weight *= mode.extent
        r = scope.var("r", 0, self.natural.registers - 1)
        exists, element = self.element(r)
        write = Store(flat, (_at(part, elements, element),), Load(acc, (r,)), reduce.loc)
        first = all_of((exists, *self.is_writer(plan)))
        p = Var(scope.names.fresh("part"))
        scope.ranges = scope.ranges.with_range(p, 0, parts - 1)
        r2 = scope.var("r", 0, self.natural.registers - 1)
        exists2, element2 = self.element(r2)
        value = Load(flat, (_at(p, elements, element2),))
        total = combine(reduce.op, Load(acc, (r2,)), value, reduce.nan_propagate)
        start = Store(acc, (r2,), neutral(reduce.op, self.dtype), reduce.loc)
        again = _unrolled(p, parts, (Store(acc, (r2,), total, reduce.loc),))
        return (
            _unrolled(r, self.natural.registers, guarded(first, (write,))),
            Intrinsic("sync_block", (), (), reduce.loc),
            _unrolled(r2, self.natural.registers, (start, *guarded(exists2, (again,)))),
        )

    def element(self, register: Expr) -> tuple[Expr, Expr]:
        """(condition that the result exists, its linear index) of one of the lane's results."""
        scope = self.scope
        shape = static(self.reduce.dst)
        coordinates = self.natural.coordinates_expr(LANE, register)
        index: Expr = const(0)
        needed: list[Expr] = [scope.in_use(self.layout)]
        for coordinate, extent in zip(coordinates, shape, strict=True):
            coordinate = scope.simplify(self.wrapped(coordinate))
            inside = binary("lt", coordinate, const(extent))
            if not scope.ranges.proves(inside):
                needed.append(inside)
            index = binary("add", binary("mul", index, const(extent)), coordinate)
        return all_of(needed), scope.simplify(index)

    def wrapped(self, coordinate: Expr) -> Expr:
        return coordinate

    def is_writer(self, plan: ReductionPlan) -> list[Expr]:
        """Conditions under which a lane writes its part: first of its warp's and of all copies."""
        scope = self.scope
        conditions = [scope.first_copy(self.layout)]
        across = {mode.stride for mode in plan.across}
        for mode in self.layout.axes[self.reduce.axis]:
            if mode.space != THREAD or mode.extent == 1 or mode.stride in across:
                continue
            inside = mode.extent
            for other in plan.across:
                if mode.stride < other.stride < mode.stride * mode.extent:
                    inside = other.stride // mode.stride
            digit = binary("floordiv", LANE, const(mode.stride))
            digit = scope.simplify(binary("floormod", digit, const(inside)))
            conditions.append(binary("eq", digit, const(0)))
        return conditions

    def finish(self, acc: Buffer) -> Stmt:
        scope, reduce = self.scope, self.reduce
        target = scope.lane_buffer(reduce.dst.buffer)
        r = scope.var("r", 0, self.natural.registers - 1)
        value: Expr = Load(acc, (r,))
        if not reduce.clear:
            old = as_dtype(Load(target, (r,)), self.dtype)
            value = combine(reduce.op, old, value, reduce.nan_propagate)
        return _unrolled(
            r,
            self.natural.registers,
            (Store(target, (r,), as_dtype(value, target.dtype), reduce.loc),),
        )


def _prepared(op: str, value: Expr) -> Expr:
    dtype = dtype_of_expr(value)
    if op in ("abssum", "absmax") and dtype.is_signed:
        return Call("abs", (value,), dtype)
    return value


def _at(part: Expr, elements: int, element: Expr) -> Expr:
    return binary("add", binary("mul", part, const(elements)), element)


def _unrolled(var: Var, extent: int, body: Block) -> Stmt:
    return For(var, const(0), const(extent), const(1), body, LoopKind.UNROLL)
