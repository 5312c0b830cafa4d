"""The last part of the work on a result runs behind the wait, beside the conversion of the rest.

    for j in 0..n: work on x[j]; for j in 0..n: sum x[j]; finish sums; settle x
    wait for the contraction under way; for j in 0..n: y[j] = convert(x[j])
      ->
    for j in 0..m: work on x[j]; for j in 0..m: sum x[j]; settle x
    wait for the contraction under way
    for j in m..n: work on x[j]; for j in 0..m: y[j] = convert(x[j])
    for j in m..n: sum x[j]; finish sums; for j in m..n: y[j] = convert(x[j])

Registers of the conversion are free only behind the wait, and work that uses another unit hides it
there. Sums keep their order, so no bit changes. A lane-level pass over loops with the hint
`beside`; what has another form stays as it is.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Const, Load, const, walk
from tilecore.ir.program import Kernel, Program
from tilecore.ir.stmts import Block, For, Intrinsic, Let, LoopKind, Stmt, Store
from tilecore.ir.visit import (
    buffers_in,
    exprs_of,
    map_stmts,
    regions_of,
    substitute_block,
    walk_stmts,
)
from tilecore.passes.roles.schedule_pieces import renamed
from tilecore.passes.scopes import Names, per_kernel

BESIDE = "beside"
"""Hint of a loop: its conversions behind a wait may have work from before the wait beside them."""
LAST_PART = 4
"""One part of so many of the columns is worked on behind the wait: enough to hide the conversion of
the others, and little enough that the contraction waited for has ended."""


def convert_beside(program: Program, context: Context) -> Program:
    """See the module's text."""
    names = Names(program)

    def visit(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or not dict(stmt.hints).get(BESIDE):
            return stmt
        found = _find(stmt.body)
        return dataclasses.replace(stmt, body=_divided(found, names)) if found else stmt

    def in_kernel(kernel: Kernel) -> Kernel:
        return dataclasses.replace(kernel, body=map_stmts(kernel.body, visit))

    hinted = any(
        isinstance(stmt, For) and dict(stmt.hints).get(BESIDE)
        for kernel in program.kernels
        for stmt in walk_stmts(kernel.body)
    )
    return per_kernel(program, in_kernel) if hinted else program


@dataclass(frozen=True, slots=True)
class _Parts:
    """A loop's body: `head; work; between; sums; finish; settle; waiting; convert; tail`."""

    head: Block
    work: For
    between: Block
    sums: For
    finish: Block
    settle: Stmt
    waiting: Block
    convert: For
    tail: Block
    first: int  # iteration that the last part begins with


def _divided(parts: _Parts, names: Names) -> Block:
    loops = (parts.work, parts.sums, parts.convert)
    work, sums, convert = (_halves(loop, parts.first, names) for loop in loops)
    before = (*parts.head, work[0], *parts.between, sums[0], parts.settle, *parts.waiting)
    behind = (work[1], convert[0], sums[1], *parts.finish, convert[1], *parts.tail)
    return (*before, *behind)


def _halves(loop: For, first: int, names: Names) -> tuple[Stmt, Stmt]:
    low = dataclasses.replace(loop, extent=const(first, loop.var.dtype))
    rest = int(loop.extent.value) - first  # type: ignore[attr-defined]
    at, count = const(first, loop.var.dtype), const(rest, loop.var.dtype)
    (high,) = renamed((dataclasses.replace(loop, start=at, extent=count),), names)
    return low, high


# --- the form, and that nothing else depends on the order -----------------------------------------


def _find(body: Block) -> _Parts | None:
    settles = [k for k, s in enumerate(body) if _is(s, "contraction.settle")]
    if not settles:
        return None
    settle = settles[-1]
    result = next(iter(regions_of(body[settle]))).buffer
    users = [k for k, stmt in enumerate(body) if result in buffers_in((stmt,))]
    before, after = [k for k in users if k < settle], [k for k in users if k > settle]
    if len(before) < 2 or not after:
        return None
    work, sums, convert = body[before[-2]], body[before[-1]], body[after[0]]
    if not (isinstance(work, For) and isinstance(sums, For) and isinstance(convert, For)):
        return None
    extents = {_unrolled(loop) for loop in (work, sums, convert)}
    count = extents.pop()
    if extents or count < LAST_PART:
        return None
    parts = _Parts(
        body[: before[-2]], work, body[before[-2] + 1 : before[-1]], sums,
        body[before[-1] + 1 : settle], body[settle], body[settle + 1 : after[0]], convert,
        body[after[0] + 1 :], count - count // LAST_PART,
    )  # fmt: skip
    is_waiting = any(_is(stmt, "contraction.wait") for stmt in parts.waiting)
    return parts if is_waiting and _is_free(parts, result) else None


def _is_free(parts: _Parts, result: Buffer) -> bool:
    """True when the parts of `result` that the two halves touch are apart, and what moves past
    another statement shares no buffer with it that one of them writes."""
    low: set[int] = set()
    high: set[int] = set()
    for loop in (parts.work, parts.sums, parts.convert):
        for k in range(_unrolled(loop)):
            places = _places(_iteration(loop, k), result)
            if places is None:
                return False
            (low if k < parts.first else high).update(places)
    if low & high or result in _written((parts.sums, parts.convert)):
        return False
    if any(isinstance(stmt, Let) for stmt in (*parts.between, *parts.finish)):
        return False
    work, sums, convert = (parts.work,), (parts.sums,), (parts.convert,)
    passed = (
        (work, (*parts.between, *sums, *parts.waiting)),
        (sums, (*parts.waiting, *convert)),
        (parts.finish, (*parts.waiting, *convert)),
    )
    return all(_are_apart(one, other, result) for one, other in passed)


def _are_apart(one: Block, other: Block, result: Buffer) -> bool:
    """True when neither block writes what the other uses, `result` left aside."""
    first, second = (set(buffers_in(block)) - {result} for block in (one, other))
    return not (_written(one) & second or _written(other) & first)


def _written(block: Block) -> set[Buffer]:
    """Buffers that a block may write: all that it stores to or names as a region."""
    stores = {s.buffer for s in walk_stmts(block) if isinstance(s, Store)}
    return stores | {region.buffer for s in walk_stmts(block) for region in regions_of(s)}


def _iteration(loop: For, number: int) -> Block:
    """One iteration of an unrolled loop, without loops that are unrolled in it."""
    body = substitute_block(loop.body, {loop.var: const(number, loop.var.dtype)})
    result: list[Stmt] = []
    for stmt in body:
        count = _unrolled(stmt)
        result += [s for k in range(count) for s in _iteration(stmt, k)] if count else [stmt]  # type: ignore[arg-type]
    return tuple(result)


def _places(block: Block, buffer: Buffer) -> set[int] | None:
    """Registers of `buffer` that a block touches; None where they are not known."""
    found: set[int] = set()
    for stmt in walk_stmts(block):
        touched = [
            node.indices
            for e in exprs_of(stmt)
            for node in walk(e)
            if isinstance(node, Load) and node.buffer == buffer
        ]
        if isinstance(stmt, Store) and stmt.buffer == buffer:
            touched.append(stmt.indices)
        if any(region.buffer == buffer for region in regions_of(stmt)):
            return None
        for (index,) in touched:
            if not isinstance(index, Const):
                return None
            found.add(int(index.value))
    return found


def _unrolled(stmt: Stmt) -> int:
    """Iterations of an unrolled loop from 0 on; 0 for any other statement."""
    if not isinstance(stmt, For) or stmt.kind is not LoopKind.UNROLL:
        return 0
    if not isinstance(stmt.extent, Const) or stmt.start != const(0, stmt.var.dtype):
        return 0
    return int(stmt.extent.value)


def _is(stmt: Stmt, op: str) -> bool:
    return isinstance(stmt, Intrinsic) and stmt.op == op
