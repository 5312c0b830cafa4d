"""Find accesses that no barrier separates though it must: what `insert_barriers` goes by.

The check walks the kernel with the set of accesses since the last barrier; loops are walked again
with what the previous rounds left. Two accesses conflict when they may touch one place, one of
them writes, and no barrier stands between them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from tilecore.ir.expr import Call, Expr, Load, Var, binary, const, mentioned
from tilecore.ir.lane_dependence import (
    conditions_of,
    depends_on_lane,
)
from tilecore.ir.program import Kernel
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import (
    Block,
    Break,
    Continue,
    For,
    If,
    Let,
    Stmt,
    WarpScope,
    While,
)
from tilecore.ir.visit import (
    destinations,
    substitute,
    substitute_block,
    walk_stmts,
)
from tilecore.passes.memory_effects import (
    READ,
    AgentReads,
    AgentWait,
    AsyncCommit,
    AsyncWait,
    Box,
    Effect,
    Freed,
    InnerBarrier,
    OtherBlock,
    Phase,
    Step,
    steps_of,
)
from tilecore.passes.pending_accesses import Pending, landed, names_of
from tilecore.passes.scopes import loads_in

_DEEPEST = 8  # groups of asynchronous copies that the check tells apart


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two accesses with no barrier between: `later` is the statement to put one before."""

    earlier: Effect
    later: Effect
    path: tuple[int | str, ...]

    def is_same_pair(self, other: Conflict | None) -> bool:
        """True when it is between the same two accesses."""
        return other is not None and (self.earlier, self.later) == (other.earlier, other.later)


Overlaps = Callable[[str, str], bool]
"""Whether two different buffers may share memory (after planning)."""


class Memo:
    """Answers for statements that several walks ask about; keeps the statements alive."""

    def __init__(self, lanes: frozenset[str] = frozenset()) -> None:
        self.lanes = lanes  # names that differ between lanes, of a program written per lane
        self._steps: dict[int, tuple[Stmt, tuple[Step, ...]]] = {}
        self._at: dict[tuple[int, Var, Expr], tuple[Stmt, Stmt]] = {}
        self._written: dict[int, tuple[Stmt, frozenset[str]]] = {}
        self._names: dict[int, tuple[Effect, set[str], set[str]]] = {}
        self._apart: dict[int, tuple[Stmt, bool]] = {}
        self._disjoint: dict[tuple[Box, Box], bool] = {}

    def is_apart(self, stmt: Stmt) -> bool:
        """Control flow that lanes of a per-lane program take differently: no barrier fits there."""
        if id(stmt) not in self._apart:
            apart = any(depends_on_lane(expr, self.lanes) for expr in conditions_of(stmt))
            self._apart[id(stmt)] = (stmt, apart)
        return self._apart[id(stmt)][1]

    def is_disjoint(self, a: Box, b: Box, ranges: Ranges) -> bool:
        """`Box.is_disjoint`."""
        key = (a, b)
        known = self._disjoint.get(key)
        if known is None:
            known = self._disjoint[key] = a.is_disjoint(b, ranges)
        return known

    def written(self, stmt: Stmt) -> frozenset[str]:
        """Buffers of any kind that the statement may write, or one inside it."""
        if id(stmt) not in self._written:
            inner = walk_stmts((stmt,))
            names = frozenset(b.name for one in inner for b in destinations(one))
            self._written[id(stmt)] = (stmt, names)
        return self._written[id(stmt)][1]

    def steps(self, stmt: Stmt, ranges: Ranges) -> tuple[Step, ...]:
        """`steps_of` a statement."""
        if id(stmt) not in self._steps:
            self._steps[id(stmt)] = (stmt, tuple(steps_of(stmt, ranges, self.lanes)))
        return self._steps[id(stmt)][1]

    def names(self, effect: Effect) -> tuple[set[str], set[str]]:
        """Variables and buffers that decide which elements are accessed, and those buffers."""
        if id(effect) not in self._names:
            self._names[id(effect)] = (effect, names_of(effect), _read_for(effect))
        return self._names[id(effect)][1:]

    def at(self, stmt: Stmt, var: Var, value: Expr) -> Stmt:
        """A statement of a loop's body in the iteration where `var` is `value`."""
        key = (id(stmt), var, value)
        if key not in self._at:
            self._at[key] = (stmt, substitute_block((stmt,), {var: value})[0])
        return self._at[key][1]


class _FoundOne(Exception):
    """Ends a walk that one conflict is enough for."""


class _Walker:
    """Walks a kernel in execution order, collecting conflicts: all, or the first one."""

    def __init__(self, ranges: Ranges, overlaps: Overlaps, memo: Memo, first: bool) -> None:
        self.memo = memo
        self.first = first
        self.ranges = ranges
        self.overlaps = overlaps
        self.conflicts: list[Conflict] = []
        self.exits: list[Pending] = []  # states at break and continue of the innermost loop
        self.values: dict[Var, Expr] = {}  # of names that stand for expressions
        self.steering: set[str] = set()  # buffers whose contents decide what is accessed

    def block(self, block: Block, state: Pending, path: tuple[int | str, ...]) -> None:
        for index, stmt in enumerate(block):
            self.stmt(stmt, state, (*path, index))

    def stmt(self, stmt: Stmt, state: Pending, path: tuple[int | str, ...]) -> None:
        match stmt:
            case If() | For() | While() if self.memo.is_apart(stmt):
                self.as_one(stmt, state, path)
            case For(body=body) | While(body=body):
                self.own(stmt, state, path)
                self.loop(body, state, path, stmt)
            case If(then=then, otherwise=otherwise):
                self.own(stmt, state, path)
                other = state.copy()
                self.block(then, state, (*path, "then"))
                self.block(otherwise, other, (*path, "otherwise"))
                state.merge(other)
            case WarpScope(body=body):
                skipped = state.copy()
                self.block(body, state, (*path, "body"))
                state.merge(skipped)
            case Break() | Continue():
                self.exits.append(state.copy())
            case Let(var=var, value=value):
                self.own(stmt, state, path)
                self.bind(var, value, state)
            case _:
                self.own(stmt, state, path)

    def bind(self, var: Var, value: Expr, state: Pending) -> None:
        """From here on `var` is `value`."""
        parts = mentioned(value)
        if any(isinstance(n, Load) or (isinstance(n, Call) and "." in n.op) for n in parts):
            state.outlive(var)
        else:
            self.values[var] = substitute(value, self.values)

    def as_one(self, stmt: Stmt, state: Pending, path: tuple[int | str, ...]) -> None:
        """All effects inside as those of one statement; their order is the author's affair."""
        inner = list(walk_stmts((stmt,)))
        counters = {one.var.name for one in inner if isinstance(one, For)}
        lanes = self.memo.lanes | counters
        steps = [step for one in inner for step in steps_of(one, self.ranges, lanes)]
        self.flush([step for step in steps if isinstance(step, Effect)], state, path)
        for one in inner:
            if isinstance(one, Let):
                state.outlive(one.var)
        self.assign(inner, state)

    def loop(
        self,
        body: Block,
        state: Pending,
        path: tuple[int | str, ...],
        header: For | While,
    ) -> None:
        """The first iterations as they are entered, then a run of iterations from anywhere.

        Slots of multi-buffered memory are told apart by the iteration's number, so the first
        iterations are walked with their numbers (until what was in flight before the loop has
        landed), and the steady state as iterations k - n, ..., k - 1, k of one symbolic k.
        """
        outer_exits, self.exits = self.exits, []
        skipped = state.copy()
        entered = state.pending | state.earlier | {landed(effect) for effect in state.in_flight}
        for number in range(1 + min(len(state.groups), _DEEPEST)):
            self.iteration(body, state, path, header, number, from_start=True)
        steady = Pending()
        before: set[Effect] = set()
        for back in reversed(range(2 + min(len(state.groups), _DEEPEST))):
            before = steady.pending | steady.earlier
            self.iteration(body, steady, path, header, -back, from_start=False)
        # Accesses that outlive an iteration meet those of iterations at any distance.
        lasting = Pending(before & steady.pending, earlier=before & steady.earlier)
        older = self.before_any(lasting, header)
        older.pending |= entered & state.pending
        older.earlier |= entered & state.earlier
        if older.pending or older.earlier:
            self.iteration(body, older, path, header, 0, from_start=False)
        for other in (steady, older, skipped, *self.exits):
            state.merge(other)
        if isinstance(header, For):
            state.outlive(header.var)
        self.exits = outer_exits

    def before_any(self, accesses: Pending, header: For | While) -> Pending:
        """Accesses of one iteration as those of any that comes before the one at hand."""
        if not isinstance(header, For):
            return accesses
        var = header.var
        since = Var(f"{var.name}__since", var.dtype)
        most = max(0, self.ranges.interval(header.extent)[1] - 1)
        self.ranges = self.ranges.with_range(since, 0, most)
        distance = binary("mul", header.step, since)
        return accesses.replaced({var: binary("sub", var, distance)})

    def iteration(
        self,
        body: Block,
        state: Pending,
        path: tuple[int | str, ...],
        header: For | While,
        number: int,
        from_start: bool,
    ) -> None:
        """One walk over a loop's body, as iteration start + number or k + number."""
        inner = (*path, "body")
        if isinstance(header, For):
            var = header.var
            shift = binary("mul", header.step, const(number, var.dtype))
            value = binary("add", header.start if from_start else var, shift)
            body = self.substituted(body, var, value)
        self.block(body, state, inner)
        if isinstance(header, While):
            self.own(header, state, (*inner, len(body)))  # the condition, once more
        for exit_state in self.exits:
            state.merge(exit_state)

    def substituted(self, body: Block, var: Var, value: Expr) -> Block:
        return body if value == var else tuple(self.memo.at(s, var, value) for s in body)

    def own(self, stmt: Stmt, state: Pending, path: tuple[int | str, ...]) -> None:
        """The effects of the statement itself, all its reads and writes at once per phase."""
        phase: list[Effect] = []
        for step in self.memo.steps(stmt, self.ranges):
            if isinstance(step, InnerBarrier | Phase):
                self.flush(phase, state, path)
                state.meet(isinstance(step, Phase))
            elif isinstance(step, OtherBlock):
                self.flush(phase, state, path)
                state.leave_block()
            elif isinstance(step, Freed):
                self.flush(phase, state, path)
                state.free(step.buffer)
            elif isinstance(step, AsyncWait):
                state.wait(step.newest)
            elif isinstance(step, AsyncCommit):
                state.commit()
            elif isinstance(step, AgentReads):
                self.flush(phase, state, path)
                state.reading.append({self.resolved(effect) for effect in step.effects})
            elif isinstance(step, AgentWait):
                state.finish_reads(step.newest)
            else:
                phase.append(step)
        self.flush(phase, state, path)
        self.assign((stmt,), state)

    def assign(self, stmts: Iterable[Stmt], state: Pending) -> None:
        """What the statements wrote no longer tells where earlier accesses went."""
        if not self.steering:
            return
        written = {name for stmt in stmts for name in self.memo.written(stmt)} & self.steering
        if written:
            state.rewritten(written)

    def flush(self, phase: list[Effect], state: Pending, path: tuple[int | str, ...]) -> None:
        if not phase:
            return
        phase[:] = [self.resolved(effect) for effect in phase]
        before = (*state.pending, *state.earlier, *state.in_flight)
        for later in phase:
            for earlier in before:
                if self.conflict(earlier, later):
                    self.conflicts.append(Conflict(earlier, later, path))
                    if self.first:
                        raise _FoundOne
        for effect in phase:
            (state.open if effect.is_async else state.pending).add(effect)
        phase.clear()

    def resolved(self, effect: Effect) -> Effect:
        """The effect without names that only stand for expressions."""
        names, buffers = self.memo.names(effect)
        if not names.isdisjoint(var.name for var in self.values):
            effect = dataclasses.replace(effect, box=effect.box.replaced(self.values))
            buffers = _read_for(effect)
        self.steering |= buffers
        return effect

    def conflict(self, a: Effect, b: Effect) -> bool:
        if a.kind == b.kind == READ:
            return False
        if a.box.buffer.name == b.box.buffer.name:
            if a.commutes(b):
                return False
            return not self.memo.is_disjoint(a.box, b.box, self.ranges)
        return self.overlaps(a.box.buffer.name, b.box.buffer.name)


def _read_for(effect: Effect) -> set[str]:
    """Buffers whose contents decide which elements are accessed."""
    return {load.buffer.name for start, _ in effect.box.axes for load in loads_in(start)}


def overlaps_of(kernel: Kernel) -> Overlaps:
    """Which shared buffers share bytes, by the plan in the kernel's hints."""
    spans: dict[str, tuple[int, int]] = {}
    hints = dict(kernel.hints)
    for name, value in hints.items():
        if name.startswith("smem.") and isinstance(value, int):
            buffer = name.removeprefix("smem.")
            spans[buffer] = (value, value + int(hints[f"smem_size.{buffer}"]))

    def overlap(a: str, b: str) -> bool:
        if a not in spans or b not in spans:
            return False
        return spans[a][0] < spans[b][1] and spans[b][0] < spans[a][1]

    return overlap


def find_conflicts(kernel: Kernel, ranges: Ranges, memo: Memo | None = None) -> list[Conflict]:
    """All pairs of accesses that no barrier separates though it must; in program order."""
    walker = _Walker(ranges, overlaps_of(kernel), memo or Memo(), first=False)
    walker.block(kernel.body, Pending(), ())
    return walker.conflicts


def first_conflict(kernel: Kernel, ranges: Ranges, memo: Memo) -> Conflict | None:
    """The first of `find_conflicts`, where the walk ends."""
    walker = _Walker(ranges, overlaps_of(kernel), memo, first=True)
    with suppress(_FoundOne):
        walker.block(kernel.body, Pending(), ())
    return next(iter(walker.conflicts), None)
