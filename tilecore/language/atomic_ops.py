"""Atomic read-modify-write of global and shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilecore.ir.buffers import Region, Scope
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Const, Load, Var, const
from tilecore.ir.stmts import Atomic, Parallel
from tilecore.language import operators as ops
from tilecore.language.allocate import alloc_local
from tilecore.language.builder import Builder, current
from tilecore.language.indexing import element_of
from tilecore.language.locate import caller_loc, fail
from tilecore.language.private_ops import local_atomic
from tilecore.language.regions import head_region, is_head, match_shapes, region_of, require_scope
from tilecore.language.tile_ops import tile_builder
from tilecore.language.values import BufferValue, Cell, RegionValue, Scalar

_ORDERS = ("relaxed", "acquire", "release", "acq_rel", "seq_cst")
_INTEGER_OPS = ("and", "or", "xor")


def _order(memory_order: str | None, default: str = "relaxed") -> str:
    order = default if memory_order is None else memory_order
    order = "acquire" if order == "consume" else order
    if order not in _ORDERS:
        fail("unknown memory order", expected=", ".join(_ORDERS), got=memory_order)
    return order


def _atomic(
    op: str, dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False
) -> Scalar | None:
    what = f"T.atomic_{op}"
    builder = current()
    builder.require_kernel(what)
    order = _order(memory_order)
    tile = isinstance(value, BufferValue | RegionValue) or isinstance(
        dst, BufferValue | RegionValue
    )
    if isinstance(dst, BufferValue | RegionValue) and ops.is_number(value):
        region = region_of(dst, f"destination of {what}")
        if region.buffer.scope is Scope.LOCAL:
            local_atomic(op, region, value)
            return None
        _spread(builder, op, region, value, order)
        return None
    if tile:
        if return_prev:
            fail(f"{what}(return_prev=True) takes one element", got="a tile")
        _tile(tile_builder(what), op, dst, value, order)
        return None
    return _element(builder, op, dst, value, order, return_prev)


def _element(
    builder: Builder, op: str, dst: Any, value: Any, order: str, return_prev: bool
) -> Scalar | None:
    what = f"T.atomic_{op}"
    element = element_of(dst)
    if element is None:
        fail(
            f"destination of {what} is no place in memory",
            expected="an element such as A[i]",
            got=ops.describe(dst),
        )
    buffer, indices = element
    if buffer.scope is Scope.LOCAL and buffer.rank and not isinstance(dst, Cell):
        _check_dtype(op, buffer.dtype, what)
        place = Region(buffer, indices, (None,) * len(indices))
        old = local_atomic(op, place, value)
        return old if return_prev else None
    if not (isinstance(dst, Cell) and buffer.rank):
        require_scope(buffer, (Scope.GLOBAL, Scope.SHARED), f"destination of {what}")
    _check_dtype(op, buffer.dtype, what)
    region = Region(buffer, indices, (None,) * len(indices))
    expr = ops.to_dtype(value, buffer.dtype, f"value of {what}")
    previous = Var(builder.unique(builder.take_hint("previous")), buffer.dtype)
    names = (previous.name,) if return_prev else ()
    stmt = Atomic(op, region, expr, order, previous if return_prev else None, caller_loc())
    builder.emit(stmt, declares=names)
    return Scalar(previous) if return_prev else None


def _spread(builder: Builder, op: str, region: Region, value: Any, order: str) -> None:
    """One number into each element of a tile."""
    what = f"T.atomic_{op}"
    tile_builder(what)
    require_scope(region.buffer, (Scope.GLOBAL, Scope.SHARED), f"destination of {what}")
    _check_dtype(op, region.dtype, what)
    expr = ops.to_dtype(value, region.dtype, f"value of {what}")
    variables = tuple(Var(builder.unique("i"), int32) for _ in region.shape)
    frame = builder.push("parallel", (var.name for var in variables))
    place = Region(region.buffer, region.indices(variables), (None,) * region.buffer.rank)
    builder.emit(Atomic(op, place, expr, order, None, caller_loc()))
    builder.emit(Parallel(variables, region.shape, builder.pop(frame), (), caller_loc()))


def _check_dtype(op: str, dtype: Any, what: str) -> None:
    if op in _INTEGER_OPS and not dtype.is_int:
        fail(f"{what} needs integers", expected="an integer dtype", got=dtype)


def _tile(builder: Builder, op: str, dst: Any, value: Any, order: str) -> None:
    what = f"T.atomic_{op}"
    if not (isinstance(value, BufferValue | RegionValue) or is_head(value)):
        fail(f"value of {what} is no tile", expected="a tile of the same shape", got=value)
    if is_head(dst):
        source = region_of(value, f"value of {what}")
        target = head_region(dst, source.shape, f"destination of {what}")
    elif is_head(value):
        target = region_of(dst, f"destination of {what}")
        source = head_region(value, target.shape, f"value of {what}")
    else:
        target = region_of(dst, f"destination of {what}")
        source = region_of(value, f"value of {what}")
    if target.buffer.scope is Scope.LOCAL:
        _check_dtype(op, target.dtype, what)
        source, target = match_shapes(source, target, what)
        local_atomic(op, target, source)
        return
    require_scope(target.buffer, (Scope.GLOBAL, Scope.SHARED), f"destination of {what}")
    _check_dtype(op, target.dtype, what)
    source, target = match_shapes(source, target, what)
    builder.emit(Atomic(op, target, source, order, None, caller_loc()))


def atomic_add(
    dst: Any,
    value: Any,
    memory_order: str | None = None,
    return_prev: bool = False,
    use_tma: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> Scalar | None:
    """``dst += value`` atomically: one element, or a whole tile.

    Args:
        dst: an element, or a tile or head element where `value` is a tile.
        value: a scalar, or a tile.
        memory_order: relaxed, acquire, release, acq_rel or seq_cst.
        return_prev: return the old value (one element only).
        use_tma: advice: the bulk transfer unit may add; the result is the same.
        annotations: further advice.
    """
    del use_tma, annotations
    return _atomic("add", dst, value, memory_order, return_prev)


def _make(op: str) -> Any:
    def function(
        dst: Any,
        value: Any,
        memory_order: str | None = None,
        return_prev: bool = False,
        annotations: Mapping[str, Any] | None = None,
    ) -> Scalar | None:
        del annotations
        return _atomic(op, dst, value, memory_order, return_prev)

    function.__name__ = f"atomic_{op}"
    function.__doc__ = f"``dst = {op}(dst, value)`` atomically; see `atomic_add`."
    return function


atomic_sub = _make("sub")
atomic_max = _make("max")
atomic_min = _make("min")
atomic_and = _make("and")
atomic_or = _make("or")
atomic_xor = _make("xor")
atomic_exchange = _make("exchange")


def atomic_addx2(dst: Any, value: Any, return_prev: bool = False) -> RegionValue | None:
    """Two neighbouring elements: ``dst[..., i : i + 2] += value[..., j : j + 2]``.

    Each of them is added atomically. With `return_prev` their old values come back, as a tile.
    """
    return _packed(2, dst, value, return_prev)


def atomic_addx4(dst: Any, value: Any, return_prev: bool = False) -> RegionValue | None:
    """Four neighbouring elements; see `atomic_addx2`."""
    return _packed(4, dst, value, return_prev)


def _packed(width: int, dst: Any, value: Any, return_prev: bool) -> RegionValue | None:
    what = f"T.atomic_addx{width}"
    builder = current()
    builder.require_kernel(what)
    regions: list[Region] = []
    for name, place in (("destination", dst), ("value", value)):
        element = element_of(place)
        if element is None and isinstance(place, RegionValue | BufferValue):
            region = region_of(place, f"{name} of {what}")
            if region.static_shape != (width,):
                fail(f"{name} of {what} is not {width} elements", got=ops.describe(place))
            regions.append(region)
            continue
        if element is None:
            fail(f"{name} of {what} is no place in memory", got=ops.describe(place))
        buffer, indices = element
        points: tuple[None, ...] = (None,) * (len(indices) - 1)
        regions.append(Region(buffer, indices, (*points, const(width, int32))))
    require_scope(regions[0].buffer, (Scope.GLOBAL, Scope.SHARED), f"destination of {what}")
    if return_prev:
        return _packed_previous(width, regions[0], regions[1])
    if builder.inside("parallel"):  # each iteration has its own few elements
        for dst, value in _pairs(width, regions[0], regions[1]):
            _atomic("add", dst, value)
        return None
    builder.emit(Atomic("add", regions[0], regions[1], "relaxed", None, caller_loc()))
    return None


def _pairs(width: int, target: Region, source: Region) -> list[tuple[Scalar, Scalar]]:
    """The elements of both sides, one after the other."""
    places = [(const(k, int32),) for k in range(width)]
    return [
        (
            Scalar(Load(target.buffer, target.indices(place))),
            Scalar(Load(source.buffer, source.indices(place))),
        )
        for place in places
    ]


def _packed_previous(width: int, target: Region, source: Region) -> RegionValue:
    """Element by element, the old values kept in a local array."""
    kept = alloc_local((width,), target.dtype)
    for k, (dst, value) in enumerate(_pairs(width, target, source)):
        kept[k] = _atomic("add", dst, value, None, return_prev=True)
    result = kept[0:width]
    assert isinstance(result, RegionValue)
    return result


def atomic_load(src: Any, memory_order: str = "seq_cst") -> Scalar:
    """The value of one element, read atomically."""
    builder = current()
    builder.require_kernel("T.atomic_load")
    element = element_of(src)
    if element is None:
        fail("T.atomic_load takes an element", got=ops.describe(src))
    buffer, indices = element
    region = Region(buffer, indices, (None,) * len(indices))
    previous = Var(builder.unique(builder.take_hint("loaded")), buffer.dtype)
    zero: Const = const(0, buffer.dtype)
    order = _order(memory_order)
    stmt = Atomic("load", region, zero, order, previous, caller_loc())
    builder.emit(stmt, declares=(previous.name,))
    return Scalar(previous)


def atomic_store(dst: Any, src: Any, memory_order: str = "seq_cst") -> None:
    """Write one element atomically."""
    builder = current()
    builder.require_kernel("T.atomic_store")
    _element(builder, "store", dst, src, _order(memory_order), False)
