"""Reducers: tiles into which the iterations of a T.Parallel loop may contribute.

A plain store to one element from several iterations would be a race. A contribution is kept per
iteration and combined after the loop::

    for i, k in T.Parallel(M, K):              parallel (i, k): kept[i, k] = a[i, k] * x[k]
        T.reducer_update(acc[i], a[i, k] * x[k])   reduce sum kept -> acc, axis 1, accumulate
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import DType, int32
from tilecore.ir.expr import Binary, Const, Expr, Load, const, free_vars, walk
from tilecore.ir.expr_text import format_expr
from tilecore.ir.reductions import COMBINES, neutral
from tilecore.ir.stmts import Allocate, Reduce, Store
from tilecore.language import operators as ops
from tilecore.language.allocate import alloc_fragment
from tilecore.language.builder import Builder, Frame, current
from tilecore.language.dtypes import dtype as make_dtype
from tilecore.language.indexing import element_of
from tilecore.language.linear import difference
from tilecore.language.locate import caller_loc, fail
from tilecore.language.tile_ops import copy, fill
from tilecore.language.values import BufferValue, Scalar

OPERATIONS = ("sum", "max", "min", "bitand", "bitor", "bitxor")


def alloc_reducer(
    shape: Any, dtype: Any, op: str = "sum", replication: str | None = None
) -> BufferValue:
    """A fragment that collects contributions.

    Args:
        shape: extents, constants.
        dtype: element type.
        op: how contributions combine: sum, max, min, bitand, bitor or bitxor.
        replication: advice about where partial results are kept, not needed here.
    """
    del replication
    if op not in OPERATIONS:
        fail("unknown reducer", expected=", ".join(OPERATIONS), got=op)
    kind = make_dtype(dtype).ir
    if op.startswith("bit") and not kind.is_int:
        fail(f"reducer {op} needs integers", expected="an integer dtype", got=kind)
    value = alloc_fragment(shape, dtype)
    current().reducers[value.name] = op
    return value


def reducer_init(reducer: Any, init: Any = None) -> None:
    """Start over, from the operation's neutral element or from `init` (a scalar or a tile)."""
    op = _operation(reducer)
    if isinstance(init, BufferValue):
        copy(init, reducer)
    else:
        fill(reducer, Scalar(neutral(op, reducer.buffer.dtype)) if init is None else init)


def finalize_reducer(
    reducer: Any, dst: Any = None, batch: int = 1, annotations: Mapping[str, Any] | None = None
) -> None:
    """Write the result to `dst`; without it the reducer itself holds the result."""
    del batch, annotations
    _operation(reducer)
    if dst is not None:
        copy(reducer, dst)


def reducer_update(target: Any, value: Any) -> None:
    """Contribute `value` to one element of a reducer, ``acc[i]``.

    Inside T.Parallel the index of each axis is one of the loop's variables (plus a value that does
    not depend on them), none of them twice, or depends on none of them.
    """
    element = element_of(target)
    op = None if element is None else current().reducers.get(element[0].name)
    if element is None or op is None:
        fail(
            "no element of a reducer",
            expected="acc[i] of T.alloc_reducer",
            got=ops.describe(target),
        )
    contribute(op, element[0], element[1], value)


def is_contribution(target: Any, key: Any, value: Any) -> bool:
    """``acc[i] = acc[i] op v`` inside T.Parallel: v is contributed, and nothing else is to do.

    Raises:
        LanguageError: the new value reads the element in another way: iterations have no order.
    """
    builder = current()
    if not is_reducer(target) or not builder.inside("parallel") or not isinstance(value, Scalar):
        return False
    element = element_of(target[key])
    if element is None:
        return False
    op, old = COMBINES[_operation(target)], Load(*element)
    expr = value.expr
    if isinstance(expr, Binary) and expr.op == op and old in (expr.a, expr.b):
        other = expr.b if expr.a == old else expr.a
        if old not in walk(other):
            contribute(_operation(target), *element, Scalar(other))
            return True
    if any(isinstance(node, Load) and node.buffer == old.buffer for node in walk(expr)):
        fail(
            f"an element of reducer {target.name} is computed from it in T.Parallel",
            expected=f"the old element and one value combined by {_operation(target)}",
            got=format_expr(expr),
            hint="T.reducer_update(acc[i], value)",
        )
    return False


def is_reducer(value: Any) -> bool:
    """True for what `alloc_reducer` made."""
    return isinstance(value, BufferValue) and value.name in current().reducers


def _operation(reducer: Any) -> str:
    if not is_reducer(reducer):
        fail("no reducer", expected="T.alloc_reducer(...)", got=ops.describe(reducer))
    return current().reducers[reducer.name]


def contribute(op: str, buffer: Buffer, indices: tuple[Expr, ...], value: Any) -> None:
    """Combine `value` into one element of a reducer."""
    builder = current()
    frame = next((frame for frame in builder.frames if frame.kind == "parallel"), None)
    expr = ops.to_dtype(value, buffer.dtype, "contribution")
    if frame is None:
        builder.store(buffer, indices, _combine(op, Load(buffer, indices), expr))
        return
    region, used = _target(buffer, indices, frame)
    axes = tuple(axis for axis in range(len(frame.vars)) if axis not in used)
    if not axes:  # every iteration has an element of its own
        builder.store(buffer, indices, _combine(op, Load(buffer, indices), expr))
        return
    # Kept in the loop's order, or in the reducer's where the loop turns it around.
    order = tuple(range(len(frame.vars))) if list(used) == sorted(used) else (*used, *axes)
    kept = _kept(builder, frame, op, buffer.dtype, order)
    place = tuple(frame.vars[axis] for axis in order)
    builder.store(kept, place, _combine(op, Load(kept, place), expr))
    summed = tuple(sorted(order.index(axis) for axis in axes))
    frame.after.append(lambda: _reduce(builder, op, kept, region, summed))


def _combine(op: str, old: Expr, new: Expr) -> Scalar:
    return Scalar(ops.arithmetic(COMBINES[op], Scalar(old), Scalar(new)))


def _target(
    buffer: Buffer, indices: tuple[Expr, ...], frame: Frame
) -> tuple[Region, tuple[int, ...]]:
    """The part of the reducer that the loop covers, and the loop's axes it is indexed with."""
    used: list[int] = []
    starts: list[Expr] = []
    extents: list[Expr | None] = []
    names = [var.name for var in frame.vars]
    for index in indices:
        inside = [var for var in free_vars(index) if var.name in names]
        if not inside:
            starts.append(index)
            extents.append(None)
            continue
        axis = names.index(inside[0].name)
        start = difference(index, frame.vars[axis])
        if any(var.name in names for var in free_vars(start)) or axis in used:
            fail(
                f"index of reducer {buffer.name}",
                expected="a variable of the T.Parallel loop for each axis, none of them twice",
                got="another function of them",
            )
        used.append(axis)
        starts.append(start)
        extents.append(frame.extents[axis])
    if not used and extents:  # one element: keep the last axis, so that the tile has a shape
        extents[-1] = const(1, int32)
    return Region(buffer, tuple(starts), tuple(extents)), tuple(used)


def _kept(builder: Builder, frame: Frame, op: str, dtype: DType, order: tuple[int, ...]) -> Buffer:
    """A fragment with one element per iteration, neutral when the iteration starts."""
    for extent in frame.extents:
        if not isinstance(extent, Const):
            fail("a reducer is updated in a T.Parallel of runtime extent", expected="constants")
    name = builder.unique("kept")
    shape = tuple(frame.extents[axis] for axis in order)
    kept = Buffer(name, shape, dtype, Scope.FRAGMENT, loc=caller_loc())
    parent = builder.frames[builder.frames.index(frame) - 1]
    parent.stmts.append(Allocate(kept, None, caller_loc()))
    parent.names.add(name)
    place = tuple(frame.vars[axis] for axis in order)
    frame.stmts.insert(0, Store(kept, place, neutral(op, dtype), caller_loc()))
    return kept


def _reduce(builder: Builder, op: str, kept: Buffer, target: Region, axes: tuple[int, ...]) -> None:
    """Reduce the kept contributions, axis after axis from the last one, into the reducer."""
    source = Region(kept, tuple(const(0, int32) for _ in kept.shape), kept.shape)
    for axis in reversed(axes[1:]):
        shape = source.shape[:axis] + source.shape[axis + 1 :]
        buffer = builder.allocate(Scope.FRAGMENT, shape, kept.dtype, "kept")
        smaller = Region(buffer, tuple(const(0, int32) for _ in shape), shape)
        builder.emit(Reduce(op, source, smaller, axis, True, loc=caller_loc()))
        source = smaller
    builder.emit(Reduce(op, source, target, axes[0], False, loc=caller_loc()))
