"""Copies and fills of regions, as elementwise nests."""

from __future__ import annotations

from collections.abc import Callable

from tilecore.ir.buffers import Region
from tilecore.ir.expr import Cast, Expr, Load, Var, const
from tilecore.ir.stmts import Parallel, Store

from .conversions import narrow
from .elementwise import emit_parallel
from .expressions import evaluate
from .memory import store_element
from .state import BlockState

ValueAt = Callable[[tuple[Expr, ...]], Expr]
"""The value to store at given coordinates of a region."""


def _nest_over(s: BlockState, region: Region, value_at: ValueAt) -> Parallel:
    names = [Var(s.w.fresh("copy."), expr.dtype) for expr in region.shape]  # type: ignore[attr-defined]
    coordinates = tuple(names)
    value = value_at(coordinates)
    store = Store(region.buffer, region.indices(coordinates), value)
    return Parallel(coordinates, tuple(region.shape), (store,))


def emit_copy_nest(s: BlockState, src: Region, dst: Region) -> None:
    """``dst = cast(src)`` through the general nest."""

    def value_at(coordinates: tuple[Expr, ...]) -> Expr:
        load = Load(src.buffer, src.indices(coordinates))
        return load if src.dtype == dst.dtype else Cast(load, dst.dtype)

    _emit_region_nest(s, dst, value_at)


def emit_fill_nest(s: BlockState, dst: Region, value: Expr) -> None:
    """Every element of `dst` to `value`."""
    _emit_region_nest(s, dst, lambda coordinates: value)


def _emit_region_nest(s: BlockState, dst: Region, value_at: ValueAt) -> None:
    if not dst.shape:  # a single point: one iteration
        dst = Region(dst.buffer, dst.starts, (*dst.extents[:-1], const(1)) if dst.extents else ())
    if not dst.extents:
        stored = narrow(s.w, evaluate(s, value_at(())), dst.dtype)
        store_element(s, dst.buffer, (), stored)
        return
    emit_parallel(s, _nest_over(s, dst, value_at))
