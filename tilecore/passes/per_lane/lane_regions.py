"""Regions of lanes that run in turn: nests over the lanes, and arrays for what crosses a cut.

A name that a region declares and nobody else mentions stays private to the lane's turn. Others:
a `Let` whose value cannot change, and is small, is written out where it is used, everything else
becomes an array with an element (or, for local buffers, a copy) for each lane. The lane is the
array's last axis, so that neighbouring lanes touch neighbouring elements.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.compound import is_small
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Call, Expr, Load, Var, const, free_vars, substitute
from tilecore.ir.lane_dependence import LANE_INDEX, is_pure, nested_blocks
from tilecore.ir.visit import BODY_FIELDS, map_exprs, map_stmts, regions_of, walk_stmts
from tilecore.passes.per_lane.lane_split import mentioned
from tilecore.passes.scopes import Names

LANE = Call(LANE_INDEX, (), int32)
"""The lane's index, until the nest's variable takes its place."""


@dataclass(frozen=True, slots=True)
class Region(S.Stmt):
    """What each lane runs by itself, if all its masks hold (arrays with a flag for each lane)."""

    stmts: S.Block
    masks: tuple[Buffer, ...]


def finish_regions(body: S.Block, threads: int, names: Names) -> S.Block:
    """Replace the regions of a body by nests over the lanes."""
    body = _write_out(body)
    regions = list(_regions(body))
    owners: dict[str, set[int]] = {}
    for number, region in enumerate(regions):
        for name in _names(region):
            owners.setdefault(name, set()).add(number)
    shared = {
        name: item
        for region in regions
        for name, item in _declared(region.stmts)
        if len(owners[name]) > 1
    }
    arrays = {name: _array(name, item, threads, names) for name, item in shared.items()}
    done = _finish(body, _Finisher(arrays, threads, names))
    return (*(S.Allocate(array.buffer) for array in arrays.values()), *done)


def _regions(block: S.Block) -> Iterator[Region]:
    for stmt in block:
        if isinstance(stmt, Region):
            yield stmt
        for inner in nested_blocks(stmt):
            yield from _regions(inner)


def _names(region: Region) -> set[str]:
    names = {mask.name for mask in region.masks}
    for stmt in region.stmts:
        names |= mentioned(stmt) | {item for item, _ in _declared((stmt,))}
    return names


def _declared(block: S.Block) -> Iterator[tuple[str, Var | Buffer]]:
    """Variables of `Let` and of atomics, and local buffers, that statements declare."""
    for stmt in walk_stmts(block):
        match stmt:
            case S.Let(var=var):
                yield var.name, var
            case S.Allocate(buffer=buffer):
                yield buffer.name, buffer
            case S.Atomic(previous=previous) if previous is not None:
                yield previous.name, previous
            case _:
                pass


# --- values that cannot change -----------------------------------------------------------------


def _write_out(body: S.Block) -> S.Block:
    """Put pure values of regions in place of their variables, in all regions."""
    pure: dict[Var, Expr] = {}
    for region in _regions(body):
        for stmt in walk_stmts(region.stmts):
            if not isinstance(stmt, S.Let) or not is_pure(stmt.value):
                continue
            if is_small(value := substitute(stmt.value, pure)):
                pure[stmt.var] = value
    # A variable of a loop inside a region means nothing outside of that region.
    for region in _regions(body):
        for stmt in walk_stmts(region.stmts):
            if isinstance(stmt, S.For):
                pure = {v: e for v, e in pure.items() if stmt.var not in free_vars(e)}
    if not pure:
        return body

    def visit(stmt: S.Stmt) -> S.Stmt | S.Block | None:
        if isinstance(stmt, S.Let) and stmt.var in pure:
            return ()
        return map_exprs(stmt, lambda node: pure.get(node) if isinstance(node, Var) else None)

    return _map_regions(
        body, lambda region: (dataclasses.replace(region, stmts=map_stmts(region.stmts, visit)),)
    )


def _map_regions(block: S.Block, visit: Callable[[Region], S.Block]) -> S.Block:
    result: list[S.Stmt] = []
    for stmt in block:
        if isinstance(stmt, Region):
            result += visit(stmt)
            continue
        changes = {
            name: _map_regions(inner, visit)
            for name in BODY_FIELDS
            if nested_blocks(stmt) and (inner := getattr(stmt, name, None))
        }
        result.append(dataclasses.replace(stmt, **changes) if changes else stmt)
    return tuple(result)


# --- arrays over lanes -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Array:
    """The array that stands for a name: `is_element` when the name was one element of rank 1."""

    buffer: Buffer
    is_element: bool

    def at(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (LANE,) if self.is_element else (*indices, LANE)


def _array(name: str, item: Var | Buffer, threads: int, names: Names) -> _Array:
    shape = item.static_shape if isinstance(item, Buffer) else ()
    assert shape is not None, "local buffers have constant shapes"
    is_element = shape == (1,)
    extents = (threads,) if is_element else (*shape, threads)
    buffer = names.buffer(f"{name}_of_lane", extents, item.dtype, Scope.SHARED)
    return _Array(buffer, is_element)


@dataclass(slots=True)
class _Finisher:
    arrays: dict[str, _Array]
    threads: int
    names: Names

    def nest(self, region: Region) -> S.Block:
        """A region as a nest over the lanes."""
        body = map_stmts(region.stmts, self.visit)
        body = _elements(body)
        for mask in reversed(region.masks):
            body = (S.If(Load(mask, (LANE,)), body),)
        lane = Var(self.names.fresh("lane"), int32)
        placed = map_stmts(
            body, lambda stmt: map_exprs(stmt, lambda node: lane if node == LANE else None)
        )
        if not placed:
            return ()
        loc = next((s.loc for s in region.stmts if getattr(s, "loc", None)), None)  # type: ignore[attr-defined]
        return (S.Parallel((lane,), (const(self.threads),), placed, (), loc),)

    def visit(self, stmt: S.Stmt) -> S.Stmt | S.Block | None:
        """Accesses to arrays in place of those to variables and local buffers."""
        new = map_exprs(stmt, self.expr)
        match new:
            case S.Let(var=var, value=value) if var.name in self.arrays:
                return S.Store(self.arrays[var.name].buffer, (LANE,), value, new.loc)
            case S.Allocate(buffer=buffer, init=init) if buffer.name in self.arrays:
                if init is None:
                    return ()
                return S.Store(self.arrays[buffer.name].buffer, (LANE,), init, new.loc)
            case S.Store(buffer=buffer, indices=indices) if buffer.name in self.arrays:
                array = self.arrays[buffer.name]
                return dataclasses.replace(new, buffer=array.buffer, indices=array.at(indices))
            case S.Atomic(previous=previous) if previous is not None:
                if previous.name in self.arrays:
                    own = Var(self.names.fresh(previous.name), previous.dtype)
                    keep = S.Store(self.arrays[previous.name].buffer, (LANE,), own, new.loc)
                    return dataclasses.replace(new, previous=own), keep
            case _:
                pass
        return new

    def expr(self, node: Expr) -> Expr | None:
        if isinstance(node, Var) and node.name in self.arrays:
            return Load(self.arrays[node.name].buffer, (LANE,))
        if isinstance(node, Load) and node.buffer.name in self.arrays:
            array = self.arrays[node.buffer.name]
            return Load(array.buffer, array.at(node.indices))
        return None


def _elements(body: S.Block) -> S.Block:
    """Private local buffers of one element as scalars."""
    single = {
        stmt.buffer.name: dataclasses.replace(stmt.buffer, shape=())
        for stmt in walk_stmts(body)
        if isinstance(stmt, S.Allocate) and stmt.buffer.static_shape == (1,)
    }
    used = {piece.buffer.name for stmt in walk_stmts(body) for piece in regions_of(stmt)}
    single = {name: buffer for name, buffer in single.items() if name not in used}
    if not single:
        return body

    def expr(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer.name in single:
            return Load(single[node.buffer.name], ())
        return None

    def visit(stmt: S.Stmt) -> S.Stmt | None:
        new = map_exprs(stmt, expr)
        if isinstance(new, S.Store | S.Allocate) and new.buffer.name in single:
            changes = {"buffer": single[new.buffer.name]}
            if isinstance(new, S.Store):
                return dataclasses.replace(new, indices=(), **changes)
            return dataclasses.replace(new, **changes)
        return new

    return map_stmts(body, visit)


def _finish(block: S.Block, finisher: _Finisher) -> S.Block:
    return _map_regions(block, finisher.nest)


__all__ = ["LANE", "Region", "finish_regions"]
