"""Nests that multiply rows by factors: nothing to do where all factors are one.

A running softmax rescales its sums in every step, and hardly ever by anything but 1.
"""

from __future__ import annotations

from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import Binary, Const, Load
from tilecore.ir.stmts import Parallel, Store

from .builder import Value, vector_type
from .state import BlockState

MOST_ROWS = 256


def row_factors(s: BlockState, stmt: Parallel) -> tuple[Buffer, int] | None:
    """f and how many of it ``x[i, j] = x[i, j] * f[i]`` reads, if looking is less than the nest."""
    match stmt:
        case Parallel(
            vars=(row, column),
            extents=(Const(value=rows), Const(value=columns)),
            body=(
                Store(
                    buffer=buffer,
                    indices=indices,
                    value=Binary(op="mul", a=Load() as old, b=Load() as factor),
                ),
            ),
        ):
            is_nest = old.buffer == buffer and old.indices == indices == (row, column)
            is_row = factor.indices == (row,) and factor.buffer.scope is Scope.FRAGMENT
            are_single = buffer.dtype.name == factor.buffer.dtype.name == "float32"
            pays = 0 < rows <= MOST_ROWS and columns * 32 > s.cpu.vector_bits
            storage = s.storage.get(factor.buffer.name)
            is_plain = storage is not None and storage.strides == (1,)
            length = (factor.buffer.static_shape or (0,))[0]
            fits = is_nest and is_row and are_single and pays and is_plain and rows <= length
            return (factor.buffer, int(rows)) if fits else None
        case _:
            return None


def any_differs_from_one(s: BlockState, factors: Buffer, rows: int) -> Value:
    """Whether a factor is another number than 1 (nan is): a product with 1 changes no bit."""
    w = s.w
    pointer = s.storage_of(factors).pointer
    found: Value | None = None
    start, lanes = 0, s.cpu.lanes(32)
    while start < rows:
        while start + lanes > rows:
            lanes //= 2
        kind = vector_type("float", lanes)
        some = w.load(w.offset_bytes(pointer, start * 4), kind)
        other = w.fcmp("une", some, w.const(1.0, kind))
        if lanes > 1:
            other = w.intrinsic("vector.reduce.or", [other], "i1")
        found = other if found is None else w.binary("or", found, other)
        start += lanes
    assert found is not None
    return found
