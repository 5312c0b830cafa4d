"""Names that the author gave once too often: unused ones go, single cheap uses are put in place.

Before: ``let row = by * 64 + 3; store A[row]``. After: ``store A[by * 64 + 3]``. Only integer
and bool expressions that read no memory and call nothing are moved, so nothing is recomputed that
costs anything, and nothing is read at another time.
"""

from __future__ import annotations

from collections import Counter

from tilecore.ir.compound import count_leaves, is_small
from tilecore.ir.expr import Call, Expr, Load, Var, mentioned, substitute
from tilecore.ir.stmts import Block, Let, Stmt
from tilecore.ir.visit import exprs_of, map_stmts, substitute_block, walk_stmts
from tilecore.language.builder import binders_of
from tilecore.language.operators import dtype_of


def tidy(block: Block) -> Block:
    """Remove unused `Let`s and put single uses of cheap ones in place."""
    while True:
        uses = _count_uses(block)
        unused = {s.var for s in walk_stmts(block) if isinstance(s, Let) and not uses[s.var.name]}
        if unused:
            block = _drop(block, unused)
            continue
        single = {
            s.var: s.value
            for s in walk_stmts(block)
            if isinstance(s, Let) and uses[s.var.name] == 1 and _is_cheap(s.value)
        }
        placed: dict[Var, Expr] = {}
        for var, value in single.items():
            if is_small(value := substitute(value, placed)):
                placed[var] = value
        if not placed:
            return block
        block = substitute_block(_drop(block, set(placed)), placed)


def _count_uses(block: Block) -> Counter[str]:
    uses: Counter[str] = Counter()
    for stmt in walk_stmts(block):
        binders = binders_of(stmt)
        for expr in exprs_of(stmt):
            for leaf, count in count_leaves(expr).items():
                if isinstance(leaf, Var) and not (leaf is expr and leaf.name in binders):
                    uses[leaf.name] += count
    return uses


def _drop(block: Block, names: set[Var]) -> Block:
    def visit(stmt: Stmt) -> Block | None:
        return () if isinstance(stmt, Let) and stmt.var in names else None

    return map_stmts(block, visit)


def _is_cheap(value: Expr) -> bool:
    dtype = dtype_of(value)
    if dtype.is_float:
        return False
    return not any(isinstance(node, Load | Call) for node in mentioned(value))
