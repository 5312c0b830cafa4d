"""Prefix sums and maxima as elementwise nests over shared memory.

Each row is cut into pieces, so that all lanes have work: every piece is scanned by one lane, the
pieces' totals are scanned by one lane a row, and every element takes in what came before its
piece.

    parallel (row, piece): scan the piece in place; totals[row, piece] = its last value
    parallel (row):        totals[row, :] = exclusive scan of totals[row, :]
    parallel (row, i):     s[row, i] = op(totals[row, piece of i], s[row, i])
"""

from __future__ import annotations

import math

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Expr, Load, Var, binary, const
from tilecore.ir.reductions import COMBINES, neutral
from tilecore.ir.stmts import Allocate, Block, Copy, For, If, Parallel, Scan, Stmt, Store
from tilecore.passes.scopes import Names, static, whole

_SHORTEST_PIECE = 4


def scan_nests(scan: Scan, threads: int, names: Names) -> Block:
    """Statements that do the scan; the result goes where the scan's destination is."""
    before: list[Stmt] = []
    after: list[Stmt] = []
    if scan.src.buffer.scope is Scope.SHARED and scan.dst == scan.src:
        region = scan.src
    else:
        name = f"{scan.src.buffer.name}_scan"
        part = names.buffer(name, static(scan.src), scan.dst.dtype, Scope.SHARED)
        before += [Allocate(part, loc=scan.loc), Copy(scan.src, whole(part), loc=scan.loc)]
        after.append(Copy(whole(part), scan.dst, loc=scan.loc))
        region = whole(part)
    return (*before, *_Scanner(scan, region, threads, names).nests(), *after)


class _Scanner:
    def __init__(self, scan: Scan, region: Region, threads: int, names: Names) -> None:
        self.scan = scan
        self.region = region
        self.names = names
        shape = static(region)
        self.length = shape[scan.axis]
        self.others = [extent for k, extent in enumerate(shape) if k != scan.axis]
        rows = max(1, math.prod(self.others))
        wanted = max(1, threads // rows)
        self.piece = max(_SHORTEST_PIECE, -(-self.length // wanted)) if wanted > 1 else self.length
        self.pieces = -(-self.length // max(1, self.piece))

    def nests(self) -> Block:
        if not self.length or 0 in self.others:
            return ()
        if self.pieces == 1:
            return (self.in_pieces(None),)
        shape = (*self.others, self.pieces)
        base = f"{self.region.buffer.name}_totals"
        totals = self.names.buffer(base, shape, self.region.dtype, Scope.SHARED)
        return (
            Allocate(totals, loc=self.scan.loc),
            self.in_pieces(totals),
            self.over_totals(totals),
            self.take_in(totals),
        )

    def rows(self) -> tuple[Var, ...]:
        return tuple(Var(self.names.fresh("row")) for _ in self.others)

    def extents(self, *more: int) -> tuple[Expr, ...]:
        return tuple(const(extent) for extent in (*self.others, *more))

    def element(self, rows: tuple[Var, ...], position: Expr) -> tuple[Expr, ...]:
        """Buffer indices of a row's element at a scan position."""
        if self.scan.reverse:
            position = binary("sub", const(self.length - 1), position)
        coordinates: list[Expr] = list(rows)
        coordinates.insert(self.scan.axis, position)
        return self.region.indices(tuple(coordinates))

    def combine(self, a: Expr, b: Expr) -> Expr:
        return binary(COMBINES[self.scan.op], a, b)

    def running(self) -> Buffer:
        """A lane's running value."""
        return Buffer(self.names.fresh("running"), (), self.region.dtype, Scope.LOCAL)

    def neutral(self) -> Expr:
        return neutral(self.scan.op, self.region.dtype)

    def in_pieces(self, totals: Buffer | None) -> Parallel:
        rows, piece, k = self.rows(), Var(self.names.fresh("piece")), Var(self.names.fresh("k"))
        running, loc = self.running(), self.scan.loc
        position = binary("add", binary("mul", piece, const(self.piece)), k)
        at = self.element(rows, position)
        step: Block = (
            Store(running, (), self.combine(Load(running, ()), Load(self.region.buffer, at)), loc),
            Store(self.region.buffer, at, Load(running, ()), loc),
        )
        if self.length % self.piece:
            step = (If(binary("lt", position, const(self.length)), step, (), loc),)
        loop = For(k, const(0), const(self.piece), const(1), step, loc=loc)
        body: Block = (Allocate(running, self.neutral(), loc), loop)
        if totals is not None:
            body = (*body, Store(totals, (*rows, piece), Load(running, ()), loc))
        return Parallel((*rows, piece), self.extents(self.pieces), body, (), loc)

    def over_totals(self, totals: Buffer) -> Parallel:
        rows, p, loc = self.rows(), Var(self.names.fresh("p")), self.scan.loc
        running, old = self.running(), self.running()
        at = (*rows, p)
        step = (
            Store(old, (), Load(totals, at), loc),
            Store(totals, at, Load(running, ()), loc),
            Store(running, (), self.combine(Load(running, ()), Load(old, ())), loc),
        )
        loop = For(p, const(0), const(self.pieces), const(1), step, loc=loc)
        body = (Allocate(running, self.neutral(), loc), Allocate(old, None, loc), loop)
        if not rows:
            return Parallel((Var(self.names.fresh("once")),), (const(1),), body, (), loc)
        return Parallel(rows, self.extents(), body, (), loc)

    def take_in(self, totals: Buffer) -> Parallel:
        rows, i, loc = self.rows(), Var(self.names.fresh("i")), self.scan.loc
        at = self.element(rows, i)
        before = Load(totals, (*rows, binary("floordiv", i, const(self.piece))))
        value = self.combine(before, Load(self.region.buffer, at))
        body = (Store(self.region.buffer, at, value, loc),)
        return Parallel((*rows, i), self.extents(self.length), body, (), loc)
