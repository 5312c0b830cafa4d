"""Replace views of buffers (T.view, T.reshape) by accesses to the buffers themselves.

Both views agree on row-major order: element i of the view's row-major order is element i of the
source's. Elementwise statements read and write the source's elements directly, other dtypes by
their bits (`view_elements`); tile statements work on a copy of the view.

    alias v: float32[8, 8] of s[64];  x = v[i, j]   ->   x = s[i * 8 + j]

A buffer on the chip with a view of narrower elements that is written gets elements of their width,
and is a view of wider ones itself.
"""

from __future__ import annotations

import dataclasses

from tilecore.errors import UnsupportedError
from tilecore.hooks.context import Context
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import dtype_of
from tilecore.ir.expr import TRUE, Expr, Load, binary, const
from tilecore.ir.program import Kernel, Program
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import (
    Alias,
    Allocate,
    Atomic,
    Block,
    Copy,
    Gemm,
    If,
    Intrinsic,
    Parallel,
    Reduce,
    Scan,
    Stmt,
    Store,
)
from tilecore.ir.visit import (
    BODY_FIELDS,
    buffers_in,
    destinations,
    map_exprs,
    map_stmts,
    regions_of,
    sources_of_views,
    walk_stmts,
)
from tilecore.passes.elementwise import as_parallel
from tilecore.passes.scopes import (
    Names,
    kernel_ranges,
    per_kernel,
    rewrite_block,
    static,
    whole,
    without_bodies,
)
from tilecore.passes.view_elements import (
    element_of_equal_width,
    inside_view,
    read_element,
    write_element,
)


def resolve_aliases(program: Program, context: Context | None = None) -> Program:
    """See the module's text.

    Raises:
        UnsupportedError: a tensor is written through a view of narrower elements.
    """
    del context
    names = Names(program)

    def visit_kernel(kernel: Kernel) -> Kernel:
        sources = sources_of_views(kernel.body)
        if not sources:
            return kernel
        storage = _storage_of_narrow_views(kernel, sources, names)
        sources = {name: storage.get(one.name, one) for name, one in sources.items()}
        ranges = kernel_ranges(kernel, program.symbols)
        resolver = _Resolver(sources | storage, storage, names, ranges)
        return dataclasses.replace(kernel, body=rewrite_block(kernel.body, resolver.visit))

    return per_kernel(program, visit_kernel)


def _storage_of_narrow_views(
    kernel: Kernel, sources: dict[str, Buffer], names: Names
) -> dict[str, Buffer]:
    """By the name of a source with narrower views that are written: a buffer of such elements."""
    storage: dict[str, Buffer] = {}
    for stmt in walk_stmts(kernel.body):
        for view in destinations(stmt):
            source = sources.get(view.name)
            if source is None or view.dtype.bits >= source.dtype.bits:
                continue
            if source.scope is Scope.GLOBAL:
                raise UnsupportedError(
                    f"{source.name} is written through a view of narrower elements",
                    expected=f"elements of at least {source.dtype.bits} bits",
                    got=f"{view.name} of {view.dtype}",
                    loc=getattr(stmt, "loc", None),
                )
            known = storage.get(source.name)
            if known is None or view.dtype.bits < known.dtype.bits:
                parts = const(source.dtype.bits // view.dtype.bits)
                shape = (*source.shape[:-1], binary("mul", source.shape[-1], parts))
                name = names.fresh(f"{source.name}_parts")
                storage[source.name] = dataclasses.replace(
                    source, name=name, shape=shape, dtype=dtype_of(f"uint{view.dtype.bits}")
                )
    return storage


class _Resolver:
    """Rewrites the statements of one kernel."""

    def __init__(
        self,
        sources: dict[str, Buffer],
        storage: dict[str, Buffer],
        names: Names,
        ranges: Ranges,
    ) -> None:
        self.sources = sources
        self.storage = storage
        self.names = names
        self.ranges = ranges

    def is_view(self, buffer: Buffer) -> bool:
        return buffer.name in self.sources

    def visit(self, stmt: Stmt) -> Block | None:
        if isinstance(stmt, Alias):
            return ()
        if isinstance(stmt, Allocate) and stmt.buffer.name in self.storage:
            return (dataclasses.replace(stmt, buffer=self.storage[stmt.buffer.name]),)
        if isinstance(stmt, Gemm | Reduce | Scan | Intrinsic):
            return self.tile(stmt)
        nest = as_parallel(stmt)
        if nest is not None:
            if not any(self.is_view(buffer) for buffer in buffers_in((nest,))):
                return None
            return self.elements(nest)
        *before, new = self.elements(without_bodies(stmt))
        changes = {
            name: rewrite_block(inner, self.visit)
            for name in BODY_FIELDS
            if (inner := getattr(stmt, name, None))
        }
        return (*before, dataclasses.replace(new, **changes))

    def elements(self, stmt: Stmt) -> Block:
        """A statement with every element access going to the source."""
        ranges = self.ranges
        if isinstance(stmt, Parallel):  # the nest of a tile statement has variables of its own
            for var, extent in zip(stmt.vars, stmt.extents, strict=True):
                ranges = ranges.with_index(var, extent)

        def load(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or not self.is_view(node.buffer):
                return None
            source = self.sources[node.buffer.name]
            return read_element(node.buffer, source, node.indices, ranges)

        def visit(inner: Stmt) -> Stmt | Block:
            inner = map_exprs(inner, load)
            if isinstance(inner, Store) and self.is_view(inner.buffer):
                source = self.sources[inner.buffer.name]
                return write_element(inner.buffer, source, inner, self.names.fresh, ranges)
            if isinstance(inner, Atomic) and self.is_view(inner.dst.buffer):
                view = inner.dst.buffer
                source = self.sources[view.name]
                if source.dtype != view.dtype:
                    raise UnsupportedError("an atomic on a view of another dtype", loc=inner.loc)
                indices = element_of_equal_width(view, source, inner.dst.starts, ranges)
                point = Region(source, indices, (None,) * len(indices))
                one = dataclasses.replace(inner, dst=point)
                inside = inside_view(view, inner.dst.starts, ranges)
                return one if inside == TRUE else If(inside, (one,), (), inner.loc)
            return inner

        return map_stmts((stmt,), visit)

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
