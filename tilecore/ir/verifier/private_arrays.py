"""Private arrays that iterations of a `Parallel` write: nobody else may read what they left.

A local buffer from outside of a nest is scratch there: each iteration has it to itself, and begins
with what the block had in it. Which lane runs an iteration, and how many of them, is the compiler's
to choose, so what an iteration leaves in it is in one lane's registers, under what that lane's next
iterations write. Hence two rules:

* outside of the nest, or in another one, it may be read only after it was written anew there;
* inside, an iteration that writes it reads only what it has written before.

Elements are told apart as far as their indices show it; a store to a place known only when the
program runs counts as one to all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

from tilecore.errors import LanguageError, Loc
from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import Const, Expr, Load, Var, dtype_of_expr, free_vars, mentioned, substitute
from tilecore.ir.expr_text import format_expr
from tilecore.ir.lane_dependence import definitions_of, is_pure
from tilecore.ir.ranges import Ranges
from tilecore.ir.visit import (
    child_blocks,
    destinations,
    exprs_of,
    regions_of,
    sources_of_views,
    walk_stmts,
)

Place = tuple[Expr, ...]


def check_private_arrays(body: S.Block) -> None:
    """Refuse reads of what iterations of a `Parallel` left in private arrays.

    Raises:
        LanguageError: with the line that reads, and the one that wrote.
    """
    views = sources_of_views(body)
    nests = [stmt for stmt in walk_stmts(body) if isinstance(stmt, S.Parallel)]
    if any(_written_in(nest, views) for nest in nests):
        _Check(views, definitions_of(body)).block(body, {})


@dataclass(frozen=True, slots=True)
class _Left:
    """What iterations left in an array: where, and the elements that were written anew since."""

    loc: Loc | None
    anew: frozenset[Place] = frozenset()


Leavings = dict[str, _Left]


def _joined(a: Leavings, b: Leavings) -> Leavings:
    both = {**a, **b}
    for name in a.keys() & b.keys():
        both[name] = dataclasses.replace(a[name], anew=a[name].anew & b[name].anew)
    return both


def _written_in(nest: S.Parallel, views: dict[str, Buffer]) -> dict[str, Loc | None]:
    """Private arrays from outside of a nest that it writes, and a line that does."""
    made = {s.buffer.name for s in walk_stmts(nest.body) if isinstance(s, S.Allocate)}
    return {
        root: getattr(stmt, "loc", None)
        for stmt in walk_stmts(nest.body)
        if not isinstance(stmt, S.Allocate)
        for buffer in destinations(stmt)
        if buffer.scope is Scope.LOCAL
        and (root := views.get(buffer.name, buffer).name) not in made
    }  # fmt: skip


def _reads_of(stmt: S.Stmt) -> Iterator[tuple[Buffer, Place | None]]:
    """Buffers that a statement itself reads, with the element where it is one."""
    for top in exprs_of(stmt):
        for node in mentioned(top):
            if isinstance(node, Load):
                yield node.buffer, node.indices
    only_written = isinstance(stmt, S.Copy | S.Fill | S.Scan) or (
        isinstance(stmt, S.Reduce) and stmt.clear
    )
    for region in regions_of(stmt):
        if not (only_written and region is getattr(stmt, "dst", None)):
            yield region.buffer, None


@dataclass(frozen=True, slots=True)
class _Check:
    views: dict[str, Buffer]
    definitions: dict[Var, Expr]

    def root(self, buffer: Buffer) -> str:
        return self.views.get(buffer.name, buffer).name

    def block(self, block: S.Block, left: Leavings) -> Leavings:
        """Check a block's statements in order; what is left in private arrays after them."""
        for stmt in block:
            if isinstance(stmt, S.Parallel):
                left = self.nest(stmt, left)
                continue
            for buffer, place in _reads_of(stmt):
                found = left.get(self.root(buffer))
                if found is not None and place not in found.anew:
                    raise _refusal(buffer, place, found.loc, "at block scope", stmt)
            left = self.written(stmt, left)
            left = self.nested(stmt, left)
        return left

    def nested(self, stmt: S.Stmt, left: Leavings) -> Leavings:
        if isinstance(stmt, S.For | S.While):
            left = _joined(left, self.block(stmt.body, left))
            return _joined(left, self.block(stmt.body, left))
        if isinstance(stmt, S.If):
            return _joined(self.block(stmt.then, left), self.block(stmt.otherwise, left))
        for inner in child_blocks(stmt):
            left = self.block(inner, left)
        return left

    def written(self, stmt: S.Stmt, left: Leavings) -> Leavings:
        """What is left after a statement of block scope wrote its destinations."""
        if isinstance(stmt, S.Allocate):
            return {name: one for name, one in left.items() if name != stmt.buffer.name}
        for buffer in destinations(stmt):
            name = self.root(buffer)
            if name not in left:
                continue
            left = dict(left)
            place = stmt.indices if isinstance(stmt, S.Store) else None
            if place and all(isinstance(index, Const) for index in place):
                found = left[name]
                left[name] = dataclasses.replace(found, anew=found.anew | {place})
            else:
                del left[name]
        return left

    def nest(self, nest: S.Parallel, left: Leavings) -> Leavings:
        written = _written_in(nest, self.views)
        watched: dict[str, tuple[Loc | None, str]] = {
            name: (loc, "before the iteration wrote it") for name, loc in written.items()
        }
        for name, found in left.items():
            watched[name] = (found.loc, "in another T.Parallel")
        if watched:
            _Iteration(self, nest, watched, left).block(nest.body, _Done())
        return {**left, **{name: _Left(loc) for name, loc in written.items()}}


@dataclass(frozen=True, slots=True)
class _Done:
    """What an iteration has written so far: always, and where a condition held."""

    always: frozenset[tuple[str, Place]] = frozenset()
    where: tuple[tuple[Expr, frozenset[tuple[str, Place]]], ...] = ()

    def under(self, condition: Expr) -> _Done:
        """Where `condition` holds."""
        more = (places for test, places in self.where if test == condition)
        return dataclasses.replace(self, always=self.always.union(*more))


@dataclass(frozen=True, slots=True)
class _Iteration:
    """One iteration of a nest, statement by statement."""

    check: _Check
    nest: S.Parallel
    watched: dict[str, tuple[Loc | None, str]]
    left: Leavings
    ranges: Ranges = field(init=False)

    def __post_init__(self) -> None:
        ranges = Ranges()
        for stmt in walk_stmts((self.nest,)):
            if isinstance(stmt, S.Parallel):
                for var, extent in zip(stmt.vars, stmt.extents, strict=True):
                    ranges = ranges.with_index(var, extent)
            elif isinstance(stmt, S.For):
                ranges = ranges.with_loop(stmt.var, stmt.start, stmt.extent, stmt.step)
        object.__setattr__(self, "ranges", ranges)

    def block(self, block: S.Block, done: _Done) -> _Done:
        for stmt in block:
            for buffer, place in _reads_of(stmt):
                self.read(buffer, place, done, stmt)
            if isinstance(stmt, S.If):
                done = self.branch(stmt, done)
            else:
                for inner in child_blocks(stmt):
                    done = self.block(inner, done)
            if isinstance(stmt, S.Store) and stmt.buffer.scope is Scope.LOCAL:
                entry = (self.check.root(stmt.buffer), self.spelt(stmt.indices))
                done = dataclasses.replace(done, always=done.always | {entry})
        return done

    def branch(self, stmt: S.If, done: _Done) -> _Done:
        condition = substitute(stmt.condition, self.check.definitions)
        then = self.block(stmt.then, done.under(condition)).always
        otherwise = self.block(stmt.otherwise, done).always
        always = done.always | (then & otherwise)
        where = done.where
        if is_pure(condition):
            where = (*where, (condition, then))
        return _Done(always, where)

    def spelt(self, place: Place) -> Place:
        return tuple(substitute(index, self.check.definitions) for index in place)

    def read(self, buffer: Buffer, place: Place | None, done: _Done, stmt: S.Stmt) -> None:
        name = self.check.root(buffer)
        if name not in self.watched:
            return
        at = self.spelt(place or ())
        written = [wrote for other, wrote in done.always if other == name]
        if not written and name in self.left and at in self.left[name].anew:
            return
        if any(self.covers(wrote, at) for wrote in written):
            return
        loc, where = self.watched[name]
        raise _refusal(buffer, place, loc, where, stmt)

    def covers(self, wrote: Place, read: Place) -> bool:
        """Whether a store may be what a read of the same iteration finds."""
        if len(wrote) != len(read):
            return True  # through views of different ranks
        return all(self.may_equal(a, b) for a, b in zip(wrote, read, strict=True))

    def may_equal(self, a: Expr, b: Expr) -> bool:
        if a == b:
            return True
        if not (dtype_of_expr(a).is_int and dtype_of_expr(b).is_int):
            return False
        gap = self.ranges.linear(a).plus(self.ranges.linear(b), -1)
        if not gap.terms:
            return gap.constant == 0
        return all(free_vars(term).isdisjoint(self.nest.vars) for term, _ in gap.terms)


def _refusal(
    buffer: Buffer, place: Place | None, loc: Loc | None, where: str, stmt: S.Stmt
) -> LanguageError:
    name = buffer.name
    text = name if not place else f"{name}[{', '.join(map(format_expr, place))}]"
    line = f" (line {loc.line})" if loc is not None else ""
    return LanguageError(
        f"{name} is private, and read where T.Parallel{line} did not leave its values",
        expected="a read by the iteration that wrote the element, after it did",
        got=f"{text} read {where}",
        loc=getattr(stmt, "loc", None),
        hint="what iterations leave for others belongs in T.alloc_fragment or T.alloc_shared, a"
        " total in T.alloc_reducer, and scratch in a T.alloc_local made inside of the T.Parallel",
    )


__all__ = ["check_private_arrays"]
