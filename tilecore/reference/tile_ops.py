"""Meaning of the tile statements: whole regions at once, in NumPy."""

from __future__ import annotations

import numpy as np

from tilecore.errors import EmulatorFault, LanguageError, UnsupportedError
from tilecore.ir import stmts as S
from tilecore.ir.buffers import Region
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Expr, dtype_of_expr
from tilecore.reference.evaluate import Frame, evaluate
from tilecore.reference.operations import apply_binary
from tilecore.reference.storage import Storage, Window
from tilecore.reference.values import Array, cast, round_float, wrap

ACTIVE = np.asarray(True)


def scalar(expr: Expr, frame: Frame) -> Array:
    """The value of an expression that is one for the whole block."""
    return np.asarray(evaluate(expr, frame, ACTIVE))


def locate(region: Region, frame: Frame) -> tuple[Storage, Window]:
    """The storage of a region, and its part inside the buffer."""
    storage = frame.storage(region.buffer.name)
    starts = [int(scalar(start, frame)) for start in region.starts]
    extents = [None if e is None else int(scalar(e, frame)) for e in region.extents]
    return storage, storage.window(starts, extents)


def load_region(region: Region, frame: Frame) -> Array:
    """A region's values; outside the buffer its safe value.

    Raises:
        EmulatorFault: an element was never written (when writes are tracked).
    """
    storage, window = locate(region, frame)
    values, known = storage.read_window(window)
    if not known.all():
        raise EmulatorFault(f"reads elements of {region.buffer.name} that were never written")
    return values


def store_region(region: Region, values: Array, frame: Frame) -> None:
    """Store values of the region's shape and dtype."""
    storage, window = locate(region, frame)
    storage.write_window(window, values)


def run_copy(src: Region, dst: Region, frame: Frame) -> None:
    """``dst = cast(src)``. Copying what was never written is no fault; using it later is one.

    Raises:
        LanguageError: the regions differ in shape.
    """
    source, source_window = locate(src, frame)
    target, target_window = locate(dst, frame)
    if source_window.shape != target_window.shape:
        raise LanguageError(
            f"copy of {src.buffer.name} to {dst.buffer.name} between different shapes",
            expected=target_window.shape,
            got=source_window.shape,
        )
    values, known = source.read_window(source_window)
    converted = cast(values, src.dtype, dst.dtype, frame.is_exact)
    target.write_window(target_window, converted, known)


def run_fill(stmt: S.Fill, frame: Frame) -> None:
    """Set all elements."""
    store_region(stmt.dst, scalar(stmt.value, frame), frame)


def run_gemm(stmt: S.Gemm, frame: Frame) -> None:
    """``c (+)= op(a) @ op(b)`` in c's dtype; floats in float64 unless exact.

    Raises:
        LanguageError: the operands are no matrices that fit.
    """
    a, b = load_region(stmt.a, frame), load_region(stmt.b, frame)
    a = a.T if stmt.transpose_a else a
    b = b.T if stmt.transpose_b else b
    _, window = locate(stmt.c, frame)
    fits = a.ndim == b.ndim == len(window.shape) == 2 and a.shape[1] == b.shape[0]
    if not fits or window.shape != (a.shape[0], b.shape[1]):
        shapes = f"{a.shape} @ {b.shape} -> {window.shape}"
        raise LanguageError("gemm operands do not fit", expected="(m,k) @ (k,n)", got=shapes)
    product = _product(a, b, stmt, frame)
    if not scalar(stmt.clear_accum, frame):
        product = apply_binary("add", load_region(stmt.c, frame), product, stmt.c.dtype)
    store_region(stmt.c, product, frame)


def _product(a: Array, b: Array, stmt: S.Gemm, frame: Frame) -> Array:
    dtype = stmt.c.dtype
    a = cast(a, stmt.a.dtype, dtype, exact=False)
    b = cast(b, stmt.b.dtype, dtype, exact=False)
    if dtype.is_float:
        if frame.is_exact and dtype.bits <= 32:
            single = a.astype(np.float32) @ b.astype(np.float32)
            return round_float(single.astype(np.float64), dtype)
        return a @ b
    # Sums wrap, so the low bits of 64-bit sums are right for every width.
    return wrap(a.astype(np.int64) @ b.astype(np.int64), dtype)


_ATOMIC_BINARY = {
    "add": "add", "sub": "sub", "min": "min", "max": "max", "and": "bitand", "or": "bitor",
    "xor": "bitxor",
}  # fmt: skip
ATOMIC_OPS = frozenset({*_ATOMIC_BINARY, "exchange", "store", "load"})


def updated(op: str, old: Array, value: Array, dtype: DType) -> Array:
    """What an atomic operation leaves in memory."""
    if op == "load":
        return old
    if op in ("exchange", "store"):
        return value
    if op not in _ATOMIC_BINARY:
        raise UnsupportedError("unknown atomic", expected=sorted(ATOMIC_OPS), got=op)
    return apply_binary(_ATOMIC_BINARY[op], old, value, dtype)


def run_tile_atomic(stmt: S.Atomic, frame: Frame) -> None:
    """A tile of atomics: each destination element is updated once.

    Raises:
        LanguageError: the shapes differ.
    """
    dtype = stmt.dst.dtype
    if isinstance(stmt.value, Region):
        value, source = load_region(stmt.value, frame), stmt.value.dtype
    else:
        value, source = scalar(stmt.value, frame), dtype_of_expr(stmt.value)
    storage, window = locate(stmt.dst, frame)
    if isinstance(stmt.value, Region) and np.shape(value) != window.shape:
        raise LanguageError(
            "atomic between shapes that differ", expected=window.shape, got=np.shape(value)
        )
    value = cast(value, source, dtype, frame.is_exact)
    old, _ = storage.read_window(window)
    storage.write_window(window, updated(stmt.op, old, value, dtype))
