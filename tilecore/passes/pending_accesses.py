"""Memory accesses since the last barrier, as `insert_barriers` carries them along the program.

What an access touches is written with the names that the program had there. Where a name gets
another value (a loop's next round, a variable that is assigned), the access keeps the old one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from tilecore.ir.buffers import Scope
from tilecore.ir.expr import Expr, Var
from tilecore.ir.visit import names_in
from tilecore.passes.memory_effects import Box, Effect


@dataclass(slots=True)
class Pending:
    """Accesses since the last barrier, and asynchronous writes that have not been waited for.

    `groups` are the committed groups of asynchronous writes, oldest first; `open` the current one.
    `earlier` are the accesses of the phase before, where halves of the warps are a phase apart.
    `reading` is what contractions in flight read, oldest first.
    """

    pending: set[Effect] = field(default_factory=set)
    groups: list[set[Effect]] = field(default_factory=list)
    open: set[Effect] = field(default_factory=set)
    earlier: set[Effect] = field(default_factory=set)
    reading: list[set[Effect]] = field(default_factory=list)

    def copy(self) -> Pending:
        """The same accesses, to go on with on another path."""
        return self.replaced({})

    def meet(self, in_phases: bool) -> None:
        """A barrier; of phases, one that separates only what lies two of them apart."""
        self.earlier = set(self.pending) if in_phases else set()
        self.pending.clear()

    def leave_block(self) -> None:
        """What follows is another block of the grid, to which nothing orders global memory."""
        for effects in (self.pending, self.earlier):
            kept = {e for e in effects if e.box.buffer.scope is not Scope.GLOBAL}
            effects.intersection_update(kept)

    def free(self, buffer: str) -> None:
        """All accesses to a buffer have ended, and are seen."""
        for effects in (self.pending, self.earlier):
            effects -= {effect for effect in effects if effect.box.buffer.name == buffer}

    @property
    def in_flight(self) -> set[Effect]:
        """Asynchronous writes that have not been waited for."""
        return self.open.union(*self.groups)

    def commit(self) -> None:
        """The current group of asynchronous writes is closed."""
        self.groups.append(self.open)
        self.open = set()

    def wait(self, newest: int) -> None:
        """All but the `newest` groups have landed: what they wrote now waits for a barrier."""
        count = max(0, len(self.groups) - newest)
        done, self.groups = self.groups[:count], self.groups[count:]
        for group in done:
            self.pending |= {landed(effect) for effect in group}

    def finish_reads(self, newest: int) -> None:
        """All but the `newest` contractions have read: whoever writes there needs a barrier."""
        count = max(0, len(self.reading) - newest)
        done, self.reading = self.reading[:count], self.reading[count:]
        self.pending = self.pending.union(*done)

    def merge(self, other: Pending) -> None:
        """Where two paths meet; groups are matched from the newest."""
        self.pending |= other.pending
        self.earlier |= other.earlier
        self.open |= other.open
        for mine, theirs in ((self.groups, other.groups), (self.reading, other.reading)):
            while len(mine) < len(theirs):
                mine.insert(0, set())
            for own, others in zip(reversed(mine), reversed(theirs), strict=False):
                own |= others

    def replaced(self, mapping: dict[Var, Expr]) -> Pending:
        """The same accesses in terms of other variables."""

        def shift(effects: set[Effect]) -> set[Effect]:
            if not mapping:
                return set(effects)
            return {dataclasses.replace(e, box=e.box.replaced(mapping)) for e in effects}

        return Pending(
            shift(self.pending),
            [shift(g) for g in self.groups],
            shift(self.open),
            shift(self.earlier),
            [shift(g) for g in self.reading],
        )

    def outlive(self, var: Var) -> None:
        """`var` is about to get another value, or its loop has ended."""
        past = Var(f"{var.name}__past", var.dtype)
        self._change((var.name,), lambda box: box.replaced({var: past}))

    def rewritten(self, buffers: Collection[str]) -> None:
        """These buffers get other contents: where an access went by the old ones is not known."""
        self._change(buffers, lambda box: _anywhere(box, buffers))

    def _change(self, names: Collection[str], change: Callable[[Box], Box]) -> None:
        everything = (self.pending, *self.groups, self.open, self.earlier, *self.reading)
        for effects in everything:
            for effect in [e for e in effects if not names_of(e).isdisjoint(names)]:
                effects.remove(effect)
                effects.add(dataclasses.replace(effect, box=change(effect.box)))


def landed(effect: Effect) -> Effect:
    """An asynchronous write once it has been waited for."""
    return dataclasses.replace(effect, is_async=False)


def names_of(effect: Effect) -> set[str]:
    """Variables and buffers that decide which elements are accessed."""
    return names_in(start for start, _ in effect.box.axes)


def _anywhere(box: Box, buffers: Collection[str]) -> Box:
    axes = tuple(
        (start, None if not names_in((start,)).isdisjoint(buffers) else length)
        for start, length in box.axes
    )
    return Box(box.buffer, axes)
