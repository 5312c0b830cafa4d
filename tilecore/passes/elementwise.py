"""Elementwise nests as one shape: `Parallel`, `Copy`, `Fill` and tile atomics.

A nest is run by spreading its iterations over threads with a fragment layout (the loop layout).
This module makes the nest, lists its accesses, picks the loop layout, and finds out by
enumeration whether a fragment's element is held by the thread that wants it, and in which
register.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    free_vars,
    walk,
)
from tilecore.ir.layout import REGISTER, THREAD, FragmentLayout, FragmentMode
from tilecore.ir.stmts import Atomic, Block, Copy, Fill, For, If, Let, Parallel, Stmt, Store
from tilecore.ir.visit import exprs_of, substitute_block
from tilecore.passes.bounds import Ranges, divisor, linear
from tilecore.passes.spread import (
    coordinate_arrays,
    default_spread,
    holder_offsets,
    place_arrays,
    register_modes,
)

VECTOR_BYTES = 16
"""Widest access of one lane."""


def loop_var(axis: int) -> Var:
    """The variable of a nest that was made from a statement without variables."""
    return Var(f"__{axis}")


def as_parallel(stmt: Stmt) -> Parallel | None:
    """The elementwise nest that `stmt` stands for, or None when it is not elementwise."""
    match stmt:
        case Parallel():
            return _inline_lets(stmt)
        case Copy(src=src, dst=dst, loc=loc):
            at = tuple(loop_var(k) for k in range(len(src.shape)))
            value = _cast(Load(src.buffer, src.indices(at)), dst.buffer)
            body = (Store(dst.buffer, dst.indices(at), value, loc),)
            return Parallel(at, src.shape, body, stmt.hints, loc)
        case Fill(dst=dst, value=value, loc=loc):
            at = tuple(loop_var(k) for k in range(len(dst.shape)))
            return Parallel(
                at, dst.shape, (Store(dst.buffer, dst.indices(at), value, loc),), (), loc
            )
        case Atomic(op=op, dst=dst, value=Region() as value, loc=loc):
            at = tuple(loop_var(k) for k in range(len(dst.shape)))
            point = Region(dst.buffer, dst.indices(at), (None,) * dst.buffer.rank)
            loaded = _cast(Load(value.buffer, value.indices(at)), dst.buffer)
            one = Atomic(op, point, loaded, stmt.memory_order, None, loc)
            return Parallel(at, dst.shape, (one,), (), loc)
        case _:
            return None


def _cast(value: Expr, like: Buffer) -> Expr:
    return value if value.dtype == like.dtype else Cast(value, like.dtype)  # type: ignore[attr-defined]


def _inline_lets(nest: Parallel) -> Parallel:
    """Substitute integer Lets without loads, so that indices are functions of the loop variables."""

    def visit(block: Block) -> Block:
        result: list[Stmt] = []
        mapping: dict[Var, Expr] = {}
        for stmt in block:
            (stmt,) = substitute_block((stmt,), mapping)
            if isinstance(stmt, Let) and stmt.var.dtype.is_int and not _has_load(stmt.value):
                mapping[stmt.var] = stmt.value
                continue
            result.append(stmt)
        return tuple(result)

    return Parallel(nest.vars, nest.extents, visit(nest.body), nest.hints, nest.loc)


def _has_load(expr: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(expr))


@dataclass(frozen=True, slots=True)
class Access:
    """One place where a nest touches a buffer.

    `inner` are the serial loops inside the nest around it: (variable, start, extent).
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_write: bool
    is_conditional: bool
    inner: tuple[tuple[Var, Expr, Expr], ...] = ()


def accesses_of(nest: Parallel) -> list[Access]:
    """All accesses of a nest, in program order; reads before the write of each statement."""
    return list(_accesses(nest.body, False, ()))


def _accesses(
    block: Block, conditional: bool, inner: tuple[tuple[Var, Expr, Expr], ...]
) -> Iterator[Access]:
    for stmt in block:
        for expr in exprs_of(stmt):
            yield from _loads(expr, conditional, inner)
        match stmt:
            case Store(buffer=buffer, indices=indices):
                yield Access(buffer, indices, True, conditional, inner)
            case Atomic(dst=dst):
                yield Access(dst.buffer, dst.starts, True, True, inner)
            case For(var=var, start=start, extent=extent, body=body):
                yield from _accesses(body, conditional, (*inner, (var, start, extent)))
            case If(then=then, otherwise=otherwise):
                yield from _accesses(then, True, inner)
                yield from _accesses(otherwise, True, inner)
            case _:
                pass


def _loads(
    expr: Expr, conditional: bool, inner: tuple[tuple[Var, Expr, Expr], ...]
) -> Iterator[Access]:
    if isinstance(expr, Select):
        yield from _loads(expr.condition, conditional, inner)
        yield from _loads(expr.a, True, inner)
        yield from _loads(expr.b, True, inner)
        return
    for child in expr.children:
        yield from _loads(child, conditional, inner)
    if isinstance(expr, Load):
        yield Access(expr.buffer, expr.indices, False, conditional, inner)


def static_extents(nest: Parallel, ranges: Ranges) -> tuple[int, ...] | None:
    """Extents, or upper bounds of dynamic ones; None when one is unbounded."""
    found = []
    for extent in nest.extents:
        high = extent.value if isinstance(extent, Const) else ranges.interval(extent)[1]
        if high is None:
            return None
        found.append(int(high))
    return tuple(found)


def vector_width(nest: Parallel, ranges: Ranges, threads: int) -> int:
    """Neighbouring iterations along the last axis that one thread should take together.

    The widest that keeps an access contiguous within 16 bytes, divides the extent, and leaves
    work for every thread.
    """
    extents = static_extents(nest, ranges)
    if not extents:
        return 1
    last = nest.vars[-1]
    hinted = dict(nest.hints).get("coalesced_width")
    widest = int(hinted) if hinted else 1
    if not hinted:
        for access in accesses_of(nest):
            if access.buffer.scope in (Scope.GLOBAL, Scope.SHARED) and _is_contiguous(access, last):
                widest = max(widest, VECTOR_BYTES * 8 // max(8, access.buffer.dtype.bits))
        if widest == 1 and all(a.buffer.scope is Scope.FRAGMENT for a in accesses_of(nest)):
            widest = 4
    total = 1
    for extent in extents:
        total *= extent
    while widest > 1 and (extents[-1] % widest or total // widest < threads):
        widest //= 2
    return max(1, widest)


def _is_contiguous(access: Access, last: Var) -> bool:
    """True when `last` advances the buffer's last index by one and no other index."""
    if not access.indices:
        return False
    form = dict(linear(access.indices[-1]).terms)
    others = (last in free_vars(index) for index in access.indices[:-1])
    return form.get(last) == 1 and not any(others)


def loop_layout(
    nest: Parallel, layouts: Mapping[str, object], threads: int, ranges: Ranges
) -> FragmentLayout | None:
    """The loop layout of a nest, given the fragment layouts known so far.

    Deterministic, so that every pass that asks gets the same answer. None when an extent is
    unbounded.
    """
    extents = static_extents(nest, ranges)
    if extents is None:
        return None
    candidates: list[tuple[int, FragmentLayout]] = []
    known = [
        (access, layout)
        for access in accesses_of(nest)
        if access.buffer.scope is Scope.FRAGMENT
        and isinstance(layout := layouts.get(access.buffer.name), FragmentLayout)
    ]
    seen: set[FragmentLayout] = set()
    for access, layout in known:
        derived = _layout_from(access, layout, nest.vars, extents)
        if derived is None or derived in seen:
            continue
        seen.add(derived)
        fitting = sum(
            register_map(nest, extents, a, derived, f, threads) is not None for a, f in known
        )
        if fitting == len(known):
            return derived
        covered = sum(isinstance(index, Var) for index in access.indices)
        candidates.append((fitting * 8 + covered, derived))
    if candidates:
        return max(candidates, key=lambda item: item[0])[1]
    return default_spread(extents, vector_width(nest, ranges, threads), threads)


def _layout_from(
    access: Access, layout: FragmentLayout, loop_vars: tuple[Var, ...], extents: tuple[int, ...]
) -> FragmentLayout | None:
    """The loop layout in which each iteration runs where `access` finds its element."""
    axis_of: dict[Var, int] = {}
    for axis, index in enumerate(access.indices):
        if isinstance(index, Var) and index in loop_vars and index not in axis_of:
            axis_of[index] = axis
        elif not isinstance(index, Const):
            return None
    axes: list[tuple[FragmentMode, ...]] = []
    spare = sorted((m for m in layout.replication), key=lambda m: m.stride)
    register = layout.registers
    pending: list[int] = []
    for k, var in enumerate(loop_vars):
        if var in axis_of:
            modes = layout.axes[axis_of[var]]
            axes.append(modes)
            room = 1
            for mode in modes:
                room *= mode.extent
            if room < extents[k]:
                return None
        else:
            axes.append(())
            pending.append(k)
    for k in reversed(pending):
        modes: list[FragmentMode] = []
        needed = extents[k]
        while needed > 1 and spare:
            mode = spare.pop(0)
            modes.append(mode)
            needed = -(-needed // mode.extent)
        if needed > 1:
            modes.append(FragmentMode(needed, REGISTER, register))
            register *= needed
        axes[k] = tuple(modes) or (FragmentMode(1, REGISTER, 1),)
    from tilecore.passes.spread import compact_registers

    return compact_registers(tuple(axes), tuple(spare))


@dataclass(frozen=True, slots=True)
class RegisterMap:
    """Register of an access: ``base + sum(digit * stride) + sum(inner variable * stride)``.

    `digits` follow `register_modes` of the loop layout, `inner` the access' inner loops.
    """

    base: int
    digits: tuple[int, ...]
    inner: tuple[int, ...]


_COMBINATIONS = 1024  # of inner loop values that are enumerated


def register_map(
    nest: Parallel,
    extents: tuple[int, ...],
    access: Access,
    loop: FragmentLayout,
    layout: FragmentLayout,
    threads: int,
) -> RegisterMap | None:
    """Where a fragment access finds its element, if always in a register of its own thread.

    None when some thread would need another's register, or when a written element's copies
    would not all be written; then the access has to go through shared memory.
    """
    key_vars = tuple(var.name for var in nest.vars)
    return _register_map(
        key_vars, extents, access.buffer, access.indices, access.is_write, access.inner,
        loop, layout, threads,
    )  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _register_map(
    loop_names: tuple[str, ...],
    extents: tuple[int, ...],
    buffer: Buffer,
    indices: tuple[Expr, ...],
    is_write: bool,
    inner: tuple[tuple[Var, Expr, Expr], ...],
    loop: FragmentLayout,
    layout: FragmentLayout,
    threads: int,
) -> RegisterMap | None:
    shape = buffer.static_shape
    if shape is None or loop.threads > threads or layout.threads > threads:
        return None
    coordinates = coordinate_arrays(loop, threads)
    valid = np.ones((threads, loop.registers), bool)
    for coordinate, extent in zip(coordinates, extents, strict=True):
        valid &= (coordinate >= 0) & (coordinate < extent)
    spans = [_constant_range(start, extent) for _, start, extent in inner]
    if any(span is None for span in spans):
        return None
    used = [k for k, (var, _, _) in enumerate(inner) if any(var in free_vars(i) for i in indices)]
    values = [span if k in used else span[:1] for k, span in enumerate(spans)]  # type: ignore[index]
    if np.prod([len(v) for v in values] or [1]) > _COMBINATIONS:
        return None
    tables: dict[tuple[int, ...], np.ndarray] = {}
    for combination in itertools.product(*values):
        environment: dict[str, np.ndarray | int] = dict(zip(loop_names, coordinates, strict=True))
        environment |= {var.name: v for (var, _, _), v in zip(inner, combination, strict=True)}
        table = _register_table(indices, environment, shape, valid, layout, threads, is_write)
        if table is None:
            return None
        tables[combination] = table
    return _fit(tables, loop, len(inner), values)


def _constant_range(start: Expr, extent: Expr) -> list[int] | None:
    if isinstance(start, Const) and isinstance(extent, Const):
        return [int(start.value) + k for k in range(int(extent.value))] or [int(start.value)]
    return None


def _register_table(
    indices: tuple[Expr, ...],
    environment: Mapping[str, np.ndarray | int],
    shape: tuple[int, ...],
    valid: np.ndarray,
    layout: FragmentLayout,
    threads: int,
    is_write: bool,
) -> np.ndarray | None:
    """The register per loop register (-1 where none is needed), or None when threads differ."""
    found = []
    inside = valid.copy()
    for index, extent in zip(indices, shape, strict=True):
        value = evaluate(index, environment)
        if value is None:
            return None
        value = np.broadcast_to(np.asarray(value), valid.shape)
        inside &= (value >= 0) & (value < extent)
        found.append(value)
    place = place_arrays(layout, tuple(np.where(inside, v, 0) for v in found))
    own = np.broadcast_to(np.arange(threads)[:, None], valid.shape)
    holds = np.isin(own - place.thread, holder_offsets(layout))
    if not np.all(holds | ~inside):
        return None
    if is_write and not _writes_all_copies(found, shape, inside, own, layout):
        return None
    low = np.where(inside, place.register, np.iinfo(np.int64).max).min(axis=0, initial=2**62)
    high = np.where(inside, place.register, -1).max(axis=0, initial=-1)
    if np.any((high >= 0) & (low != high)):
        return None
    return high


def _writes_all_copies(
    found: list[np.ndarray],
    shape: tuple[int, ...],
    inside: np.ndarray,
    own: np.ndarray,
    layout: FragmentLayout,
) -> bool:
    if not inside.any():
        return True
    if shape:
        element = np.ravel_multi_index(tuple(np.where(inside, v, 0) for v in found), shape)
    else:
        element = np.zeros(inside.shape, np.int64)
    pairs = np.unique(np.stack([element[inside], own[inside]]), axis=1)
    _, counts = np.unique(pairs[0], return_counts=True)
    return bool(np.all(counts == layout.replicas))


def _fit(
    tables: dict[tuple[int, ...], np.ndarray],
    loop: FragmentLayout,
    inner_count: int,
    values: list[list[int]],
) -> RegisterMap | None:
    """Fit an affine map to the tables; None when there is none."""
    modes = register_modes(loop)
    registers = np.arange(loop.registers)
    digits = [registers // m.stride % m.extent for _, _, m in modes]
    rows, targets = [], []
    for combination, table in tables.items():
        known = table >= 0
        if not known.any():
            continue
        columns = [np.ones(known.sum(), np.int64)]
        columns += [digit[known] for digit in digits]
        columns += [np.full(known.sum(), v, np.int64) for v in combination]
        rows.append(np.stack(columns, axis=1))
        targets.append(table[known])
    if not rows:
        return RegisterMap(0, (0,) * len(modes), (0,) * inner_count)
    matrix, target = np.concatenate(rows), np.concatenate(targets)
    solution, *_ = np.linalg.lstsq(matrix.astype(float), target.astype(float), rcond=None)
    whole = np.rint(solution).astype(np.int64)
    if not np.array_equal(matrix @ whole, target):
        return None
    count = len(modes)
    return RegisterMap(
        int(whole[0]),
        tuple(int(v) for v in whole[1 : 1 + count]),
        tuple(int(v) for v in whole[1 + count :]),
    )


_NUMPY_OPS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide,
    "floormod": np.mod, "min": np.minimum, "max": np.maximum, "bitand": np.bitwise_and,
    "bitor": np.bitwise_or, "bitxor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip


def evaluate(expr: Expr, environment: Mapping[str, np.ndarray | int]) -> np.ndarray | int | None:
    """An integer expression over arrays, or None when it depends on anything else."""
    match expr:
        case Const(value=value):
            return int(value)
        case Var(name=name):
            return environment.get(name)
        case Binary(op=op, a=a, b=b) if op in _NUMPY_OPS:
            left, right = evaluate(a, environment), evaluate(b, environment)
            if left is None or right is None:
                return None
            if op in ("floordiv", "floormod") and np.any(np.asarray(right) == 0):
                return None
            return _NUMPY_OPS[op](left, right)
        case Unary(op="neg", a=a):
            value = evaluate(a, environment)
            return None if value is None else -value
        case Cast(a=a, dtype=dtype) if dtype.is_int and dtype.bits >= int32.bits:
            return evaluate(a, environment)
        case _:
            return None


__all__ = [
    "THREAD",
    "Access",
    "RegisterMap",
    "accesses_of",
    "as_parallel",
    "divisor",
    "evaluate",
    "loop_layout",
    "register_map",
    "static_extents",
    "vector_width",
]
