"""Loads and stores of buffer elements: uniform, contiguous, gathered; guarded where needed."""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.buffers import Buffer
from tilecore.ir.compound import is_small
from tilecore.ir.expr import Const, Expr, Load, Var

from .analysis import coefficient, interval, mentioned_through
from .builder import Value, element_type, lane_count, mangle, vector_type
from .conversions import storage_type
from .lane_analysis import inline_lets
from .state import BlockState
from .storage import Storage


@dataclass(frozen=True, slots=True)
class Access:
    """One element per lane: the address in lane 0, how it moves, and which lanes may touch it.

    `step` is elements per lane: 0 uniform, 1 contiguous, None for addresses of their own, which
    `offsets` then holds (64 bits, one per lane).
    """

    pointer: Value
    step: int | None
    offsets: Value | None
    mask: Value | None


def load_element(s: BlockState, buffer: Buffer, indices: tuple[Expr, ...]) -> Value:
    """The element in storage form: a scalar if it is the same in all lanes.

    Masked lanes get the buffer's safe value.
    """
    w = s.w
    kind = storage_type(buffer.dtype)
    if buffer.name in s.lane_locals and s.axis is not None:
        return w.load(s.storage_of(buffer).pointer, vector_type(kind, s.axis.lanes), 64)
    access = resolve(s, buffer, indices)
    if access.step == 0:
        if access.mask is None:
            return w.load(access.pointer, kind)
        mask = _any_lane(s, access.mask)
        dummy = w.alloca("i64", 1, 8)
        place = w.select(mask, access.pointer, dummy)
        return w.select(mask, w.load(place, kind), _safe(s, buffer, kind))
    assert s.axis is not None
    lanes = s.axis.lanes
    wide = vector_type(kind, lanes)
    if access.step == 1:
        if access.mask is None:
            return w.load(access.pointer, wide)
        return w.masked_load(
            access.pointer, wide, w.splat(access.mask, lanes), _safe(s, buffer, wide)
        )
    places = _places(s, access, kind)
    mask = (
        w.const(True, vector_type("i1", lanes))
        if access.mask is None
        else w.splat(access.mask, lanes)
    )
    name = f"llvm.masked.gather.{mangle(wide)}.{mangle(places.type)}"
    other = _safe(s, buffer, wide)
    w.module.declare(name, wide, [places.type, mask.type, wide])
    align = max(1, buffer.dtype.bytes)
    return w.emit(
        wide, f"call {wide} @{name}({places.type} align {align} {places.ref}, {mask}, {other})"
    )


def store_element(s: BlockState, buffer: Buffer, indices: tuple[Expr, ...], value: Value) -> None:
    """Write a value in storage form."""
    w = s.w
    if buffer.name in s.lane_locals and s.axis is not None:
        _store_lane_local(s, buffer, value)
        return
    access = resolve(s, buffer, indices)
    lanes = 1 if s.axis is None else s.axis.lanes
    if access.step == 0 and (lanes == 1 or lane_count(value.type) == 1):
        if access.mask is None:
            w.store(value, access.pointer)
            return
        with w.when(_any_lane(s, access.mask)):
            w.store(value, access.pointer)
        return
    value = w.splat(value, lanes)
    if access.step == 1:
        if access.mask is None and buffer.name in s.streamed and lanes > 1:
            vector_bytes = s.cpu.vector_bits // 8
            is_whole = lanes * buffer.dtype.bytes == vector_bytes
            hint = ", !nontemporal !1" if is_whole else ""
            w.store(value, access.pointer, vector_bytes if is_whole else None, hint)
        elif access.mask is None:
            w.store(value, access.pointer)
        else:
            w.masked_store(value, access.pointer, w.splat(access.mask, lanes))
        return
    kind = element_type(value.type)
    places = _places(s, access, kind)
    mask = (
        w.const(True, vector_type("i1", lanes))
        if access.mask is None
        else w.splat(access.mask, lanes)
    )
    name = f"llvm.masked.scatter.{mangle(value.type)}.{mangle(places.type)}"
    w.module.declare(name, "void", [value.type, places.type, mask.type])
    align = max(1, buffer.dtype.bytes)
    w.line(f"call void @{name}({value}, {places.type} align {align} {places.ref}, {mask})")


def _store_lane_local(s: BlockState, buffer: Buffer, value: Value) -> None:
    w = s.w
    assert s.axis is not None
    place, value = s.storage_of(buffer).pointer, w.splat(value, s.axis.lanes)
    if s.axis.active is not None:
        value = w.select(s.axis.active, value, w.load(place, value.type, 64))
    w.store(value, place, 64)


def _places(s: BlockState, access: Access, kind: str) -> Value:
    """Addresses of all lanes."""
    w = s.w
    assert s.axis is not None
    offsets = access.offsets
    if offsets is None:
        steps = [(access.step or 0) * lane for lane in range(s.axis.lanes)]
        offsets = w.const_vector(steps, "i64") if s.axis.lanes > 1 else w.i64(0)
    places = vector_type("ptr", s.axis.lanes)
    return w.emit(places, f"getelementptr {kind}, {access.pointer}, {offsets}")


def _any_lane(s: BlockState, mask: Value) -> Value:
    if lane_count(mask.type) == 1:
        return mask
    return s.w.intrinsic("vector.reduce.or", [mask], "i1")


def _safe(s: BlockState, buffer: Buffer, kind: str) -> Value:
    """The safe value in storage form."""
    w = s.w
    if element_type(kind)[0] == "i" and buffer.dtype.is_float and buffer.safe_value:
        import numpy as np

        from tilecore.ir.dtypes import numpy_dtype

        stored = np.array(buffer.safe_value).astype(numpy_dtype(buffer.dtype))
        code = stored.view(f"u{buffer.dtype.bytes}")
        return w.const(int(code), kind)
    return w.const(buffer.safe_value, kind)


def resolve(s: BlockState, buffer: Buffer, indices: tuple[Expr, ...]) -> Access:
    """Address and mask of an element access."""
    storage = s.storage_of(buffer)
    mask = bounds_mask(s, buffer, indices)
    if s.axis is not None and s.axis.active is not None:
        mask = s.axis.active if mask is None else _both(s, mask, s.axis.active)
    kind = storage_type(buffer.dtype)
    if storage.strides is None:
        return _resolve_blocked(s, storage, indices, mask, kind)
    pointer = s.w.offset(storage.pointer, kind, linear_offset(s, storage, indices))
    if s.axis is None or s.axis.lanes == 1:
        return Access(pointer, 0, None, mask)
    step = _lane_step(s, storage, indices)
    if step is not None:
        return Access(pointer, step, None, mask)
    return Access(storage.pointer, None, _lane_offsets(s, storage, indices), mask)


def _both(s: BlockState, a: Value, b: Value) -> Value:
    from .expressions import same_lanes

    a, b = same_lanes(s, [a, b])
    return s.w.binary("and", a, b)


def linear_offset(s: BlockState, storage: Storage, indices: tuple[Expr, ...]) -> Value:
    """Element offset in lane 0."""
    from .expressions import index

    w = s.w
    total = w.i64(0)
    assert storage.strides is not None
    for expr, stride in zip(indices, storage.strides, strict=True):
        factor = stride if isinstance(stride, Value) else w.i64(stride)
        total = w.add(total, w.mul(index(s, expr), factor))
    return total


def _lane_step(s: BlockState, storage: Storage, indices: tuple[Expr, ...]) -> int | None:
    assert s.axis is not None and storage.strides is not None
    total = 0
    for expr, stride in zip(indices, storage.strides, strict=True):
        moved = coefficient(expr, s.axis.name, s.definitions)
        if moved == 0:
            continue
        if moved is None or isinstance(stride, Value):
            return None
        total += moved * stride
    return total


def _lane_offsets(s: BlockState, storage: Storage, indices: tuple[Expr, ...]) -> Value:
    from .expressions import evaluate

    w = s.w
    assert s.axis is not None and storage.strides is not None
    lanes = s.axis.lanes
    total = w.const(0, vector_type("i64", lanes))
    for expr, stride in zip(indices, storage.strides, strict=True):
        dtype = expr.dtype  # type: ignore[attr-defined]
        value = w.splat(evaluate(s, expr), lanes)
        value = w.cast("sext" if dtype.kind == "int" else "zext", value, vector_type("i64", lanes))
        factor = stride if isinstance(stride, Value) else w.i64(stride)
        total = w.add(total, w.mul(value, w.splat(factor, lanes)))
    return total


def _resolve_blocked(
    s: BlockState, storage: Storage, indices: tuple[Expr, ...], mask: Value | None, kind: str
) -> Access:
    """Layouts with more than one stride an axis: through the layout's own offset expression."""
    from .expressions import evaluate, index

    w = s.w
    assert storage.layout is not None
    offset = storage.layout.offset_expr(indices)
    if s.axis is None or s.axis.lanes == 1:
        return Access(w.offset(storage.pointer, kind, index(s, offset)), 0, None, mask)
    step = coefficient(offset, s.axis.name, s.definitions)
    if step is not None:
        return Access(w.offset(storage.pointer, kind, index(s, offset)), step, None, mask)
    value = w.splat(evaluate(s, offset), s.axis.lanes)
    value = w.cast("sext", value, vector_type("i64", s.axis.lanes))
    return Access(storage.pointer, None, value, mask)


def is_proven(s: BlockState, expr: Expr, extent: Expr) -> bool:
    """Whether an index is known to lie inside a constant extent."""
    low, high = interval(expr, s.ranges, s.definitions)
    return low >= 0 and isinstance(extent, Const) and high < extent.value


def bounds_mask(s: BlockState, buffer: Buffer, indices: tuple[Expr, ...]) -> Value | None:
    """Lanes whose indices lie inside the buffer; None when all are known to.

    Only elementwise nests guard: elsewhere an access outside is the program's fault.
    """
    from .expressions import evaluate, index

    if not s.is_elementwise:
        return None
    w = s.w
    mask: Value | None = None
    for expr, extent in zip(indices, buffer.shape, strict=True):
        if is_proven(s, expr, extent) or (not s.is_guarded and is_affine(s, expr)):
            continue
        limit = index(s, extent)
        if (
            s.axis is None
            or s.axis.lanes == 1
            or coefficient(expr, s.axis.name, s.definitions) == 0
        ):
            inside = w.icmp("ult", index(s, expr), limit)
        else:
            value = evaluate(s, expr)
            wide = vector_type("i64", s.axis.lanes)
            dtype = expr.dtype  # type: ignore[attr-defined]
            if isinstance(extent, Const) and dtype.bits == 32:
                inside = w.icmp("ult", value, w.const(extent.value, value.type))
            else:
                value = w.cast("sext", value, wide)
                inside = w.icmp("ult", value, w.splat(limit, s.axis.lanes))
        mask = inside if mask is None else _both(s, mask, inside)
    return mask


def is_affine(s: BlockState, expr: Expr) -> bool:
    """Whether the fast version's one test up front covers this index: see `elementwise`."""
    if s.nest_changes and _changes(s, expr):
        return False
    if any(coefficient(expr, name, s.definitions) is None for name in s.nest_names):
        return False
    return is_small(inline_lets(expr, s.definitions))  # which that test computes


def _changes(s: BlockState, expr: Expr) -> bool:
    """Whether an index reads what the nest itself writes."""
    for node in mentioned_through(expr, s.definitions):
        if isinstance(node, Load) and node.buffer.name in s.nest_changes:
            return True
        if isinstance(node, Var) and node.name in s.nest_changes:
            return True
    return False
