"""Expressions that are too large get names for the parts that occur several times.

Before: ``store B[i], f(g(x) * g(x)) + ...`` with thousands of nodes, because each of nested
functions uses its argument more than once. After: ``let part = g(x)`` in front, and its name.

What nests itself n times through parts that occur twice has 2 ** n nodes when it is written out.
Small expressions stay as they are; very deep ones are cut too. A part gets a name only where that
adds no fault: it reads no memory and divides by no variable, or it is computed whatever happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tilecore.ir.compound import SMALL_LEVELS, Expr, extent_of, is_small, parts_first
from tilecore.ir.expr import Binary, Const, Load, Select, Var, mentioned, rebuild
from tilecore.ir.stmts import Stmt, While
from tilecore.ir.visit import exprs_of, map_whole_exprs

_WORTH_A_NAME = 8  # nodes of a part: fewer are as short as their name


def name_parts(stmt: Stmt, bind: Callable[[Expr], Var]) -> Stmt:
    """The statement with names for shared parts of its expressions where they are too large.

    Args:
        stmt: about to be emitted.
        bind: emits a `Let` in front of it and gives its variable.
    """
    large = [expr for expr in exprs_of(stmt) if not is_small(expr)]
    if not large:
        return stmt
    namer = _Namer(large, isinstance(stmt, While), bind)
    return map_whole_exprs(stmt, lambda expr: namer.done.get(expr, expr))


class _Namer:
    """Rewrites the large expressions of one statement, shared parts of all of them together."""

    def __init__(self, tops: list[Expr], again: bool, bind: Callable[[Expr], Var]) -> None:
        self.bind = bind
        self.again = again  # evaluated again and again, so memory may have changed
        self.done: dict[Expr, Expr] = {}
        order = parts_first(tops)
        self.uses = Counter(child for node in order for child in node.children)
        self.places: dict[Expr, int] = {}
        self.always: dict[Expr, int] = {}
        for node in order:
            if _may_fault(node) or any(child in self.places for child in node.children):
                self.places[node] = 1 << len(self.places)
            self.always[node] = self.always_under(node)
        certain = 0
        for top in tops:
            certain |= self.always[top]
        ends = set(tops)
        for node in order:
            new = self.rebuilt(node)
            if node not in ends and self.is_worth(node, new) and self.may_name(node, certain):
                new = self.bind(new)
            self.done[node] = new

    def always_under(self, node: Expr) -> int:
        """Parts that may fault and are computed whenever `node` is, as bits."""
        found = self.places.get(node, 0)
        if isinstance(node, Select):
            sides = self.always.get(node.a, 0) & self.always.get(node.b, 0)
            return found | self.always.get(node.condition, 0) | sides
        children = node.children
        if isinstance(node, Binary) and node.op in ("and", "or"):
            children = children[:1]  # the other side may be left out
        for child in children:
            found |= self.always.get(child, 0)
        return found

    def rebuilt(self, node: Expr) -> Expr:
        children = tuple([self.done.get(child, child) for child in node.children])
        same = all(a is b for a, b in zip(children, node.children, strict=True))
        return node if same else rebuild(node, children)

    def is_worth(self, node: Expr, new: Expr) -> bool:
        nodes, levels = extent_of(new)
        return levels >= SMALL_LEVELS or (self.uses[node] > 1 and nodes >= _WORTH_A_NAME)

    def may_name(self, node: Expr, certain: int) -> bool:
        if self.again and any(isinstance(part, Load) for part in mentioned(node)):
            return False
        return node not in self.places or bool(self.places[node] & certain)


def _may_fault(node: Expr) -> bool:
    """Whether computing a node where the author did not may go wrong, even if its parts do not."""
    match node:
        case Load(indices=indices):
            return bool(indices)
        case Binary(op="div" | "floordiv" | "floormod", b=b, dtype=dtype):
            return dtype.is_int and not isinstance(b, Const)
        case _:
            return False
