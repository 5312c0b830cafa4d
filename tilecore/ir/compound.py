"""Expressions as graphs: what has parts, which may be shared, remembers what was found of it.

``x = max(x * x, x)`` thirty times over is sixty nodes, and 2 ** 60 of them as a tree. So nothing
here takes longer than there are distinct nodes, and nothing recurses.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

SMALL_NODES, SMALL_LEVELS = 256, 100
"""How large, written out as a tree, an expression may be that is put in place of its name."""
MOST_NODES, MOST_LEVELS = 20_000, 400
"""How large the verifier lets expressions be: what comes after it may walk them as trees."""


@dataclass(frozen=True, slots=True)
class Expr:
    """Base of all expressions. Every subclass has a ``dtype``."""

    @property
    def children(self) -> tuple[Expr, ...]:
        """Direct sub-expressions, in evaluation order."""
        return ()


class Compound(Expr):
    """Base of expressions with parts, which are graphs: a part may occur many times, in parts too.

    Written out as a tree such an expression can be exponentially large, so whoever walks it keeps
    to distinct parts; what a node has found of itself is remembered in it.
    """

    __slots__ = ("_below", "_extent", "_hash")

    def __hash__(self) -> int:
        """Of all fields, computed once."""
        try:
            return self._hash  # type: ignore[has-type]
        except AttributeError:
            for node in unknown(self, "_hash"):
                object.__setattr__(node, "_hash", hash(_fields_of(type(node))(node)))
            return self._hash

    def __repr__(self) -> str:
        """Of all fields, unless that is longer than anyone reads."""
        name = type(self).__name__
        if not is_small(self):
            return f"{name}(... {nodes_of(self)} nodes)"
        return (
            f"{name}({', '.join(f'{one}={getattr(self, one)!r}' for one in self.__match_args__)})"
        )

    def __eq__(self, other: object) -> bool:
        """Structural; no two parts are compared twice."""
        if self is other:
            return True
        if type(self) is not type(other):
            return False
        try:
            differ = self._hash != other._hash  # type: ignore[has-type, attr-defined]
        except AttributeError:
            differ = hash(self) != hash(other)
        return not differ and _are_equal(self, other)


@functools.cache
def _fields_of(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """What reads all fields of a node (each class has two at least)."""
    return operator.attrgetter(*kind.__match_args__)  # type: ignore[attr-defined]


def unknown(expr: Compound, name: str) -> Iterable[Any]:
    """`expr` and its parts that do not remember `name` yet, parts first (which the caller sets)."""
    for child in expr.children:
        if isinstance(child, Compound) and not hasattr(child, name):
            return _unknown(expr, name)
    return (expr,)


def _unknown(expr: Compound, name: str) -> Iterator[Any]:
    stack: list[Expr] = [expr]
    while stack:
        node = stack[-1]
        is_last = True
        for child in node.children:
            if isinstance(child, Compound) and not hasattr(child, name):
                stack.append(child)
                is_last = False
        if is_last:
            stack.pop()
            if not hasattr(node, name):
                yield node


def _are_equal(a: object, b: object) -> bool:
    """Whether two expressions of one class and hash, which they remember, are equal."""
    stack: list[tuple[Any, Any]] = [(a, b)]
    seen: set[tuple[int, int]] = set()
    while stack:
        pair = stack.pop()
        key = (id(pair[0]), id(pair[1]))
        if key in seen:
            continue
        seen.add(key)
        for name in pair[0].__match_args__:
            one, other = getattr(pair[0], name), getattr(pair[1], name)
            if one is other:
                continue
            if type(one) is tuple:
                if len(one) != len(other):
                    return False
            else:
                one, other = (one,), (other,)
            for x, y in zip(one, other, strict=True):
                if x is y:
                    continue
                if not isinstance(x, Compound):
                    if x != y:
                        return False
                elif type(x) is not type(y) or x._hash != y._hash:  # type: ignore[reportPrivateUsage]
                    return False  # both were hashed with what they are parts of
                else:
                    stack.append((x, y))
    return True


def extent_of(expr: Expr) -> tuple[int, int]:
    """How many nodes `expr` has when it is written out as a tree, and how deep that is."""
    if not isinstance(expr, Compound):
        return 1, 1
    try:
        return expr._extent  # type: ignore[reportPrivateUsage, has-type]
    except AttributeError:
        for node in unknown(expr, "_extent"):
            parts = [extent_of(child) for child in node.children]
            size = 1 + sum([part[0] for part in parts])
            depth = 1 + max([part[1] for part in parts], default=0)
            object.__setattr__(node, "_extent", (size, depth))
        return expr._extent  # type: ignore[reportPrivateUsage]


def nodes_of(expr: Expr) -> int:
    """Nodes of `expr` written out as a tree."""
    return extent_of(expr)[0]


def is_small(expr: Expr) -> bool:
    """Whether an expression is small enough to stand wherever its value is used."""
    nodes, levels = extent_of(expr)
    return nodes <= SMALL_NODES and levels <= SMALL_LEVELS


def parts_first(exprs: Iterable[Expr]) -> list[Expr]:
    """What has parts in the expressions, the expressions themselves included, after its parts."""
    order: dict[Expr, None] = {}
    stack = list(exprs)
    while stack:
        node = stack[-1]
        below = [c for c in node.children if isinstance(c, Compound) and c not in order]
        if below:
            stack += below
            continue
        stack.pop()
        if isinstance(node, Compound):
            order[node] = None
    return list(order)


def count_leaves(expr: Expr) -> Counter[Expr]:
    """How often `expr`, written out as a tree, mentions each expression without parts."""
    times: Counter[Expr] = Counter({expr: 1})
    for node in reversed(parts_first((expr,))):
        for child in node.children:
            times[child] += times[node]
    return Counter({node: n for node, n in times.items() if not isinstance(node, Compound)})
