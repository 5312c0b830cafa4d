"""Indices of axes that need 64 bits are computed in 64 bits, from their leaves on.

    x: bfloat16[4294967296];  x[bx * 512 + i]
      ->  x[int64(bx) * 512 + int64(i)]

Programs write indices in 32-bit variables; on such an axis their sums and products would wrap
before they are widened. Names of values are looked through. Other axes stay as they are: a place
on them fits 32 bits, and what they contribute to an offset is widened where offsets are made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Buffer, Region
from tilecore.ir.dtypes import int64
from tilecore.ir.expr import (
    Binary,
    Cast,
    Expr,
    Load,
    Select,
    Var,
    binary,
    dtype_of_expr,
    walk,
    widened,
)
from tilecore.ir.program import Kernel, Program
from tilecore.ir.stmts import Let, Stmt, Store
from tilecore.ir.visit import buffers_in, map_exprs, map_regions, map_stmts, walk_stmts
from tilecore.passes.scopes import loads_in, per_kernel

_EXACT = ("add", "sub", "mul", "floordiv", "floormod", "min", "max")


def wide_indices(program: Program, context: Context | None = None) -> Program:
    """See the module's text."""
    del context

    def visit(kernel: Kernel) -> Kernel:
        if not any(_is_wide(buffer) for buffer in buffers_in(kernel.body)):
            return kernel
        values = {
            stmt.var: stmt.value
            for stmt in walk_stmts(kernel.body)
            if isinstance(stmt, Let) and stmt.var.dtype.is_int and not loads_in(stmt.value)
        }
        widener = _Widener(values)
        return dataclasses.replace(kernel, body=map_stmts(kernel.body, widener.stmt))

    return per_kernel(program, visit)


def _is_wide(buffer: Buffer) -> bool:
    return any(dtype_of_expr(extent) == int64 for extent in buffer.shape)


class _Widener:
    """Rewrites statements; `values` are what named integers stand for."""

    def __init__(self, values: dict[Var, Expr]) -> None:
        self.values = values

    def stmt(self, stmt: Stmt) -> Stmt:
        """The statement with the indices of its own expressions and regions widened."""
        stmt = map_exprs(stmt, self.load)
        if isinstance(stmt, Store) and _is_wide(stmt.buffer):
            return dataclasses.replace(stmt, indices=self.indices(stmt.buffer, stmt.indices))
        return map_regions(stmt, self.region)

    def load(self, expr: Expr) -> Expr | None:
        """A load with wide indices; None for anything else."""
        if not isinstance(expr, Load) or not _is_wide(expr.buffer):
            return None
        return dataclasses.replace(expr, indices=self.indices(expr.buffer, expr.indices))

    def region(self, region: Region) -> Region:
        """A region that starts at wide indices, where its buffer has a wide axis."""
        if not _is_wide(region.buffer):
            return region
        starts = self.indices(region.buffer, region.starts)
        return Region(region.buffer, starts, region.extents)

    def indices(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Indices into a buffer, each as wide as its axis."""
        pairs = zip(indices, buffer.shape, strict=True)
        return tuple(
            wide(index, self.values) if dtype_of_expr(extent) == int64 else index
            for index, extent in pairs
        )


def wide(expr: Expr, values: Mapping[Var, Expr] = MappingProxyType({})) -> Expr:
    """The exact value of an integer expression, in 64 bits."""
    if isinstance(expr, Var) and expr in values:
        named = values[expr]
        changes = any(isinstance(node, Binary) for node in walk(named))
        return wide(named, values) if changes else widened(expr)
    if isinstance(expr, Binary) and expr.op in _EXACT:
        return binary(expr.op, wide(expr.a, values), wide(expr.b, values))
    if isinstance(expr, Select):
        return Select(expr.condition, wide(expr.a, values), wide(expr.b, values), int64)
    if isinstance(expr, Cast) and dtype_of_expr(expr.a).is_int:
        inner = dtype_of_expr(expr.a)
        widens = expr.dtype.bits >= inner.bits and (inner.is_signed or expr.dtype == int64)
        return wide(expr.a, values) if widens and inner.bits >= 32 else widened(expr)
    return widened(expr)
