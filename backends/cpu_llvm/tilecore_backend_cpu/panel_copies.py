"""Copies around a step of a blocked product: rows of A and panels of B packed, C written out.

Each is a small internal function of its module, written once for each shape.
"""

from __future__ import annotations

from tilecore.ir.dtypes import DType

from .builder import FunctionWriter, Value, element_type, vector_type
from .conversions import compute_type, convert, narrow, storage_type, widen
from .gemm_kernels import GemmEmitter, GemmPlan
from .packing import Matrix, emit_panel
from .step_shape import StepBlocking
from .tile_blocks import TILE_BYTES

_VECTOR_BYTES = 64
"""Moved at a time; CPUs with shorter vectors move it in parts."""


def emit_left_panel(
    w: FunctionWriter,
    gemm: GemmEmitter,
    form: tuple[int, bool, StepBlocking, int],
    arguments: tuple[Value, Value, Value, Value, Value],
) -> None:
    """Copy a row block of A.

    `form` is (rows, whether A is stored (k, m), how the step is cut, element bytes); `arguments`
    are (source, its pitch in bytes, destination, rows inside, k inside). What is outside becomes
    zero, k up to whole vectors.
    """
    rows, is_transposed, cut, size = form
    kind = "t" if is_transposed else ("rows" if cut.left_pitch else "tiles")
    name = f"left_{kind}_{rows}x{cut.left_row}x{size}"
    if gemm.is_new(name):
        f = gemm.module.function(name, "void", _parameters(arguments), "internal")
        f.attributes = "noinline"
        if is_transposed:
            _copy_columns(f, rows, cut.left_pitch, size)
        else:
            _copy_rows(f, rows, cut, size)
        f.ret()
    w.call(name, "void", arguments)


def _parameters(arguments: tuple[Value, ...]) -> list[tuple[str, str]]:
    return [(value.type, f"p{n}") for n, value in enumerate(arguments)]


def _copy_rows(f: FunctionWriter, rows: int, cut: StepBlocking, size: int) -> None:
    """Rows with a pitch, or as whole tiles (`TileRows.in_tiles`): a vector is a row of a tile."""
    source, source_pitch, place, rows_inside, k_inside = f.parameters
    step = _VECTOR_BYTES if cut.left_pitch else TILE_BYTES
    lanes = _VECTOR_BYTES // size
    kind = vector_type(f"i{size * 8}", lanes)
    zero = f.const(0, kind)
    vectors = f.binary("udiv", f.add(k_inside, f.i64(lanes - 1)), f.i64(lanes))
    with f.loop(f.i64(0), f.i64(rows)) as loop:
        row = loop.index
        src = f.offset_bytes(source, f.mul(row, source_pitch))
        dst = f.offset_bytes(place, _row_offset(f, row, cut, size))
        inside = f.select(f.icmp("slt", row, rows_inside), k_inside, f.i64(0))
        whole = f.binary("udiv", inside, f.i64(lanes))
        with f.loop(f.i64(0), whole) as full:
            at = f.mul(full.index, f.i64(_VECTOR_BYTES))
            to = f.offset_bytes(dst, f.mul(full.index, f.i64(step)))
            f.store(f.load(f.offset_bytes(src, at), kind), to)
        with f.loop(whole, vectors) as tail:
            at = f.mul(tail.index, f.i64(_VECTOR_BYTES))
            mask = first_lanes(f, f.sub(inside, f.mul(tail.index, f.i64(lanes))), lanes)
            value = f.masked_load(f.offset_bytes(src, at), kind, mask, zero)
            f.store(value, f.offset_bytes(dst, f.mul(tail.index, f.i64(step))))


def _row_offset(f: FunctionWriter, row: Value, cut: StepBlocking, size: int) -> Value:
    if cut.left_pitch:
        return f.mul(row, f.i64(cut.left_pitch * size))
    tile = f.mul(f.binary("udiv", row, f.i64(16)), f.i64(16 * cut.depth * size))
    return f.add(tile, f.mul(f.binary("urem", row, f.i64(16)), f.i64(_VECTOR_BYTES)))


def _copy_columns(f: FunctionWriter, rows: int, pitch: int, size: int) -> None:
    source, source_pitch, place, rows_inside, k_inside = f.parameters
    kind = vector_type(f"i{size * 8}", pitch)
    zero = f.const(0, kind)
    mask = first_lanes(f, f.intrinsic("smin", [rows_inside, f.i64(rows)]), pitch)
    with f.loop(f.i64(0), k_inside) as loop:
        src = f.offset_bytes(source, f.mul(loop.index, source_pitch))
        dst = f.offset_bytes(place, f.mul(loop.index, f.i64(pitch * size)))
        f.store(f.masked_load(src, kind, mask, zero), dst)
    # The multiplication takes k in whole turns.
    with f.loop(k_inside, f.binary("and", f.add(k_inside, f.i64(31)), f.i64(-32))) as loop:
        f.store(zero, f.offset_bytes(place, f.mul(loop.index, f.i64(pitch * size))))


def first_lanes(w: FunctionWriter, count: Value, lanes: int) -> Value:
    """A mask of the first `count` lanes (i64, may be negative or too many)."""
    clamped = w.intrinsic("smin", [w.intrinsic("smax", [count, w.i64(0)]), w.i64(lanes)])
    limit = w.splat(w.cast("trunc", clamped, "i32"), lanes)
    return w.icmp("slt", w.const_vector(range(lanes), "i32"), limit)


def emit_right_panel(
    w: FunctionWriter,
    gemm: GemmEmitter,
    plan: GemmPlan,
    form: tuple[int, int, bool, int],
    arguments: tuple[Value, Value, Value, Value, Value],
) -> None:
    """Pack a panel of B.

    `form` is (depth, width, whether B is stored (n, k), element bytes); `arguments` are (source,
    its pitch in bytes, destination, k inside, columns inside).
    """
    depth, width, is_transposed, size = form
    name = f"right{'_t' if is_transposed else ''}_{depth}x{width}x{size}x{plan.group}"
    if gemm.is_new(name):
        f = gemm.module.function(name, "void", _parameters(arguments), "internal")
        f.attributes = "noinline"
        source, pitch, place, k_inside, columns_inside = f.parameters
        columns = f.intrinsic("smin", [columns_inside, f.i64(width)])
        sizes = (width, depth) if is_transposed else (depth, width)
        inside = (columns, k_inside) if is_transposed else (k_inside, columns)
        emit_panel(f, Matrix(source, pitch, *sizes, *inside), plan, is_transposed, place, size)
        f.ret()
    w.call(name, "void", arguments)


def emit_result(
    w: FunctionWriter,
    gemm: GemmEmitter,
    form: tuple[int, int, int, DType, DType],
    arguments: tuple[Value, Value, Value, Value, Value],
) -> None:
    """Write a register block of C to the result.

    `form` is (rows, columns, pitch of C, its type, the result's type); `arguments` are (C, result,
    the result's pitch in bytes, rows inside, columns inside).
    """
    rows, columns, pitch, c_dtype, out_dtype = form
    name = f"result_{rows}x{columns}x{pitch}_{c_dtype.name}_{out_dtype.name}"
    if gemm.is_new(name):
        f = gemm.module.function(name, "void", _parameters(arguments), "internal")
        f.attributes = "noinline"
        lanes = gemm.cpu.lanes(max(32, c_dtype.bits))
        _write_rows(f, (rows, columns, pitch), lanes, (c_dtype, out_dtype))
        f.ret()
    w.call(name, "void", arguments)


def _write_rows(
    f: FunctionWriter, form: tuple[int, int, int], lanes: int, dtypes: tuple[DType, DType]
) -> None:
    rows, columns, pitch = form
    c_dtype, out_dtype = dtypes
    source, place, out_pitch, rows_inside, columns_inside = f.parameters
    kind = vector_type(storage_type(c_dtype), lanes)
    vectors = -(-columns // lanes)
    limit = f.intrinsic("smin", [rows_inside, f.i64(rows)])
    inside = f.intrinsic("smin", [columns_inside, f.i64(columns)])
    label = f.fresh("result")
    is_whole = f.icmp("sge", inside, f.i64(vectors * lanes))
    f.terminate(f"br {is_whole}, label %{label}.whole, label %{label}.ragged")
    for is_masked, part in ((False, "whole"), (True, "ragged")):
        f.begin_block(f"{label}.{part}")
        with f.loop(f.i64(0), limit) as loop:
            src = f.offset_bytes(source, f.mul(loop.index, f.i64(pitch * c_dtype.bytes)))
            dst = f.offset_bytes(place, f.mul(loop.index, out_pitch))
            for v in range(vectors):
                value = f.load(f.offset_bytes(src, v * lanes * c_dtype.bytes), kind)
                value = widen(f, value, c_dtype)
                if compute_type(c_dtype) != compute_type(out_dtype):
                    value = convert(f, value, c_dtype, out_dtype)
                stored = narrow(f, value, out_dtype)
                at = f.offset_bytes(dst, v * lanes * out_dtype.bytes)
                if is_masked:
                    left = f.sub(inside, f.i64(v * lanes))
                    f.masked_store(stored, at, first_lanes(f, left, lanes))
                else:
                    f.store(stored, at)
        f.terminate(f"br label %{label}.end")
    f.begin_block(f"{label}.end")


__all__ = [
    "element_type", "emit_left_panel", "emit_result", "emit_right_panel", "first_lanes",
]  # fmt: skip
