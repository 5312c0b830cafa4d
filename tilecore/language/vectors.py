"""Short vectors as some authors write them: ``A[T.Ramp(i, 1, 2)]``, ``T.add2(x, y)``.

They exist while a program is read: each operation is done for the vector's elements one after the
other, and neighbouring loads and stores are joined again by the compiler where a target does that.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tilecore.language import operators as ops
from tilecore.language.builder import current
from tilecore.language.locate import fail
from tilecore.language.math_ops import absolute, call_math, maximum, minimum

PAIRS = ("float32", "bfloat16", "float16")
"""Dtypes of which a pair is one operand of ``T.add2`` and its kind."""


_HINT = "A[T.Ramp(i, 1, 2)] is a pair of A's neighbours; one element needs plain operators"


class Vector:
    """Values that are computed with together, lane for lane."""

    __array_ufunc__ = None

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = tuple(items)

    def __len__(self) -> int:
        return len(self.items)

    def apply(self, function: Callable[..., Any], *others: Any) -> Vector:
        """A function of each lane; what is no vector is the same in all lanes.

        Raises:
            LanguageError: vectors of different lengths.
        """
        columns = [_lanes(other, len(self)) for other in others]
        return Vector([function(*lanes) for lanes in zip(self.items, *columns, strict=True)])

    def __neg__(self) -> Vector:
        return self.apply(operator.neg)

    def __repr__(self) -> str:
        return f"<vector of {len(self)}>"


def _binary(function: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    def forward(self: Vector, other: Any) -> Vector:
        return self.apply(function, other)

    def turned(a: Any, b: Any) -> Any:
        return function(b, a)

    def backward(self: Vector, other: Any) -> Vector:
        return self.apply(turned, other)

    return forward, backward


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod"):
    _forward, _backward = _binary(getattr(operator, _name))
    setattr(Vector, f"__{_name}__", _forward)
    setattr(Vector, f"__r{_name}__", _backward)


def _lanes(value: Any, count: int) -> tuple[Any, ...]:
    if not isinstance(value, Vector):
        return (value,) * count
    if len(value) != count:
        fail(
            "vectors of different lengths",
            expected=f"{count} lanes",
            got=len(value),
            hint="give T.Ramp and T.Broadcast the same number of lanes",
        )
    return value.items


def Ramp(base: Any, stride: Any, lanes: int) -> Vector:
    """``base, base + stride, ...``: the indices of `lanes` elements."""
    count = ops.static_int(lanes, "lanes of T.Ramp")
    return Vector([base + k * stride for k in range(count)])


def Broadcast(value: Any, lanes: int) -> Vector:
    """One value in each of `lanes` lanes."""
    return Vector([value] * ops.static_int(lanes, "lanes of T.Broadcast"))


def has_vector(key: Any) -> bool:
    """Whether an index has several values at once."""
    entries = key if isinstance(key, tuple) else (key,)
    return any(isinstance(entry, Vector) for entry in entries)


def keys_of(key: Any) -> list[tuple[Any, ...]]:
    """The indices of each lane, where one of `key`'s is a vector."""
    entries = key if isinstance(key, tuple) else (key,)
    count = next(len(entry) for entry in entries if isinstance(entry, Vector))
    columns = [_lanes(entry, count) for entry in entries]
    return list(zip(*columns, strict=True))


def load_lanes(buffer: Any, key: Any) -> Vector:
    """The elements that a vector of indices names."""
    return Vector([buffer[one] for one in keys_of(key)])


def store_lanes(buffer: Any, key: Any, value: Any) -> None:
    """Store lane for lane; all values are read before the first is written."""
    keys = keys_of(key)
    held = []
    builder = current()
    for lane in _lanes(value, len(keys)):
        expr = ops.to_dtype(lane, buffer.buffer.dtype, "value of a lane")
        held.append(builder.bind("lane_value", expr))
    for one, lane in zip(keys, held, strict=True):
        buffer[one] = lane


def _describe(value: Any) -> str:
    return f"a vector of {len(value)}" if isinstance(value, Vector) else ops.describe(value)


def _pair(name: str, function: Callable[..., Any], count: int) -> Callable[..., Vector]:
    def operation(*operands: Any) -> Vector:
        what = f"T.{name}"
        if len(operands) != count:
            fail(f"{what} takes {count} operand(s)", expected=count, got=len(operands), hint=_HINT)
        for one in operands:
            if not isinstance(one, Vector) or len(one) != 2:
                fail(
                    f"{what} takes pairs",
                    expected="A[T.Ramp(i, 1, 2)]",
                    got=_describe(one),
                    hint=_HINT,
                )
        kinds = {ops.dtype_of(ops.as_expr(item)).name for one in operands for item in one.items}
        if len(kinds) != 1 or not kinds <= set(PAIRS):
            fail(
                f"{what} takes pairs of the same dtype",
                expected=", ".join(PAIRS),
                got=", ".join(sorted(kinds)),
                hint=_HINT,
            )
        return operands[0].apply(function, *operands[1:])

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"`{name[:-1]}` of both elements of {count} operand(s) of one dtype."
    return operation


add2 = _pair("add2", operator.add, 2)
sub2 = _pair("sub2", operator.sub, 2)
mul2 = _pair("mul2", operator.mul, 2)
max2 = _pair("max2", maximum, 2)
min2 = _pair("min2", minimum, 2)
abs2 = _pair("abs2", absolute, 1)
fma2 = _pair("fma2", functools.partial(call_math, "fma"), 3)


def extract_lane(vector: Any, lane: int) -> Any:
    """One lane's value."""
    if not isinstance(vector, Vector):
        fail(
            "T.extract_lane takes a vector",
            expected="A[T.Ramp(i, 1, 2)]",
            got=_describe(vector),
            hint=_HINT,
        )
    return vector.items[ops.static_int(lane, "lane", at_least=0, at_most=len(vector) - 1)]
