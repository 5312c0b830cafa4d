"""Replace views of buffers (T.view, T.reshape) by accesses to the buffers themselves.

Both views agree on row-major order: element i of the view's row-major order is element i of the
source's. Elementwise statements read and write the source's element directly, other dtypes of
equal width by their bits; tile statements work on a copy of the view.

    alias v: float32[8, 8] of s[64];  x = v[i, j]   ->   x = s[i * 8 + j]
"""

from __future__ import annotations

import dataclasses

from tilecore.errors import UnsupportedError
from tilecore.hooks.context import Context
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Bitcast, Expr, Load, binary, const, dtype_of_expr
from tilecore.ir.program import Kernel, Program
from tilecore.ir.stmts import (
    Alias,
    Allocate,
    Atomic,
    Block,
    Copy,
    Gemm,
    Intrinsic,
    Parallel,
    Reduce,
    Scan,
    Stmt,
    Store,
)
from tilecore.ir.visit import buffers_in, map_exprs, map_stmts, regions_of, walk_stmts
from tilecore.passes.async_copies import strides_of
from tilecore.passes.elementwise import as_parallel
from tilecore.passes.scopes import Names, per_kernel, rewrite_block, static, whole


def resolve_aliases(program: Program, context: Context) -> Program:
    """See the module's text.

    Raises:
        UnsupportedError: a view with elements of another width.
    """
    names = Names(program)

    def visit_kernel(kernel: Kernel) -> Kernel:
        sources: dict[str, Buffer] = {}
        for stmt in walk_stmts(kernel.body):
            if isinstance(stmt, Alias):
                _check(stmt)
                sources[stmt.buffer.name] = sources.get(stmt.source.name, stmt.source)
        if not sources:
            return kernel
        resolver = _Resolver(sources, names)
        return dataclasses.replace(kernel, body=rewrite_block(kernel.body, resolver.visit))

    return per_kernel(program, visit_kernel)


def _check(alias: Alias) -> None:
    if alias.buffer.dtype.bits != alias.source.dtype.bits:
        raise UnsupportedError(
            f"{alias.buffer.name} views {alias.source.name} with elements of another width",
            expected=f"{alias.source.dtype.bits} bits",
            got=f"{alias.buffer.dtype.bits} bits",
            loc=alias.loc,
        )


class _Resolver:
    """Rewrites the statements of one kernel."""

    def __init__(self, sources: dict[str, Buffer], names: Names) -> None:
        self.sources = sources
        self.names = names

    def is_view(self, buffer: Buffer) -> bool:
        return buffer.name in self.sources

    def visit(self, stmt: Stmt) -> Block | None:
        if isinstance(stmt, Alias):
            return ()
        if isinstance(stmt, Gemm | Reduce | Scan | Intrinsic):
            return self.tile(stmt)
        nest = as_parallel(stmt)
        if nest is not None:
            if not any(self.is_view(buffer) for buffer in buffers_in((nest,))):
                return None
            return (self.elements(nest),)
        new = self.elements(dataclasses.replace(stmt, **_without_bodies(stmt)))
        changes = {
            name: rewrite_block(inner, self.visit)
            for name in ("body", "then", "otherwise")
            if (inner := getattr(stmt, name, None))
        }
        return (dataclasses.replace(new, **changes),)

    def elements(self, stmt: Stmt) -> Stmt:
        """A statement with every element access going to the source."""

        def load(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or not self.is_view(node.buffer):
                return None
            value: Expr = Load(*self.element(node.buffer, node.indices))
            same = dtype_of_expr(value) == dtype_of_expr(node)
            return value if same else Bitcast(value, node.dtype)

        def visit(inner: Stmt) -> Stmt:
            inner = map_exprs(inner, load)
            if isinstance(inner, Store) and self.is_view(inner.buffer):
                source, indices = self.element(inner.buffer, inner.indices)
                same = source.dtype == inner.buffer.dtype
                value = inner.value if same else Bitcast(inner.value, source.dtype)
                return Store(source, indices, value, inner.loc)
            if isinstance(inner, Atomic) and self.is_view(inner.dst.buffer):
                source, indices = self.element(inner.dst.buffer, inner.dst.starts)
                if source.dtype != inner.dst.buffer.dtype:
                    raise UnsupportedError("an atomic on a view of another dtype", loc=inner.loc)
                point = Region(source, indices, (None,) * len(indices))
                return dataclasses.replace(inner, dst=point)
            return inner

        (new,) = map_stmts((stmt,), visit)
        return new

    def element(self, view: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        """(source, indices into it) of a view's element."""
        source = self.sources[view.name]
        position: Expr = const(0)
        for index, stride in zip(indices, strides_of(view.shape, None), strict=True):
            position = binary("add", position, binary("mul", index, stride))
        digits: list[Expr] = []
        for extent in reversed(source.shape[1:]):
            digits.append(binary("floormod", position, extent))
            position = binary("floordiv", position, extent)
        return source, (position, *reversed(digits)) if source.shape else ()

    def tile(self, stmt: Stmt) -> Block | None:
        """A tile statement on copies of the views that it touches."""
        before: list[Stmt] = []
        after: list[Stmt] = []
        changes: dict[str, Region] = {}
        loc = getattr(stmt, "loc", None)
        if isinstance(stmt, Intrinsic):
            if any(self.is_view(region.buffer) for region in regions_of(stmt)):
                raise UnsupportedError(f"{stmt.op} on a view", loc=loc)
            return None
        for field in ("a", "b", "src", "c", "dst"):
            region = getattr(stmt, field, None)
            if not isinstance(region, Region) or not self.is_view(region.buffer):
                continue
            view = region.buffer
            scope = Scope.SHARED if view.scope is Scope.GLOBAL else view.scope
            part = self.names.buffer(f"{view.name}_copy", static(region), view.dtype, scope)
            before.append(Allocate(part, loc=loc))
            before += self.visit(Copy(region, whole(part), loc=loc)) or ()
            if field in ("c", "dst"):
                after += self.visit(Copy(whole(part), region, loc=loc)) or ()
            changes[field] = whole(part)
        if not changes:
            return None
        return (*before, dataclasses.replace(stmt, **changes), *after)  # type: ignore[arg-type]


def _without_bodies(stmt: Stmt) -> dict[str, Block]:
    if isinstance(stmt, Parallel):
        return {}
    return {name: () for name in ("body", "then", "otherwise") if hasattr(stmt, name)}
