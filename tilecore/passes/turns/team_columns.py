"""A wide fragment whose columns teams divide: what statements on it become for one team."""

from __future__ import annotations

import dataclasses

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Expr, Load, Var, binary, const, free_vars
from tilecore.ir.stmts import Allocate, Copy, Fill, Gemm, Let, Parallel, Stmt, Store
from tilecore.ir.visit import buffers_in, map_exprs, map_stmts
from tilecore.passes.scopes import Names, is_whole, static, whole


class NarrowColumns:
    """Rewrites statements on a fragment (rows, columns) for the team that owns some columns.

    Attributes:
        wide: the fragment.
        narrow: the team's columns of it.
    """

    def __init__(self, wide: Buffer, teams: int, team: Var, names: Names) -> None:
        rows, columns = static(wide)
        self.wide = wide
        self.count = columns // teams
        self.first: Expr = binary("mul", team, const(self.count))
        self.narrow = names.buffer(f"{wide.name}_part", (rows, self.count), wide.dtype, wide.scope)

    def touches(self, stmt: Stmt) -> bool:
        """True when the statement reads or writes the fragment."""
        return self.wide in buffers_in((stmt,))

    def stmt(self, stmt: Stmt) -> Stmt | None:
        """The statement for one team; None where its columns cannot be told apart."""
        if not self.touches(stmt):
            return stmt
        match stmt:
            case Allocate():
                return dataclasses.replace(stmt, buffer=self.narrow)
            case Fill(dst=dst) if is_whole(dst):
                return dataclasses.replace(stmt, dst=whole(self.narrow))
            case Copy(src=src, dst=dst) if is_whole(src) and dst.buffer.scope is Scope.GLOBAL:
                return dataclasses.replace(stmt, src=whole(self.narrow), dst=self.columns_of(dst))
            case Parallel():
                return self.nest(stmt)
            case _:
                return None

    def gemm(self, gemm: Gemm, a: Region) -> Gemm:
        """A contraction that adds to the fragment, with another left operand; b is (k, columns)."""
        return dataclasses.replace(gemm, a=a, b=self.columns_of(gemm.b), c=whole(self.narrow))

    def columns_of(self, region: Region) -> Region:
        """The team's columns of a region as wide as the fragment."""
        return columns_of(region, self.first, self.count)

    def nest(self, nest: Parallel) -> Parallel | None:
        """An elementwise nest over the fragment's rows and columns."""
        if len(nest.vars) != 2 or nest.extents != self.wide.shape:
            return None
        column = nest.vars[1]
        own = Var(f"{column.name}__own", column.dtype)  # stands for the column in the team's part
        fits = True

        def visit(expr: Expr) -> Expr | None:
            nonlocal fits
            if not isinstance(expr, Load):
                return None
            if expr.buffer == self.wide:
                fits = fits and expr.indices == nest.vars
                return Load(self.narrow, (nest.vars[0], own))
            if expr.buffer.scope is Scope.FRAGMENT:
                fits = fits and not any(column in free_vars(i) for i in expr.indices)
            return None

        def rewrite(stmt: Stmt) -> Stmt | None:
            nonlocal fits
            stmt = map_exprs(stmt, visit)
            if isinstance(stmt, Store):
                if stmt.buffer == self.wide:
                    fits = fits and stmt.indices == nest.vars
                    return dataclasses.replace(
                        stmt, buffer=self.narrow, indices=(nest.vars[0], own)
                    )
                fits = fits and stmt.buffer.scope is not Scope.FRAGMENT
            elif not isinstance(stmt, Let):
                fits = False
            return stmt

        body = map_stmts(nest.body, rewrite)
        moved = binary("add", column, self.first)

        def place(expr: Expr) -> Expr | None:
            if not isinstance(expr, Var):
                return None
            return moved if expr == column else column if expr == own else None

        body = map_stmts(body, lambda stmt: map_exprs(stmt, place))
        extents = (nest.extents[0], const(self.count))
        return dataclasses.replace(nest, extents=extents, body=body) if fits else None


def columns_of(region: Region, begin: Expr, count: int) -> Region:
    """Some columns of a region, along its last axis."""
    axis = region.axes[-1]
    starts, extents = list(region.starts), list(region.extents)
    starts[axis] = binary("add", starts[axis], begin)
    extents[axis] = const(count)
    return Region(region.buffer, tuple(starts), tuple(extents))
