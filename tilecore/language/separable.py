"""Index functions that are sums of functions of single coordinates.

A layout of many elements is not evaluated on all of them: its function is called once, on sums of
one table a coordinate. What it does to them stays exact, or raises `NotSeparableError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.int64]
"""Values of one coordinate's function, by the coordinate."""


class NotSeparableError(Exception):
    """A function mixes coordinates otherwise than by adding."""


@dataclass(frozen=True, slots=True, eq=False)
class Separable:
    """``constant + tables[0][i] + tables[1][j] + ...``: a table for each coordinate that matters.

    Attributes:
        tables: by the coordinate's place; each begins with 0.
        constant: the value where all coordinates are 0.
    """

    tables: dict[int, Table]
    constant: int = 0

    @staticmethod
    def coordinates(extents: Sequence[int]) -> list[Separable]:
        """The coordinates of a shape, themselves."""
        return [Separable({k: np.arange(n, dtype=np.int64)}) for k, n in enumerate(extents)]

    def largest(self) -> int:
        """The largest value over all coordinates."""
        return self.constant + sum(int(table.max()) for table in self.tables.values())

    def along(self, axis: int, extent: int) -> Table:
        """How the value grows along an axis."""
        return self.tables.get(axis, np.zeros(extent, np.int64))

    def _of_one(self, change: Callable[[Any], Any]) -> Separable:
        """A function of the value, where one coordinate alone decides it."""
        if not self.tables:
            return Separable({}, int(change(self.constant)))
        if len(self.tables) > 1:
            raise NotSeparableError
        ((axis, table),) = self.tables.items()
        values = change(table + self.constant)
        return Separable({axis: values - values[0]}, int(values[0]))

    def __add__(self, other: Any) -> Separable:
        right = _separable(other)
        tables = dict(self.tables)
        for axis, table in right.tables.items():
            tables[axis] = tables[axis] + table if axis in tables else table
        return Separable(tables, self.constant + right.constant)

    def __mul__(self, other: Any) -> Separable:
        right = _separable(other)
        if right.tables and self.tables:
            both = {*self.tables, *right.tables}
            if len(both) > 1:
                raise NotSeparableError
            (axis,) = both
            mine, its = self.tables[axis] + self.constant, right.tables[axis] + right.constant
            return Separable({axis: mine * its})._of_one(lambda values: values)
        if right.tables:
            return right * self
        factor = right.constant
        scaled = {axis: table * factor for axis, table in self.tables.items()}
        return Separable(scaled, self.constant * factor)

    def __floordiv__(self, other: Any) -> Separable:
        divisor = _number(other)
        return self._of_one(lambda values: values // divisor)

    def __mod__(self, other: Any) -> Separable:
        divisor = _number(other)
        return self._of_one(lambda values: values % divisor)

    def __sub__(self, other: Any) -> Separable:
        return self + _separable(other) * -1

    def __rsub__(self, other: Any) -> Separable:
        return self * -1 + other

    def __neg__(self) -> Separable:
        return self * -1

    def __rshift__(self, other: Any) -> Separable:
        return self // (1 << _number(other))

    def __lshift__(self, other: Any) -> Separable:
        return self * (1 << _number(other))

    def __and__(self, other: Any) -> Separable:
        mask = _number(other)
        return self._of_one(lambda values: values & mask)

    def __bool__(self) -> bool:
        raise NotSeparableError

    __radd__, __rmul__, __rand__ = __add__, __mul__, __and__


def _separable(value: Any) -> Separable:
    return value if isinstance(value, Separable) else Separable({}, _number(value))


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise NotSeparableError
    return int(value)


def separate(extents: Sequence[int], function: Callable[..., Any]) -> Separable | None:
    """The offset that a function of coordinates gives, row-major over the ranges of its indices.

    None where the function, for whatever reason, is no sum that is found so.
    """
    try:
        value = function(*Separable.coordinates(extents))
        indices = [_separable(v) for v in (value if isinstance(value, list | tuple) else [value])]
    except Exception:  # the author's function branches, looks up or calls what takes no such values
        return None
    total = Separable({})
    for index in indices:
        total = total * (index.largest() + 1) + index
    return total
