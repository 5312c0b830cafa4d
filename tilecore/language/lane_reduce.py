"""All-reduce between the lanes of a block, as programs written per lane spell it.

    with T.attr(T.comm_reducer(lambda x, y: x + y, [zero]), "reduce_scope", ...):
        T.evaluate(T.tvm_thread_allreduce(T.uint32(1), value, True, result[0], tk, dtype="handle"))

Every lane writes its value to shared memory and combines the values of the lanes that differ from
it along the named thread axes. Tile programs need none of this: T.reduce_* works on whole tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import DType, int32
from tilecore.ir.expr import Call, Expr, Load, Var, const
from tilecore.ir.stmts import For, Intrinsic
from tilecore.language import operators as ops
from tilecore.language.builder import Builder, current
from tilecore.language.indexing import element_of
from tilecore.language.kernel import get_thread_binding
from tilecore.language.locate import caller_loc, fail, refuse
from tilecore.language.values import Scalar


@dataclass(frozen=True, slots=True)
class Reducer:
    """How lanes' values combine.

    Attributes:
        combine: of two values.
        identity: the value that changes nothing.
    """

    combine: Callable[[Any, Any], Any]
    identity: Any


def comm_reducer(combiner: Callable[[Any, Any], Any], identity: Sequence[Any]) -> Reducer:
    """A commutative combination of one value, with its neutral element."""
    if len(identity) != 1:
        refuse("T.comm_reducer of several values", "reduce one value at a time")
    return Reducer(combiner, identity[0])


class attr:
    """``with T.attr(reducer, "reduce_scope", ...)``: names the reducer of the block below.

    Raises:
        UnsupportedError: any other attribute; statements carry none.
    """

    def __init__(self, node: Any, attr_key: str, value: Any = None) -> None:
        if attr_key != "reduce_scope" or not isinstance(node, Reducer):
            refuse(
                f"T.attr({attr_key!r})",
                "statements carry no free attributes",
                hint="use the annotations= of the operation",
            )
        builder = current()
        self.previous = builder.lane_reducer
        builder.lane_reducer = node

    def __enter__(self) -> None:
        """The reducer is named from the construction on, as the plain call form needs it."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        current().lane_reducer = self.previous


def tvm_thread_allreduce(
    count: Any, value: Any, condition: Any, result: Any, *threads: Any, dtype: Any = "handle"
) -> None:
    """Combine `value` over the lanes along `threads`; every lane gets the result.

    Args:
        count: number of values, 1.
        value: this lane's contribution.
        condition: lanes for which it does not hold contribute nothing.
        result: element of a local buffer that is written.
        threads: T.get_thread_binding(d) of the axes to combine over.
        dtype: not needed here.
    """
    del dtype
    builder = current()
    kernel = builder.require_kernel("T.tvm_thread_allreduce")
    if builder.inside("parallel"):
        fail("T.tvm_thread_allreduce inside T.Parallel", hint="use T.reduce_* or a T.alloc_reducer")
    reducer = builder.lane_reducer
    target = element_of(result)
    if ops.static_int(count, "number of values") != 1 or reducer is None or target is None:
        fail(
            "T.tvm_thread_allreduce",
            expected="one value, an element for the result, inside T.attr(T.comm_reducer(...))",
        )
    dims = kernel.thread_dims
    axes = sorted({_axis(thread, len(dims)) for thread in threads})
    kind = target[0].dtype
    own = ops.select(condition, value, reducer.identity)
    scratch = _allocate(builder, Scope.SHARED, (math.prod(dims),), kind, "lanes")
    lane: Expr = Call("block.thread", (), int32)
    builder.store(scratch, (lane,), Scalar(own))
    builder.emit(Intrinsic("sync_block", (), (), caller_loc()))
    total = _allocate(builder, Scope.LOCAL, (), kind, "total")
    builder.store(total, (), reducer.identity)
    base = Scalar(lane)
    for axis in axes:
        base = base - get_thread_binding(axis) * math.prod(dims[:axis])
    _combine(builder, reducer, scratch, total, base, [(dims[a], math.prod(dims[:a])) for a in axes])
    builder.store(*target, Scalar(Load(total, ())))
    builder.emit(Intrinsic("sync_block", (), (), caller_loc()))


def _axis(thread: Any, count: int) -> int:
    expr = ops.as_expr(thread, "thread axis")
    if isinstance(expr, Var):
        expr = current().let_values.get(expr.name, expr)
    found = [axis for axis in range(count) if get_thread_binding(axis).expr == expr]
    if not found:
        fail(
            "T.tvm_thread_allreduce combines over thread axes",
            expected="T.get_thread_binding(d)",
            got=ops.describe(thread),
        )
    return found[0]


def _allocate(
    builder: Builder, scope: Scope, shape: tuple[int, ...], dtype: DType, name: str
) -> Buffer:
    extents = tuple(const(extent, int32) for extent in shape)
    return builder.allocate(scope, extents, dtype, name)


def _combine(
    builder: Builder,
    reducer: Reducer,
    scratch: Buffer,
    total: Buffer,
    place: Any,
    loops: list[tuple[int, int]],
) -> None:
    """Combine the values at `place` over the remaining (extent, stride) loops into `total`."""
    if not loops:
        value = Scalar(Load(scratch, (ops.as_index(place),)))
        builder.store(total, (), reducer.combine(Scalar(Load(total, ())), value))
        return
    (extent, stride), *rest = loops
    var = Var(builder.unique("lane"), int32)
    frame = builder.push("for", (var.name,))
    _combine(builder, reducer, scratch, total, place + Scalar(var) * stride, rest)
    body = builder.pop(frame)
    zero, one = const(0, int32), const(1, int32)
    builder.emit(For(var, zero, const(extent, int32), one, body, loc=caller_loc()))
