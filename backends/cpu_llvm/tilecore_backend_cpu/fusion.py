"""Neighbouring elementwise statements and row reductions over one domain become one nest.

    parallel (i, j): s[i, j] = exp(s[i, j])          for i, for j in vectors:
    reduce sum s -> t  axis 1                   =>       s = exp(s); t' += s; w = cast(s)
    copy s -> w                                          t[i] = sum of t'

Values then stay in registers between the statements. A later statement may join across others that
it has nothing to do with. Two members that touch the same buffer, one of them writing, must name
the same element (r, c) of it; so each member still sees exactly what it saw before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Cast, Const, Expr, Load, Var, const, substitute, walk
from tilecore.ir.stmts import (
    Atomic,
    Block,
    Copy,
    Fill,
    Gemm,
    Let,
    Parallel,
    Reduce,
    Scan,
    Stmt,
    Store,
)
from tilecore.ir.visit import buffers_in, exprs_of, regions_of, substitute_block, walk_stmts


@dataclass(frozen=True, slots=True)
class FusedNest(Stmt):
    """A nest over (row, column) with reductions of its values along the rows.

    `reduces` are (how many statements of the body come before it, the reduction).
    """

    nest: Parallel
    reduces: tuple[tuple[int, Reduce], ...]

    @property
    def members(self) -> Block:
        """The statements of the body, then the reductions."""
        return (*self.nest.body, *(reduce for _, reduce in self.reduces))

    @property
    def place(self) -> tuple[Expr, Expr]:
        """(row, column) as expressions."""
        return _place(self.nest.vars[0], self.nest.vars[1], self.nest.extents)


def _place(row: Var, column: Var, extents: tuple[Expr, ...]) -> tuple[Expr, Expr]:
    """The only row is named by 0, as simplified programs do it."""
    is_single = isinstance(extents[0], Const) and extents[0].value == 1
    return (const(0, row.dtype) if is_single else row, column)


Access = tuple[str, tuple[Expr, ...], bool]
"""Buffer name, element, whether it is written."""

_MOVABLE = (Parallel, Copy, Fill, Reduce, Gemm, Scan)


@dataclass(slots=True)
class _Group:
    row: Var
    column: Var
    extents: tuple[Expr, ...]
    body: list[Stmt]
    reduces: list[tuple[int, Reduce]]
    accesses: list[Access]
    row_results: set[str]
    members: int = 0

    @property
    def place(self) -> tuple[Expr, Expr]:
        """(row, column) as expressions."""
        return _place(self.row, self.column, self.extents)


class Fuser:
    """Fuses blocks of one kernel. `is_special` marks copies and fills that have a faster way."""

    def __init__(self, roots: dict[str, str], is_special: Callable[[Copy | Fill], bool]) -> None:
        self.roots = roots
        self.is_special = is_special
        self._count = 0

    def fuse(self, block: Block) -> list[Stmt]:
        """The block with groups of two or more statements replaced."""
        result: list[Stmt] = []
        done: set[int] = set()
        for at, stmt in enumerate(block):
            if at in done:
                continue
            group = self._start(stmt)
            if group is None:
                result.append(stmt)
                continue
            skipped: list[Stmt] = []
            for later in range(at + 1, len(block)):
                if later in done:
                    continue
                candidate = block[later]
                if self._join(group, candidate, skipped):
                    done.add(later)
                elif isinstance(candidate, _MOVABLE):
                    skipped.append(candidate)
                else:
                    break
            is_alone = group.members < 2 and not _takes_rows_together(stmt)
            result.append(stmt if is_alone else self._finish(group))
        return result

    def _finish(self, group: _Group) -> FusedNest:
        nest = Parallel((group.row, group.column), group.extents, tuple(group.body))
        return FusedNest(nest, tuple(group.reduces))

    def _start(self, stmt: Stmt) -> _Group | None:
        extents = self._domain(stmt)
        if extents is None:
            return None
        self._count += 1
        row, column = Var(f"fused.r{self._count}"), Var(f"fused.c{self._count}")
        group = _Group(row, column, extents, [], [], [], set())
        return group if self._join(group, stmt, []) else None

    def _domain(self, stmt: Stmt) -> tuple[Expr, ...] | None:
        """(rows, columns) of a statement that can be a member."""
        match stmt:
            case Parallel(extents=extents, body=body):
                if all(isinstance(inner, Store | Let) for inner in body) and _is_static(extents):
                    return extents
            case Copy(src=src, dst=dst):
                if not self.is_special(stmt) and _is_static(dst.shape) and src.shape == dst.shape:
                    return dst.shape
            case Fill(dst=dst):
                if not self.is_special(stmt) and _is_static(dst.shape):
                    return dst.shape
            case Reduce(src=src, axis=axis):
                if _is_static(src.shape) and axis % 2 == 1:
                    return src.shape
            case _:
                return None
        return None

    # -- joining --------------------------------------------------------------------------------

    def _join(self, group: _Group, stmt: Stmt, skipped: list[Stmt]) -> bool:
        """Add a statement to the group if nothing can tell the difference."""
        extents = self._domain(stmt)
        if extents is None or not _same_extents(extents, group.extents):
            return False
        if any(self._conflict(stmt, other) for other in skipped):
            return False
        body = self._body(group, stmt)
        accesses = list(self._accesses(body))
        if isinstance(stmt, Reduce):
            source = stmt.src.indices(group.place)
            accesses.append((self._root(stmt.src.buffer), source, False))
            if self._root(stmt.dst.buffer) in {name for name, _, _ in (*group.accesses, *accesses)}:
                return False
        if not self._agrees(group, accesses):
            return False
        if isinstance(stmt, Reduce):
            if self._root(stmt.dst.buffer) in group.row_results:
                return False
            group.row_results.add(self._root(stmt.dst.buffer))
            group.reduces.append((len(group.body), stmt))
        group.body.extend(body)
        group.accesses.extend(accesses)
        group.members += 1
        return True

    def _agrees(self, group: _Group, accesses: list[Access]) -> bool:
        for name, indices, is_written in accesses:
            if name in group.row_results:
                return False
            for other, other_indices, other_written in (*group.accesses, *accesses):
                if other != name or not (is_written or other_written):
                    continue
                if indices != other_indices or not self._is_point(group, indices):
                    return False
        return True

    def _is_point(self, group: _Group, indices: tuple[Expr, ...]) -> bool:
        """Whether different (row, column) name different elements: both are plain indices."""
        from .analysis import coefficient

        for var in group.place:
            if not isinstance(var, Var):
                continue
            other = group.column if var is group.row else group.row
            if not any(
                coefficient(index, var.name, {}) not in (0, None)
                and coefficient(index, other.name, {}) == 0
                for index in indices
            ):
                return False
        return True

    def _body(self, group: _Group, stmt: Stmt) -> list[Stmt]:
        """The statement as stores over the group's variables; empty for reductions."""
        place = group.place
        match stmt:
            case Parallel(vars=variables, body=body):
                mapping: dict[Var, Expr] = dict(zip(variables, place, strict=True))
                return list(substitute_block(body, mapping))
            case Copy(src=src, dst=dst):
                value: Expr = Load(src.buffer, src.indices(place))
                value = value if src.dtype == dst.dtype else Cast(value, dst.dtype)
                return [Store(dst.buffer, dst.indices(place), value)]
            case Fill(dst=dst, value=value):
                return [Store(dst.buffer, dst.indices(place), value)]
            case _:
                return []

    def _accesses(self, body: list[Stmt]) -> Iterator[Access]:
        lets: dict[Var, Expr] = {}
        for stmt in body:
            for top in exprs_of(stmt):
                for node in walk(substitute(top, lets)):
                    if isinstance(node, Load):
                        yield (self._root(node.buffer), node.indices, False)
            if isinstance(stmt, Let):
                lets[stmt.var] = substitute(stmt.value, lets)
            if isinstance(stmt, Store):
                yield (
                    self._root(stmt.buffer),
                    tuple(substitute(e, lets) for e in stmt.indices),
                    True,
                )

    # -- conflicts with what is jumped over -----------------------------------------------------

    def _root(self, buffer: Buffer) -> str:
        return self.roots.get(buffer.name, buffer.name)

    def _conflict(self, a: Stmt, b: Stmt) -> bool:
        a_all, a_written = self._touched(a)
        b_all, b_written = self._touched(b)
        return bool(a_written & b_all or b_written & a_all)

    def _touched(self, stmt: Stmt) -> tuple[set[str], set[str]]:
        everything = {self._root(buffer) for buffer in buffers_in((stmt,))}
        for top in exprs_of(stmt):
            everything |= {self._root(n.buffer) for n in walk(top) if isinstance(n, Load)}
        written: set[str] = set()
        for inner in walk_stmts((stmt,)):
            match inner:
                case Store(buffer=buffer):
                    written.add(self._root(buffer))
                case (
                    Copy(dst=dst)
                    | Fill(dst=dst)
                    | Reduce(dst=dst)
                    | Scan(dst=dst)
                    | Atomic(dst=dst)
                ):
                    written.add(self._root(dst.buffer))
                case Gemm(c=c):
                    written.add(self._root(c.buffer))
                case _:
                    continue
        return everything | written, written


def _takes_rows_together(stmt: Stmt) -> bool:
    """Reductions that are a nest even alone: 16 rows of 32-bit elements at a time."""
    if not isinstance(stmt, Reduce) or stmt.src.dtype.bits != 32 or stmt.dst.dtype.bits != 32:
        return False
    rows, columns = stmt.src.shape
    return isinstance(rows, Const) and rows.value % 16 == 0 and _is_static((rows, columns))


def _is_static(extents: tuple[Expr, ...]) -> bool:
    return len(extents) == 2 and all(
        isinstance(extent, Const) and extent.value > 0 for extent in extents
    )


def _same_extents(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    return [e.value for e in a] == [e.value for e in b]  # type: ignore[attr-defined]


__all__ = ["FusedNest", "Fuser", "Region", "Scope", "regions_of"]
