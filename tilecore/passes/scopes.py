"""What passes ask of a whole kernel: ranges of its variables, free names, statement rewriting."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import TypeGuard

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Call, Const, Expr, Load, Var, binary, const, dtype_of_expr, mentioned
from tilecore.ir.program import Kernel, Program
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import Block, For, Let, LoopKind, Parallel, Stmt
from tilecore.ir.visit import BODY_FIELDS, bound_vars, buffers_in, child_blocks, walk_stmts


def kernel_ranges(kernel: Kernel, symbols: Iterable[Var] = ()) -> Ranges:
    """Bounds of every integer variable of a kernel (names are unique, so one table holds all)."""
    ranges = Ranges().with_sizes(symbols)
    for var, extent in zip(kernel.grid_vars, kernel.grid, strict=True):
        ranges = ranges.with_index(var, extent)
    for stmt in walk_stmts(kernel.body):
        match stmt:
            case For(var=var, start=start, extent=extent, step=step):
                ranges = ranges.with_loop(var, start, extent, step)
            case Let(var=var, value=Call(op="lane.id")):
                ranges = ranges.with_range(var, 0, kernel.threads - 1)
            case Let(var=var, value=Call(op="block.team", args=(_, Const(value=teams)))):
                ranges = ranges.with_range(var, 0, int(teams) - 1)
            case Let(var=var, value=value):
                ranges = ranges.with_value(var, value)
            case Parallel(vars=names, extents=extents):
                for var, extent in zip(names, extents, strict=True):
                    ranges = ranges.with_index(var, extent)
            case _:
                pass
    # Variables stay as the program names them: texts are read, and values bound once.
    return dataclasses.replace(ranges, values={})


class Names:
    """Gives names that the program does not use yet; the same ones for the same program."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @functools.cached_property
    def _taken(self) -> set[str]:
        """Names in use; gathered by the first who wants one, which many passes never do."""
        program = self._program
        taken = {param.name for param in program.params}
        taken |= {buffer.name for buffer in program.workspaces}
        taken |= {symbol.name for symbol in program.symbols}
        for kernel in program.kernels:
            taken |= {kernel.name} | {var.name for var in kernel.grid_vars}
            taken |= {buffer.name for buffer in buffers_in(kernel.body)}
            for stmt in walk_stmts(kernel.body):
                taken |= {var.name for var in bound_vars(stmt)}
        return taken

    def fresh(self, base: str) -> str:
        """`base`, or `base` with the lowest number that makes it new."""
        name, count = base, 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name

    def buffer(self, base: str, shape: tuple[int, ...], dtype: DType, scope: Scope) -> Buffer:
        """A new buffer of constant shape."""
        return Buffer(self.fresh(base), tuple(const(e) for e in shape), dtype, scope)


def whole(buffer: Buffer) -> Region:
    """The region of all of a buffer."""
    return Region(buffer, tuple(const(0) for _ in buffer.shape), buffer.shape)


def is_whole(region: Region) -> bool:
    """True when the region is all of its buffer, axis for axis."""
    return all(
        start == const(0) and extent == size
        for start, extent, size in zip(
            region.starts, region.extents, region.buffer.shape, strict=True
        )
    )


def rewrite_block(block: Block, visit: Callable[[Stmt], Block | None]) -> Block:
    """Rewrite statements top-down: `visit` answers a replacement, or None to go inside."""
    result: list[Stmt] = []
    for stmt in block:
        answer = visit(stmt)
        if answer is not None:
            result.extend(answer)
            continue
        changes = {
            name: rewrite_block(inner, visit)
            for name in BODY_FIELDS
            if not isinstance(stmt, Parallel) and (inner := getattr(stmt, name, None))
        }
        result.append(dataclasses.replace(stmt, **changes) if changes else stmt)
    return tuple(result)


def without_bodies(stmt: Stmt) -> Stmt:
    """The statement without the blocks nested in it; nests stay whole."""
    if isinstance(stmt, Parallel) or not child_blocks(stmt):
        return stmt
    changes = {name: () for name in BODY_FIELDS if hasattr(stmt, name)}
    return dataclasses.replace(stmt, **changes)  # type: ignore[arg-type]


def replace_buffer_loads(expr: Expr, make: Callable[[Load], Expr | None]) -> Expr:
    """Rewrite loads; `make` answers None to keep one."""
    from tilecore.ir.expr import transform

    return transform(expr, lambda node: make(node) if isinstance(node, Load) else None)


def loads_in(expr: Expr) -> list[Load]:
    """All loads below an expression, each once."""
    return [node for node in mentioned(expr) if isinstance(node, Load)]


def static(region_or_buffer: Region | Buffer) -> tuple[int, ...]:
    """The constant shape of something on the chip."""
    shape = region_or_buffer.static_shape
    assert shape is not None, "the verifier admits only constant shapes on the chip"
    return shape


def bytes_of(region_or_buffer: Region | Buffer) -> int:
    """Bytes of the elements of something on the chip."""
    return math.prod(static(region_or_buffer)) * region_or_buffer.dtype.bytes


def is_pipelined(stmt: Stmt) -> TypeGuard[For]:
    """True for a loop whose iterations the author lets overlap."""
    return isinstance(stmt, For) and stmt.kind is LoopKind.PIPELINED


def per_kernel(program: Program, visit: Callable[[Kernel], Kernel], **changes: object) -> Program:
    """`program` with every kernel rewritten."""
    return dataclasses.replace(
        program, kernels=tuple(visit(kernel) for kernel in program.kernels), **changes
    )


def ceil_div(a: Expr, b: int) -> Expr:
    """``ceil(a / b)`` of a non-negative expression."""
    if isinstance(a, Const):
        return const(-(-int(a.value) // b), a.dtype)
    dtype = dtype_of_expr(a)
    return binary("floordiv", binary("add", a, const(b - 1, dtype)), const(b, dtype))


def with_hint(
    hints: tuple[tuple[str, int | float | str | bool], ...],
    name: str,
    value: int | float | str | bool,
) -> tuple[tuple[str, int | float | str | bool], ...]:
    """`hints` with one entry set, sorted by name."""
    return tuple(sorted({**dict(hints), name: value}.items()))
