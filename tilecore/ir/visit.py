"""Walking and rebuilding statements; passes are written with these four functions."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tilecore.ir.buffers import Buffer, Region
from tilecore.ir.expr import Expr, Load, Var, mentioned, rebuild, substitute, transform
from tilecore.ir.stmts import (
    Alias,
    Allocate,
    Atomic,
    Block,
    Copy,
    Fill,
    For,
    Gemm,
    Intrinsic,
    Let,
    Parallel,
    Reduce,
    Scan,
    Stmt,
    Store,
)

BODY_FIELDS = ("body", "then", "otherwise")
BINDER_FIELDS = ("var", "vars", "previous")


@functools.lru_cache(maxsize=256)
def _field_names(kind: type) -> tuple[str, ...]:
    """Names of a node's fields; `dataclasses.fields` makes a new tuple at every call."""
    return tuple(field.name for field in dataclasses.fields(kind))


@functools.lru_cache(maxsize=256)
def _own_field_names(kind: type) -> tuple[str, ...]:
    """Fields of a statement that are not nested blocks."""
    return tuple(name for name in _field_names(kind) if name not in BODY_FIELDS)


@functools.lru_cache(maxsize=256)
def _block_names(kind: type) -> tuple[str, ...]:
    """Fields of a statement that are nested blocks, in the order of `BODY_FIELDS`."""
    names = _field_names(kind)
    return tuple(name for name in BODY_FIELDS if name in names)


def child_blocks(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks nested directly in `stmt`."""
    return tuple(getattr(stmt, name) for name in _block_names(type(stmt)))


def walk_stmts(block: Block) -> Iterator[Stmt]:
    """Every statement of `block` and of the blocks nested in it, in program order."""
    for stmt in block:
        yield stmt
        for name in _block_names(type(stmt)):
            if inner := getattr(stmt, name):
                yield from walk_stmts(inner)


def exprs_of(stmt: Stmt) -> Iterator[Expr]:
    """Top-level expressions in the statement's own fields, region starts and extents included."""
    found: list[Expr] = []
    for name in _own_field_names(type(stmt)):
        value = getattr(stmt, name)
        if isinstance(value, Expr):
            found.append(value)
        elif isinstance(value, tuple | Region):
            _collect_exprs(value, found)
    return iter(found)


def _collect_exprs(value: tuple[Any, ...] | Region, found: list[Expr]) -> None:
    if isinstance(value, Region):
        found += value.starts
        found += [extent for extent in value.extents if extent is not None]
        return
    for item in value:
        if isinstance(item, Expr):
            found.append(item)
        elif isinstance(item, tuple | Region):
            _collect_exprs(item, found)


def names_in(exprs: Iterable[Expr]) -> set[str]:
    """Variables and buffers that expressions mention."""
    names: set[str] = set()
    for top in exprs:
        for node in mentioned(top):
            if isinstance(node, Var):
                names.add(node.name)
            elif isinstance(node, Load):
                names.add(node.buffer.name)
    return names


def bound_vars(stmt: Stmt) -> tuple[Var, ...]:
    """Variables that the statement itself binds."""
    match stmt:
        case Let(var=var) | For(var=var):
            return (var,)
        case Parallel(vars=variables):
            return variables
        case Atomic(previous=Var() as previous):
            return (previous,)
        case _:
            return ()


def destinations(stmt: Stmt) -> tuple[Buffer, ...]:
    """Buffers that the statement itself, without its nested blocks, may write."""
    match stmt:
        case Store(buffer=buffer):
            return (buffer,)
        case Atomic() | Copy() | Fill() | Reduce() | Scan():
            return (stmt.dst.buffer,)
        case Allocate(buffer=buffer, init=init) if init is not None:
            return (buffer,)
        case Gemm():
            return (stmt.c.buffer,)
        case Intrinsic(args=args):
            # The first argument of a copying intrinsic is its source; the others may be written.
            return tuple(arg.buffer for arg in args[1:] if isinstance(arg, Region))
        case _:
            return ()


def sources_of_views(block: Block) -> dict[str, Buffer]:
    """By the name of each view in `block` the buffer behind it, which is no view itself."""
    sources: dict[str, Buffer] = {}
    for stmt in walk_stmts(block):
        if isinstance(stmt, Alias):
            sources[stmt.buffer.name] = sources.get(stmt.source.name, stmt.source)
    return sources


def regions_of(stmt: Stmt) -> Iterator[Region]:
    """Regions in the statement's own fields."""
    for name in _own_field_names(type(stmt)):
        value = getattr(stmt, name)
        if isinstance(value, Region):
            yield value
        elif isinstance(value, tuple):
            yield from (item for item in value if isinstance(item, Region))


def map_regions(stmt: Stmt, visit: Callable[[Region], Region]) -> Stmt:
    """Rewrite the regions in the statement's own fields."""
    changes: dict[str, Any] = {}
    for name in _own_field_names(type(stmt)):
        old = getattr(stmt, name)
        new: Any = old
        if isinstance(old, Region):
            new = visit(old)
        elif isinstance(old, tuple):
            items = (visit(item) if isinstance(item, Region) else item for item in old)
            new = _same_or(old, tuple(items))
        if new is not old:
            changes[name] = new
    return dataclasses.replace(stmt, **changes) if changes else stmt


def buffers_in(block: Block) -> list[Buffer]:
    """Every buffer that `block` mentions, each once, in order of first mention."""
    seen: dict[str, Buffer] = {}
    for stmt in walk_stmts(block):
        for name in _own_field_names(type(stmt)):
            value = getattr(stmt, name)
            if isinstance(value, Buffer):
                seen.setdefault(value.name, value)
        for region in regions_of(stmt):
            seen.setdefault(region.buffer.name, region.buffer)
        for expr in exprs_of(stmt):
            for node in mentioned(expr):
                if isinstance(node, Load):
                    seen.setdefault(node.buffer.name, node.buffer)
    return list(seen.values())


def map_exprs(stmt: Stmt, visit: Callable[[Expr], Expr | None]) -> Stmt:
    """Rewrite the expressions of one statement (not of nested blocks), bottom-up.

    A variable that the statement binds may be renamed; any other answer for it leaves it alone.
    """
    changes: dict[str, Any] = {}
    for name in _own_field_names(type(stmt)):
        old = getattr(stmt, name)
        new = (_map_binder if name in BINDER_FIELDS else _map_value)(old, visit)
        if new is not old:
            changes[name] = new
    return dataclasses.replace(stmt, **changes) if changes else stmt


def map_whole_exprs(stmt: Stmt, convert: Callable[[Expr], Expr]) -> Stmt:
    """Rewrite the statement's own top-level expressions (not those of nested blocks)."""

    def value_of(value: object) -> object:
        if isinstance(value, Expr):
            return convert(value)
        if isinstance(value, Region):
            starts = tuple(convert(start) for start in value.starts)
            return Region(value.buffer, starts, value.extents)
        if isinstance(value, tuple) and any(isinstance(item, Expr | Region) for item in value):
            return tuple(value_of(item) for item in value)
        return value

    changes: dict[str, Any] = {}
    for name in _own_field_names(type(stmt)):
        if name not in BINDER_FIELDS:
            old = getattr(stmt, name)
            if (new := value_of(old)) != old:
                changes[name] = new
    return dataclasses.replace(stmt, **changes) if changes else stmt


def _map_value(value: Any, visit: Callable[[Expr], Expr | None]) -> Any:
    if isinstance(value, Expr):
        return transform(value, visit)
    if isinstance(value, Region):
        starts = _map_value(value.starts, visit)
        extents = _map_value(value.extents, visit)
        if starts is value.starts and extents is value.extents:
            return value
        return Region(value.buffer, starts, extents)
    if isinstance(value, tuple) and any(isinstance(item, Expr | Region) for item in value):
        return _same_or(value, tuple(_map_value(item, visit) for item in value))
    return value


def _same_or(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    """`old` itself when nothing in it changed, so that callers see that at once."""
    return old if all(a is b for a, b in zip(old, new, strict=True)) else new


def _map_binder(value: Any, visit: Callable[[Expr], Expr | None]) -> Any:
    """A bound variable, a tuple of them, or None."""
    if isinstance(value, tuple):
        return _same_or(value, tuple(_map_binder(item, visit) for item in value))
    new = None if value is None else visit(value)
    return new if isinstance(new, Var) else value


def map_stmts(block: Block, visit: Callable[[Stmt], Stmt | Block | None]) -> Block:
    """Rewrite statements bottom-up: `visit` returns a statement, a block, or None to keep."""
    result: list[Stmt] = []
    for stmt in block:
        changes: dict[str, Any] = {}
        for name in _block_names(type(stmt)):
            inner = getattr(stmt, name)
            if inner:
                new = map_stmts(inner, visit)
                if len(new) != len(inner) or any(map(operator.is_not, new, inner)):
                    changes[name] = new
        if changes:
            stmt = dataclasses.replace(stmt, **changes)
        answer = visit(stmt)
        if answer is None:
            result.append(stmt)
        elif isinstance(answer, tuple):
            result.extend(answer)
        else:
            result.append(answer)
    return tuple(result)


def substitute_block(block: Block, mapping: dict[Var, Expr]) -> Block:
    """Replace variables in a whole block (names are unique, so nothing can be captured)."""
    variables = mapping.keys()

    def visit(stmt: Stmt) -> Stmt | None:
        if all(variables.isdisjoint(mentioned(expr)) for expr in exprs_of(stmt)):
            return None
        return map_exprs(stmt, lambda node: mapping.get(node) if isinstance(node, Var) else None)

    return map_stmts(block, visit) if mapping else block


def map_names(value: Any, visit: Callable[[Var | Buffer], Any]) -> Any:
    """A statement, region or expression, or a tuple of them, with other variables and buffers.

    `visit` answers for each of them, those that a statement binds or declares included.
    """
    if isinstance(value, Var | Buffer):
        return visit(value)
    if isinstance(value, Load):
        return Load(visit(value.buffer), map_names(value.indices, visit))
    if isinstance(value, Expr):
        children = map_names(value.children, visit)
        same = all(a is b for a, b in zip(children, value.children, strict=True))
        return value if same else rebuild(value, children)
    if isinstance(value, tuple):
        return tuple(map_names(item, visit) for item in value)
    if isinstance(value, Stmt | Region):
        changes = {
            name: map_names(getattr(value, name), visit)
            for name in _field_names(type(value))
            if name not in ("loc", "hints", "pipeline")
        }
        return dataclasses.replace(value, **changes)
    return value


__all__ = [
    "bound_vars",
    "buffers_in",
    "child_blocks",
    "destinations",
    "exprs_of",
    "map_exprs",
    "map_names",
    "map_regions",
    "map_stmts",
    "map_whole_exprs",
    "names_in",
    "regions_of",
    "sources_of_views",
    "substitute",
    "substitute_block",
    "walk_stmts",
]
