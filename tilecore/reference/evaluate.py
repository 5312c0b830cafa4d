"""Expressions evaluated over a domain of lanes or iterations at once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tilecore.errors import EmulatorFault, UnsupportedError
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import (
    Binary,
    Bitcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    dtype_of_expr,
)
from tilecore.ir.lane_dependence import EXCHANGES
from tilecore.reference.operations import CALLS, DIVISIONS, apply_binary, apply_unary
from tilecore.reference.storage import Storage
from tilecore.reference.values import Array, bitcast, cast, round_float, value_dtype

LANE = "block.thread"
"""The call that gives a lane's index in its block; also its key in `Frame.values`."""


@dataclass(slots=True)
class Frame:
    """What expressions are evaluated against.

    Attributes:
        domain: extents of the lanes or iterations that run together; () is one for the block.
        values: variables by name; each broadcasts against the domain.
        storages: buffers by name.
        is_guarded: accesses outside a shape are skipped (inside Parallel), not faults.
        is_exact: float results are rounded to their dtype.
    """

    domain: tuple[int, ...]
    values: dict[str, Array] = field(default_factory=dict)
    storages: dict[str, Storage] = field(default_factory=dict)
    is_guarded: bool = False
    is_exact: bool = False

    def storage(self, name: str) -> Storage:
        """The storage of a buffer.

        Raises:
            EmulatorFault: nothing by that name is allocated here.
        """
        if name not in self.storages:
            raise EmulatorFault(f"buffer {name} is used where it is not allocated")
        return self.storages[name]


def evaluate(expr: Expr, frame: Frame, mask: Array) -> Array:
    """The values of `expr` for every iteration; where `mask` is false they mean nothing.

    Raises:
        EmulatorFault: an active iteration reads outside a buffer or divides by zero.
        UnsupportedError: a call that belongs to a lower level or to a backend.
    """
    match expr:
        case Const(value=value, dtype=dtype):
            result = np.asarray(value, value_dtype(dtype))
            return _rounded(result, dtype, frame)
        case Var(name=name):
            if name not in frame.values:
                raise EmulatorFault(f"variable {name} is used where it is not bound")
            return frame.values[name]
        case Load(buffer=buffer, indices=indices):
            places = [evaluate(index, frame, mask) for index in indices]
            return read_elements(frame, buffer.name, places, mask)
        case Binary():
            return _binary(expr, frame, mask)
        case Unary(op=op, a=a, dtype=dtype):
            return apply_unary(op, evaluate(a, frame, mask), dtype)
        case Cast(a=a, dtype=dtype):
            return cast(evaluate(a, frame, mask), dtype_of_expr(a), dtype, frame.is_exact)
        case Bitcast(a=a, dtype=dtype):
            return bitcast(evaluate(a, frame, mask), dtype_of_expr(a), dtype)
        case Select():
            return _select(expr, frame, mask)
        case Call():
            return _call(expr, frame, mask)
        case _:
            raise UnsupportedError("an expression without a meaning", got=type(expr).__name__)


def _rounded(values: Array, dtype: DType, frame: Frame) -> Array:
    return round_float(values, dtype) if frame.is_exact and dtype.is_float else values


def read_elements(frame: Frame, name: str, places: list[Array], mask: Array) -> Array:
    """Elements of a buffer, guarded or checked as the frame says."""
    storage = frame.storage(name)
    if not frame.is_guarded:
        refuse_outside(storage, places, mask, "reads")
    return storage.read(places, frame.domain, mask)


def refuse_outside(storage: Storage, places: list[Array], mask: Array, verb: str) -> None:
    """Fault when an active iteration's place is outside the buffer.

    Raises:
        EmulatorFault: with the first such place.
    """
    bad = np.asarray(mask & ~storage.in_bounds(places))
    if bad.any():
        first = tuple(np.argwhere(bad)[0])
        where = [int(np.broadcast_to(place, bad.shape)[first]) for place in places]
        reason = f"{verb} outside buffer {storage.buffer.name}"
        raise EmulatorFault(reason, expected=f"inside {list(storage.shape)}", got=where)


def _binary(expr: Binary, frame: Frame, mask: Array) -> Array:
    a, b = evaluate(expr.a, frame, mask), evaluate(expr.b, frame, mask)
    dtype = dtype_of_expr(expr.a)
    if dtype.is_int and expr.op in DIVISIONS and np.any(mask & (b == 0)):
        raise EmulatorFault(f"{expr.op} by zero")
    try:
        result = apply_binary(expr.op, a, b, dtype)
    except KeyError:
        raise UnsupportedError(f"{expr.op} has no meaning for {dtype}") from None
    return _rounded(result, expr.dtype, frame)


def _select(expr: Select, frame: Frame, mask: Array) -> Array:
    condition = np.asarray(evaluate(expr.condition, frame, mask), bool)
    chosen, other = np.asarray(mask & condition), np.asarray(mask & ~condition)
    if not other.any():
        return evaluate(expr.a, frame, chosen)
    if not chosen.any():
        return evaluate(expr.b, frame, other)
    return np.where(condition, evaluate(expr.a, frame, chosen), evaluate(expr.b, frame, other))


def _call(expr: Call, frame: Frame, mask: Array) -> Array:
    if expr.op == LANE and LANE in frame.values:
        return frame.values[LANE]
    if expr.op in EXCHANGES and frame.domain:
        from tilecore.reference.lanes import exchanged

        args = [evaluate(arg, frame, mask) for arg in expr.args]
        if expr.op == "warp.ballot":
            args[0] = np.asarray(mask & np.asarray(args[0], bool))
        return exchanged(expr, args, frame.domain[0])
    if expr.op not in CALLS:
        raise UnsupportedError(f"the reference cannot execute {expr.op}")
    args = [evaluate(arg, frame, mask) for arg in expr.args]
    source = dtype_of_expr(expr.args[0])
    if source.bits == 4 and expr.op in ("popcount", "clz"):
        counted = CALLS[expr.op](np.asarray(args[0]).astype(np.uint8) & 15)
        result = counted - (4 if expr.op == "clz" else 0)
    else:
        result = CALLS[expr.op](*args)
    if expr.dtype.is_bool:
        return np.asarray(result, bool)
    result = np.asarray(result).astype(value_dtype(expr.dtype), copy=False)
    return _rounded(result, expr.dtype, frame)
