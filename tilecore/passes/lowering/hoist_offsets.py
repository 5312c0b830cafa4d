"""Compute what unrolled loops share of an address once, before the loops.

    for c in unroll(0, 8): move A[row * 128 + lane % 16 * 8 + c * 1024 : +8] -> ...
      ->  let A_at = row * 128 + lane % 16 * 8
          for c in unroll(0, 8): move A[A_at + c * 1024 : +8] -> ...

The loop's own part is then a constant, which machine code adds for free: it comes last, so that
it stays apart from what a swizzle computes. And the text is readable.
In kernels whose fragments leave few registers, each phase of a serial loop that touches memory
computes its addresses from a lane index of its own, ``lane.at_use(lane, counter)``: compilers then
keep one register, where they would compute (and spill) the addresses of all phases before the loop.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import (
    Binary,
    Call,
    Const,
    Expr,
    Load,
    Var,
    binary,
    const,
    dtype_of_expr,
    free_vars,
    transform,
)
from tilecore.ir.linear import Linear
from tilecore.ir.program import Kernel, Program
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import Atomic, Block, For, Intrinsic, Let, LoopKind, Stmt, Store
from tilecore.ir.visit import (
    BODY_FIELDS,
    bound_vars,
    buffers_in,
    exprs_of,
    map_exprs,
    substitute_block,
    walk_stmts,
)
from tilecore.passes.lowering.copies_under_gemm import is_crowded
from tilecore.passes.lowering.lane_scope import LANE
from tilecore.passes.scopes import Names, kernel_ranges, loads_in, per_kernel


def hoist_offsets(program: Program, context: Context) -> Program:
    """See the module's text; a lane-level pass."""
    names = Names(program)

    def visit(kernel: Kernel) -> Kernel:
        crowded = is_crowded(kernel)
        ranges = kernel_ranges(kernel, program.symbols)
        return dataclasses.replace(
            kernel, body=_block(kernel.body, _Around(names, crowded, ranges), {})
        )

    return per_kernel(program, visit)


@dataclass(frozen=True, slots=True)
class _Around:
    """What surrounds a block.

    Attributes:
        names: unused names.
        crowded: whether fragments leave few registers.
        ranges: bounds of the kernel's variables.
        counter: variable of the innermost serial loop, or None.
        lane: the lane's index as the present phase of that loop knows it.
    """

    names: Names
    crowded: bool
    ranges: Ranges
    counter: Var | None = None
    lane: Var = LANE


def _block(block: Block, around: _Around, known: dict[Expr, Var]) -> Block:
    """`known` are the values bound in the blocks around this one; names are never rebound."""
    result: list[Stmt] = []
    known = dict(known)
    is_phase = False  # the statements before this one compute addresses with around.lane
    for stmt in block:
        if isinstance(stmt, For) and stmt.kind is LoopKind.UNROLL:
            is_address = bool(_memory_touched(stmt))
            if is_address or (around.lane != LANE and _mentions_lane(stmt)):
                if not is_phase and around.counter is not None and around.crowded:
                    around, lane = _with_own_lane(around)
                    result.append(lane)
                is_phase = is_address
            else:
                is_phase = False
            (stmt,) = substitute_block((stmt,), {LANE: around.lane})
            assert isinstance(stmt, For)
            hoister = _Hoister(stmt, around, known)
            new = hoister.stmt(stmt)
            result += [*hoister.lets, new]
            continue
        is_phase = is_phase and isinstance(stmt, Let)
        if _adds_in_bulk(stmt) and around.counter is not None and around.crowded:
            around, lane = _with_own_lane(around)
            result += [lane, *substitute_block((stmt,), {LANE: around.lane})]
            continue
        inside = around
        if isinstance(stmt, For):
            counter = stmt.var if _counts_up_from_zero(stmt) else None
            inside = dataclasses.replace(around, counter=counter, lane=LANE)
        changes = {
            name: _block(inner, inside, known)
            for name in BODY_FIELDS
            if (inner := getattr(stmt, name, None))
        }
        result.append(dataclasses.replace(stmt, **changes) if changes else stmt)
    return tuple(result)


def _with_own_lane(around: _Around) -> tuple[_Around, Let]:
    """What surrounds a new phase of a loop, and the definition of its lane index."""
    assert around.counter is not None
    lane = Var(around.names.fresh(LANE.name))
    low, high = around.ranges.interval(LANE)
    ranges = around.ranges.with_range(lane, low, high)
    value = Call("lane.at_use", (LANE, around.counter), lane.dtype)
    return dataclasses.replace(around, lane=lane, ranges=ranges), Let(lane, value)


def _adds_in_bulk(stmt: Stmt) -> bool:
    """True for sums that leave a loop's every step through staging: addresses of many registers."""
    return (
        isinstance(stmt, Intrinsic)
        and stmt.op == "bulk.store_fragment"
        and bool(dict(stmt.hints).get("adds"))
    )


def _memory_touched(loop: For) -> list[Buffer]:
    return [b for b in buffers_in((loop,)) if b.scope in (Scope.GLOBAL, Scope.SHARED)]


def _mentions_lane(loop: For) -> bool:
    return any(LANE in free_vars(expr) for stmt in walk_stmts((loop,)) for expr in exprs_of(stmt))


def _counts_up_from_zero(loop: For) -> bool:
    """True when the loop's variable is never negative, as ``lane.at_use`` needs."""
    return loop.var.dtype == int32 and all(
        isinstance(value, Const) and int(value.value) >= 0 for value in (loop.start, loop.step)
    )


class _Hoister:
    """Rewrites one nest of unrolled loops."""

    def __init__(self, loop: For, around: _Around, known: dict[Expr, Var]) -> None:
        self.around = around
        self.lets: list[Let] = []
        self.known = known
        self.inside = {var for stmt in walk_stmts((loop,)) for var in bound_vars(stmt)}

    def stmt(self, stmt: Stmt) -> Stmt:
        changes: dict[str, object] = {}
        for name in BODY_FIELDS:
            inner = getattr(stmt, name, None)
            if inner:
                changes[name] = tuple(self.stmt(one) for one in inner)
        match stmt:
            case Store(buffer=buffer, indices=(index,)) if buffer.scope is not Scope.LOCAL:
                changes["indices"] = (self.offset(buffer, index),)
            case Atomic(dst=dst):
                changes["dst"] = self.region(dst)
            case Intrinsic(args=args):
                changes["args"] = tuple(
                    self.region(arg) if isinstance(arg, Region) else arg for arg in args
                )
            case _:
                pass
        if changes:
            stmt = dataclasses.replace(stmt, **changes)
        return map_exprs(stmt, self.load) if not isinstance(stmt, Intrinsic) else stmt

    def load(self, node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer.scope is not Scope.LOCAL and node.indices:
            return Load(node.buffer, (self.offset(node.buffer, node.indices[0]),))
        return None

    def region(self, region: Region) -> Region:
        if region.buffer.scope is Scope.LOCAL:
            return region
        start = self.offset(region.buffer, region.starts[0])
        return Region(region.buffer, (start,), region.extents)

    def offset(self, buffer: Buffer, offset: Expr) -> Expr:
        """`offset` with its invariant part replaced by a variable."""
        offset = transform(offset, self.bits)
        form = self.around.ranges.regrouped(offset)
        dtype = dtype_of_expr(offset)
        inner = tuple(term for term in form.terms if self.is_inner(term[0]))
        outer = tuple(term for term in form.terms if not self.is_inner(term[0]))
        if not outer or (len(outer) == 1 and isinstance(outer[0][0], Var) and outer[0][1] == 1):
            return Linear((*outer, *inner), form.constant).expr(dtype)
        base = self.bound(f"{buffer.name}_at", Linear(outer).expr(dtype))
        mixed = tuple(t for t in inner if not free_vars(t[0]) <= self.inside or loads_in(t[0]))
        unrolled = tuple(t for t in inner if t not in mixed)
        start = binary("add", base, Linear(mixed).expr(dtype))
        return binary("add", start, Linear(unrolled, form.constant).expr(dtype))

    def bits(self, node: Expr) -> Expr | None:
        """The invariant part of an XOR is bound, too."""
        if not isinstance(node, Binary) or node.op != "bitxor":
            return None
        if not self.is_inner(node):
            return None
        parts = [part for part in _xor_parts(node) if part != const(0, node.dtype)]
        outer = [part for part in parts if not self.is_inner(part) and not isinstance(part, Const)]
        if not outer or (len(outer) == 1 and isinstance(outer[0], Var)):
            return None
        total = outer[0]
        for part in outer[1:]:
            total = binary("bitxor", total, part)
        result: Expr = self.bound("column", total)
        for part in parts:
            if part not in outer:
                result = binary("bitxor", result, part)
        return result

    def bound(self, base: str, value: Expr) -> Var:
        if value not in self.known:
            var = Var(self.around.names.fresh(base), dtype_of_expr(value))
            self.known[value] = var
            self.lets.append(Let(var, value))
        return self.known[value]

    def is_inner(self, expr: Expr) -> bool:
        return bool(free_vars(expr) & self.inside) or bool(loads_in(expr))


def _xor_parts(expr: Expr) -> list[Expr]:
    if isinstance(expr, Binary) and expr.op == "bitxor":
        return [*_xor_parts(expr.a), *_xor_parts(expr.b)]
    return [expr]
