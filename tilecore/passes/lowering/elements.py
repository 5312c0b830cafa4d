"""Which names of a lane hold elements that it computes with, and which hold positions.

A position is what an offset, a region or a loop's bounds are made of, whatever it was read from;
an element is what was read, exchanged or converted, and is no position.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import Bitcast, Call, Cast, Expr, Load, Var, dtype_of_expr, walk
from tilecore.ir.stmts import Allocate, Assert, Atomic, Block, If, Let, Print, Stmt, Store, While
from tilecore.ir.visit import exprs_of, names_in, walk_stmts


class Elements:
    """The names of one kernel's body."""

    def __init__(self, body: Block) -> None:
        self.names: set[str] = set()
        self._known: dict[Expr, bool] = {}
        definitions = list(_definitions(body))
        positions = _positions(body, definitions)
        open_ones = [(name, value) for name, value in definitions if name not in positions]
        for _ in open_ones:  # a variable may come from one that is set later, in a loop
            found = {name for name, value in open_ones if self.holds(value)}
            if found <= self.names:
                break
            self.names |= found
            self._known.clear()

    def add(self, name: str) -> None:
        """From here on `name` holds elements, wherever it is used."""
        self.names.add(name)
        self._known.clear()

    def holds(self, expr: Expr) -> bool:
        """Whether an expression is made of elements."""
        known = self._known.get(expr)
        if known is None:
            known = self._known[expr] = self._holds(expr)
        return known

    def _holds(self, expr: Expr) -> bool:
        match expr:
            case Load(buffer=buffer):
                return not _is_variable(buffer) or buffer.name in self.names
            case Var(name=name):
                return name in self.names
            case Bitcast():
                return True
            case Cast(a=a) if dtype_of_expr(a).is_float:
                return True
            case Call(op=op) if op.startswith("warp."):
                return True
            case _:
                return any(map(self.holds, expr.children))


def _is_variable(buffer: Buffer) -> bool:
    return buffer.scope is Scope.LOCAL and not buffer.shape


def _definitions(body: Block) -> Iterator[tuple[str, Expr]]:
    for stmt in walk_stmts(body):
        match stmt:
            case Let(var=var, value=value):
                yield var.name, value
            case Store(buffer=buffer, value=value) if _is_variable(buffer):
                yield buffer.name, value
            case Allocate(buffer=buffer, init=Expr() as value) if _is_variable(buffer):
                yield buffer.name, value
            case _:
                pass


def _positions(body: Block, definitions: list[tuple[str, Expr]]) -> set[str]:
    """Names that offsets and bounds are made of, also through other names."""
    found: set[str] = set()
    for stmt in walk_stmts(body):
        found |= names_in(_places(stmt))
        for top in exprs_of(stmt):
            found |= names_in(i for e in walk(top) if isinstance(e, Load) for i in e.indices)
    made_of: dict[str, set[str]] = {}
    for name, value in definitions:
        made_of.setdefault(name, set()).update(names_in([value]))
    left = list(found)
    while left:
        new = made_of.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def _places(stmt: Stmt) -> Iterator[Expr]:
    """Expressions of a statement that say where, or how often."""
    match stmt:
        case Store(indices=indices):
            yield from indices
        case Atomic(dst=dst):
            yield from dst.starts
        case Let() | If() | While() | Allocate() | Assert() | Print():
            return
        case _:
            yield from exprs_of(stmt)
