"""Places of tiles that are read from memory are read once, in front of the statement.

    async.copy &K[Table[b, n], 0:+64, :] -> k
      ->   let at = Table[b, n]; async.copy &K[at, 0:+64, :] -> k

An indirect place (a page, an expert, a slot of a list) appears in the offset and in the guards of
every piece that a lane moves. Named, it costs one load, which is guarded like any other.
"""

from __future__ import annotations

from collections.abc import Callable

from tilecore.ir.buffers import Region
from tilecore.ir.expr import Expr, Var, dtype_of_expr
from tilecore.ir.stmts import Block, Let, Stmt
from tilecore.ir.visit import map_regions
from tilecore.passes.scopes import loads_in


def name_loaded_starts(stmt: Stmt, fresh: Callable[[str], str]) -> tuple[Block, Stmt]:
    """(definitions, statement): regions of `stmt` begin at names instead of at loaded values."""
    named: dict[Expr, Var] = {}
    lets: list[Stmt] = []

    def place(start: Expr) -> Expr:
        if not loads_in(start):
            return start
        if start not in named:
            named[start] = Var(fresh("at"), dtype_of_expr(start))
            lets.append(Let(named[start], start, getattr(stmt, "loc", None)))
        return named[start]

    def visit(region: Region) -> Region:
        return Region(region.buffer, tuple(map(place, region.starts)), region.extents)

    new = map_regions(stmt, visit)
    return tuple(lets), new if lets else stmt
