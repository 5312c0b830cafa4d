"""T.annotate_layout of tensors in global memory: accesses become index arithmetic.

The tensor's storage holds its elements in another order: the element at coordinates c stands where
the element at the row-major coordinates of ``layout(c)`` would. That is how several kernels agree
on an order of their own for a tensor that only they read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Region
from tilecore.ir.expr import Cast, Const, Expr, Load, Select, Var, binary, const, dtype_of_expr
from tilecore.ir.layout import Layout
from tilecore.ir.program import Kernel
from tilecore.ir.visit import map_exprs, map_stmts, regions_of
from tilecore.language.locate import fail, refuse

Unique = Callable[[str], str]
Layouts = Mapping[str, Layout]


def apply_global_layouts(kernel: Kernel, tensors: Mapping[str, Buffer], unique: Unique) -> Kernel:
    """The kernel with its layouts of global tensors written out.

    Args:
        kernel: as traced.
        tensors: the program's parameters and workspaces by name.
        unique: makes a new variable's name.

    Raises:
        LanguageError: a layout that leaves the tensor's storage.
        UnsupportedError: a tile operation that takes such a tensor other than by copying.
    """
    layouts: dict[str, Layout] = {}
    for name, layout in kernel.layouts:
        if name in tensors:
            layouts[name] = _checked(tensors[name], layout)
    if not layouts:
        return kernel
    body = map_stmts(kernel.body, lambda stmt: _elementwise(stmt, layouts, unique))
    body = map_stmts(body, lambda stmt: _placed(stmt, layouts))
    rest = tuple(pair for pair in kernel.layouts if pair[0] not in layouts)
    return dataclasses.replace(kernel, body=body, layouts=rest)


def _checked(buffer: Buffer, layout: object) -> Layout:
    size = math.prod(buffer.static_shape or ())
    if not isinstance(layout, Layout) or buffer.strides is not None:
        fail(f"layout of {buffer.name}", expected="a T.Layout of a row-major tensor", got=layout)
    if layout.span > size:
        fail(f"layout of {buffer.name} leaves its storage", expected=size, got=layout.span)
    return layout


def _elementwise(stmt: S.Stmt, layouts: Layouts, unique: Unique) -> S.Stmt | None:
    """Tile operations on such tensors as parallel loops over elements."""
    if not any(region.buffer.name in layouts for region in regions_of(stmt)):
        return None
    match stmt:
        case S.Copy(src=src, dst=dst):
            return _loop(src, lambda at: S.Store(*_target(dst, at), _value(src, at, dst)), unique)
        case S.Fill(dst=dst, value=value):
            return _loop(dst, lambda at: S.Store(*_target(dst, at), value), unique)
        case S.Atomic(dst=dst, value=Region() as value):
            return _loop(
                value,
                lambda at: dataclasses.replace(
                    stmt, dst=_point(*_target(dst, at)), value=_value(value, at, dst)
                ),
                unique,
            )
        case S.Atomic():
            return None
        case _:
            kind = type(stmt).__name__
    refuse(
        f"{kind} of a tensor with a layout of its own",
        "such tensors are copied and accessed by elements",
    )
    return None


def _loop(region: Region, body: Callable[[tuple[Expr, ...]], S.Stmt], unique: Unique) -> S.Stmt:
    variables = tuple(Var(unique("e")) for _ in region.shape)
    inner = body(variables)
    return S.Parallel(variables, region.shape, (inner,)) if variables else inner


def _target(region: Region, at: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
    return region.buffer, region.indices(at)


def _value(region: Region, at: tuple[Expr, ...], to: Region) -> Expr:
    value = Load(*_target(region, at))
    return value if region.dtype == to.dtype else Cast(value, to.dtype)


def _point(buffer: Buffer, indices: tuple[Expr, ...]) -> Region:
    return Region(buffer, indices, (None,) * len(indices))


def _placed(stmt: S.Stmt, layouts: Layouts) -> S.Stmt:
    """Element accesses at the places that the layouts give."""

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer.name not in layouts:
            return None
        buffer = node.buffer
        inside = _inside(buffer, node.indices)
        placed = Load(buffer, _places(buffer, node.indices, layouts))
        safe = const(buffer.safe_value, buffer.dtype)
        return placed if inside is None else Select(inside, placed, safe, buffer.dtype)

    stmt = map_exprs(stmt, visit)
    if isinstance(stmt, S.Store) and stmt.buffer.name in layouts:
        placed: S.Stmt = dataclasses.replace(
            stmt, indices=_places(stmt.buffer, stmt.indices, layouts)
        )
        return _guarded(placed, _inside(stmt.buffer, stmt.indices))
    if isinstance(stmt, S.Atomic) and stmt.dst.buffer.name in layouts:
        buffer, starts = stmt.dst.buffer, stmt.dst.starts
        placed = dataclasses.replace(stmt, dst=_point(buffer, _places(buffer, starts, layouts)))
        return placed if stmt.previous else _guarded(placed, _inside(buffer, starts))
    return stmt


def _guarded(stmt: S.Stmt, inside: Expr | None) -> S.Stmt:
    return stmt if inside is None else S.If(inside, (stmt,))


def _inside(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr | None:
    """Whether the coordinates are in the tensor; None when that is known."""
    result: Expr | None = None
    for index, extent in zip(indices, buffer.shape, strict=True):
        assert isinstance(extent, Const)
        if isinstance(index, Const) and index.value < extent.value:
            continue
        test = binary("lt", index, const(extent.value, dtype_of_expr(index)))
        result = test if result is None else binary("and", result, test)
    return result


def _places(buffer: Buffer, indices: tuple[Expr, ...], layouts: Layouts) -> tuple[Expr, ...]:
    """Row-major coordinates of the layout's offset."""
    rest = layouts[buffer.name].offset_expr(indices)
    dtype, places = dtype_of_expr(rest), []
    for extent in reversed(buffer.static_shape or ()):
        places.append(binary("floormod", rest, const(extent, dtype)))
        rest = binary("floordiv", rest, const(extent, dtype))
    return tuple(reversed(places))
