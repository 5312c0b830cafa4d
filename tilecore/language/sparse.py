"""T.gemm_sp: products with a 2:4 sparse operand.

Of each group of four neighbouring elements along k two are kept, in order, and a 4-bit entry of the
metadata says which: bits 0 and 1 the place of the first, bits 2 and 3 of the second. Entries are
packed into integers, low bits first. Of 32-bit elements one of two is kept, and the entry counts
places in halves of an element. (The metadata is that of PyTorch's semi-structured tensors, in
row-major order.)

The operand is expanded into a dense shared tile and multiplied there::

    dense[i, k] = first if entry % 4 == k % 4 else second if entry // 4 == k % 4 else 0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Expr, Load, Var, const
from tilecore.ir.stmts import Parallel
from tilecore.language import operators as ops
from tilecore.language.builder import Builder
from tilecore.language.locate import caller_loc, fail
from tilecore.language.math_ops import if_then_else
from tilecore.language.regions import normalise, region_of
from tilecore.language.tile_ops import GemmWarpPolicy, gemm, tile_builder
from tilecore.language.values import BufferValue, Scalar, shape_text

ENTRY_BITS = 4


def gemm_sp(
    A_sparse: Any,
    E: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_E: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    k_pack: int = 1,
    wg_wait: int = 0,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """``C += A @ B`` for a 2:4 sparse A that is given by its kept elements and metadata.

    Args:
        A_sparse: kept elements, (M, K / 2).
        E: metadata, (M, K / (bits of its dtype)) for elements of up to 16 bits, (M, K / (bits / 2))
            for 32-bit elements; an integer dtype.
        B: (K, N), or (N, K) with `transpose_B`.
        C: fragment tile (M, N).
        transpose_A: A_sparse is stored (K / 2, M).
        transpose_E: E is stored transposed.
        transpose_B: B is stored transposed.
        policy: how C is divided among warps.
        clear_accum: ignore C's old contents.
        k_pack: advice, as in `gemm`.
        wg_wait: not needed; the compiler waits.
        annotations: further advice.
    """
    del wg_wait
    builder = tile_builder("T.gemm_sp")
    kept = normalise(region_of(A_sparse, "operand A of T.gemm_sp"), 2)
    entries = normalise(region_of(E, "operand E of T.gemm_sp"), 2)
    rows, columns = _extents(kept, bool(transpose_A), "A")
    wide = kept.dtype.bits == 32
    group = 2 if wide else 4
    per_word = entries.dtype.bits // ENTRY_BITS
    covered = _extents(entries, bool(transpose_E), "E")
    _check_metadata(entries, covered, (rows, columns * 2 // group))
    read_kept = _reader(kept, bool(transpose_A))
    read_entry = _reader(entries, bool(transpose_E))
    dense = _allocate(builder, (rows, columns * 2), kept)
    i, k = (Var(builder.unique(name), int32) for name in "ik")
    frame = builder.push("parallel", (i.name, k.name))
    place = Scalar(k) // group
    word = read_entry(Scalar(i), place // per_word)
    shift = (place % per_word * ENTRY_BITS).astype(ops.dtype_of(word.expr))
    entry = ((word >> shift) & 15).astype("int32")
    value = _element(entry, read_kept, Scalar(i), Scalar(k), wide)
    builder.store(dense, (i, k), value)
    body = builder.pop(frame)
    extents = (dense.shape[0], dense.shape[1])
    builder.emit(Parallel((i, k), extents, body, (), caller_loc()))
    gemm(
        BufferValue(dense), B, C, False, transpose_B, policy, clear_accum, k_pack, None, annotations
    )


def _element(
    entry: Scalar, kept: Callable[[Any, Any], Scalar], row: Scalar, k: Scalar, wide: bool
) -> Any:
    """The dense element at (row, k): a kept one, or 0."""
    if wide:
        return if_then_else((entry & 3) // 2 == k % 2, kept(row, k // 2), 0)
    first, second = kept(row, k // 4 * 2), kept(row, k // 4 * 2 + 1)
    at = k % 4
    return if_then_else((entry & 3) == at, first, if_then_else(entry >> 2 == at, second, 0))


def _check_metadata(entries: Region, covered: tuple[int, int], needed: tuple[int, int]) -> None:
    """`covered` is E's extents in words, `needed` rows and entries of a row."""
    rows, count = needed
    per_word = entries.dtype.bits // ENTRY_BITS
    if not entries.dtype.is_int or covered[0] != rows or covered[1] * per_word != count:
        fail(
            "metadata of T.gemm_sp does not fit A",
            expected=f"integers for {rows} rows of {count} entries",
            got=f"{entries.dtype} {shape_text(entries.shape)}",
        )


def _extents(region: Region, transposed: bool, name: str) -> tuple[int, int]:
    shape = region.static_shape
    if shape is None or len(shape) != 2:
        fail(
            f"operand {name} of T.gemm_sp is no constant matrix",
            expected="2 constant axes",
            got=shape_text(region.shape),
        )
    return (shape[1], shape[0]) if transposed else (shape[0], shape[1])


def _reader(region: Region, transposed: bool) -> Callable[[Any, Any], Scalar]:
    def read(row: Any, column: Any) -> Scalar:
        at: tuple[Expr, ...] = (ops.as_index(row), ops.as_index(column))
        indices = region.indices(at[::-1] if transposed else at)
        return Scalar(Load(region.buffer, indices))

    return read


def _allocate(builder: Builder, shape: tuple[int, int], like: Region) -> Buffer:
    extents = tuple(const(extent, int32) for extent in shape)
    return builder.allocate(Scope.SHARED, extents, like.dtype, f"{like.buffer.name}_dense")
