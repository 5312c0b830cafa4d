"""Whether a nest's access to a fragment stays in the lane that runs it, and in which register.

Found by enumeration with NumPy over all lanes, registers and inner loops, so that no layout is a
special case: the registers must agree among lanes and be affine in the loop's digits.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilecore.ir.buffers import Buffer
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Binary, Cast, Const, Expr, Unary, Var, free_vars
from tilecore.ir.layout import FragmentLayout
from tilecore.ir.stmts import Parallel
from tilecore.passes.accesses import Access
from tilecore.passes.spread import (
    coordinate_arrays,
    holder_offsets,
    place_arrays,
    register_modes,
)


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
    values: list[list[int]] = []
    for var, start, extent in inner:
        span = _constant_range(start, extent)
        if span is None:
            return None
        values.append(span if any(var in free_vars(index) for index in indices) else span[:1])
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
    return _fit(tables, loop, len(inner))


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
    threads = own.shape[0]
    pairs = np.sort(element[inside] * threads + own[inside])
    distinct = pairs[np.append(True, pairs[1:] != pairs[:-1])]
    counts = np.bincount(distinct // threads)  # np.unique would import numpy.ma: 50 ms
    return bool(np.all((counts == layout.replicas) | (counts == 0)))


def _fit(
    tables: dict[tuple[int, ...], np.ndarray],
    loop: FragmentLayout,
    inner_count: int,
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
