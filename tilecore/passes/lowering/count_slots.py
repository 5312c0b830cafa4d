"""Slots and turns of rings are counted along instead of being divided out in every step.

    for k: ... x[(b + k) % 3] ... (b + k) // 3 ...
      ->  local slot = b % 3; local turn = b // 3
          for k: ... x[slot] ... turn ...
                 turn = turn + (slot == 2); slot = slot == 2 ? 0 : slot + 1

A division by a number that is no power of two is a chain of multiplications, and in loops of warp
roles the next matrix work waits for the slot that comes out of it. Steps at a distance of one hand
their values on. A lane-level pass; other loops stay as they are, where every register may count.
Loops with the hint `counted` have all their rings counted, so that what finds a slot is done at the
end of the step before it, where other work hides it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Binary, Const, Expr, Load, Select, Var, binary, const, free_vars, walk
from tilecore.ir.linear import Linear
from tilecore.ir.program import Kernel, Program
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import Allocate, Block, Continue, For, LoopKind, Stmt, Store, WarpScope
from tilecore.ir.visit import bound_vars, exprs_of, map_exprs, map_stmts, walk_stmts
from tilecore.passes.scopes import Names, kernel_ranges, per_kernel, rewrite_block

DIVISIONS = ("floormod", "floordiv")
COUNTED = "counted"
"""Hint of a loop: rings whose slots are a power of two are counted along, too."""


@dataclass(frozen=True, slots=True)
class _Ring:
    """Divisions of ``rest + loop variable + distance`` by one divisor.

    Attributes:
        rest: the terms that do not change in the loop.
        slots: the divisor.
        asked: the divisions, with their distances.
        counted: by distance, the slot's and the turn's counter.
    """

    rest: tuple[tuple[Expr, int], ...]
    slots: int
    asked: dict[Binary, int] = field(default_factory=dict)
    counted: dict[int, tuple[Buffer, Buffer]] = field(default_factory=dict)


def count_slots(program: Program, context: Context) -> Program:
    """See the module's text."""
    bodies = (kernel.body for kernel in program.kernels)
    if not any(isinstance(stmt, WarpScope) for body in bodies for stmt in walk_stmts(body)):
        return program  # most programs: nobody asks for ranges
    names = Names(program)

    def visit(kernel: Kernel) -> Kernel:
        ranges = kernel_ranges(kernel, program.symbols)

        def in_loops(stmt: Stmt) -> Block | None:
            return _counted(stmt, names, ranges) if isinstance(stmt, For) else None

        def in_roles(stmt: Stmt) -> Block | None:
            if not isinstance(stmt, WarpScope):
                return None
            return (dataclasses.replace(stmt, body=rewrite_block(stmt.body, in_loops)),)

        return dataclasses.replace(kernel, body=rewrite_block(kernel.body, in_roles))

    return per_kernel(program, visit)


def _counted(loop: For, names: Names, ranges: Ranges) -> Block | None:
    """The loop with counters around it; None where there is nothing to count."""
    if loop.kind is not LoopKind.SERIAL or loop.step != const(1) or loop.var.dtype != int32:
        return None
    if any(isinstance(stmt, Continue) for stmt in walk_stmts(loop.body)):
        return None  # would pass over the counting at the end
    changing = {var for stmt in walk_stmts((loop,)) for var in bound_vars(stmt)}
    all_rings = bool(dict(loop.hints).get(COUNTED))
    rings: dict[tuple[object, int], _Ring] = {}
    for node in _divisions(loop.body):
        found = _place(node, loop.var, changing, ranges, all_rings)
        if found is not None:
            rest, distance, slots = found
            ring = rings.setdefault((frozenset(rest), slots), _Ring(rest, slots))
            ring.asked[node] = distance
    if not rings:
        return None
    mapping: dict[Expr, Expr] = {}
    before: list[Stmt] = []
    after: list[Stmt] = []
    for ring in rings.values():
        mapping |= _counters(ring, names)
        before += _first_values(ring, loop)
        after += _next_values(ring)
    body = map_stmts(loop.body, lambda stmt: map_exprs(stmt, mapping.get))
    return (*before, dataclasses.replace(loop, body=(*body, *after)))


def _counters(ring: _Ring, names: Names) -> dict[Expr, Expr]:
    """What stands for each division. Slots a whole turn apart are the same one."""
    found: dict[Expr, Expr] = {}
    for op in reversed(DIVISIONS):  # turns first: these are not the same a whole turn apart
        which = DIVISIONS.index(op)
        for node, distance in ring.asked.items():
            if node.op != op:
                continue
            near = distance
            if op == "floormod":
                same = (d for d in ring.counted if (d - distance) % ring.slots == 0)
                near = next(same, distance)
            if near not in ring.counted:
                ring.counted[near] = _pair(names)
            found[node] = Load(ring.counted[near][which], ())
    return found


def _pair(names: Names) -> tuple[Buffer, Buffer]:
    slot, turn = (names.buffer(name, (), int32, Scope.LOCAL) for name in ("slot", "turn"))
    return slot, turn


def _divisions(body: Block) -> list[Binary]:
    return [
        node
        for stmt in walk_stmts(body)
        for expr in exprs_of(stmt)
        for node in walk(expr)
        if isinstance(node, Binary) and node.op in DIVISIONS and node.dtype == int32
    ]


def _place(
    node: Binary, var: Var, changing: set[Var], ranges: Ranges, all_rings: bool
) -> tuple[tuple[tuple[Expr, int], ...], int, int] | None:
    """(invariant terms, distance, divisor) of a division that goes round a ring with the loop; of
    those by powers of two only with `all_rings`."""
    if not isinstance(node.b, Const):
        return None
    slots = int(node.b.value)
    is_power = slots & (slots - 1) == 0
    if slots < 2 or (is_power and not all_rings) or var not in free_vars(node.a):
        return None
    form = ranges.regrouped(node.a)  # no number of steps wraps
    terms = dict(form.terms)
    if terms.pop(var, 0) != 1:
        return None
    parts = [part for term in terms for part in walk(term)]
    if any(isinstance(part, Load) or part in changing for part in parts):
        return None
    return tuple(terms.items()), form.constant, slots


def _first_values(ring: _Ring, loop: For) -> list[Stmt]:
    result: list[Stmt] = []
    for distance, buffers in sorted(ring.counted.items()):
        at = binary("add", loop.start, Linear(ring.rest, distance).expr(int32))
        if isinstance(loop.start, Const):
            at = Linear(ring.rest, distance + int(loop.start.value)).expr(int32)
        for op, buffer in zip(DIVISIONS, buffers, strict=True):
            result.append(Allocate(buffer, binary(op, at, const(ring.slots)), loop.loc))
    return result


def _next_values(ring: _Ring) -> list[Stmt]:
    result: list[Stmt] = []
    for distance, (slot, turn) in sorted(ring.counted.items()):
        if distance + 1 in ring.counted:
            for buffer, source in zip((slot, turn), ring.counted[distance + 1], strict=True):
                result.append(Store(buffer, (), Load(source, ())))
            continue
        last = binary("eq", Load(slot, ()), const(ring.slots - 1))
        more = binary("add", Load(turn, ()), const(1))
        result.append(Store(turn, (), Select(last, more, Load(turn, ()), int32)))
        more = binary("add", Load(slot, ()), const(1))
        again: Expr = Select(last, const(0), more, int32)
        if ring.slots & (ring.slots - 1) == 0:
            again = binary("bitand", more, const(ring.slots - 1))
        result.append(Store(slot, (), again))
    return result
