"""Blocks of 2 x 2 accumulator tiles (AMX), and the configuration of the tile registers."""

from __future__ import annotations

from dataclasses import dataclass

from .builder import FunctionWriter, Value
from .gemm_plan import GemmShape
from .register_blocks import Sums

TILE_BYTES = 1024
"""One tile register: 16 rows of 64 bytes."""


def _tile_config() -> bytes:
    """AMX palette 1 with all eight tiles 16 rows of 64 bytes (Intel SDM, LDTILECFG)."""
    return bytes([1, 0, *[0] * 14, *[64, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8])


def emit_tile_config(w: FunctionWriter) -> None:
    """Configure this thread's tile registers; once per thread before any `tile` kernel."""
    name = "tilecore_tile_config"
    if not w.module.has_global(name):
        w.module.constant_bytes(name, _tile_config(), 64)
    _tile_op(w, "ldtilecfg", [Value("ptr", f"@{name}")])


def emit_tile_release(w: FunctionWriter) -> None:
    """Give the tile registers back to their initial state."""
    _tile_op(w, "tilerelease", [])


def _tile_op(w: FunctionWriter, name: str, arguments: list[Value | int]) -> None:
    values = [Value("i8", str(a)) if isinstance(a, int) else a for a in arguments]
    w.call(f"llvm.x86.{name}", "void", values)


@dataclass(frozen=True, slots=True)
class TileRows:
    """How the rows of A lie, in bytes: from row to row, from one tile over k to the next, and from
    16 rows to the next 16."""

    pitch: int
    k_step: int
    m_step: int

    @staticmethod
    def in_rows(pitch: int) -> TileRows:
        """Plain rows."""
        return TileRows(pitch, 64, 16 * pitch)

    @staticmethod
    def in_tiles(k_tiles: int) -> TileRows:
        """Whole tiles, one behind the other along k: 16 lines of one page at a time."""
        return TileRows(64, TILE_BYTES, k_tiles * TILE_BYTES)


def emit_tile_block(
    w: FunctionWriter,
    shape: GemmShape,
    size: tuple[int, int, int],
    operands: tuple[Value, Value, TileRows],
    turns: Value,
    sums: Sums,
) -> None:
    """Multiply one block.

    `size` is (tiles of rows, tiles of columns, tiles over k of a panel of B), `operands` are A, B
    and how A lies; `turns` is how many tiles over k are taken.
    """
    m_tiles, n_tiles, k_tiles = size
    a, b, lie = operands
    c_pitch = shape.c_pitch * 4
    multiply = _tile_multiply(shape)
    offsets = [
        (2 * i + j, i * 16 * c_pitch + j * 64) for i in range(m_tiles) for j in range(n_tiles)
    ]
    _begin(w, sums, offsets, c_pitch)

    with w.loop(w.i64(0), turns) as loop:
        a_at = w.offset_bytes(a, w.mul(loop.index, w.i64(lie.k_step)))
        b_at = w.offset_bytes(b, w.mul(loop.index, w.i64(TILE_BYTES)))
        for j in range(n_tiles):
            b_tile = w.offset_bytes(b_at, j * k_tiles * TILE_BYTES)
            _tile_op(w, "tileloadd64", [6 + j, b_tile, w.i64(64)])
        for i in range(m_tiles):
            a_tile = w.offset_bytes(a_at, i * lie.m_step)
            _tile_op(w, "tileloadd64", [4 + i, a_tile, w.i64(lie.pitch)])
            for j in range(n_tiles):
                _tile_op(w, multiply, [2 * i + j, 4 + i, 6 + j])
    for tile, offset in offsets:
        _tile_op(w, "tilestored64", [tile, w.offset_bytes(sums.place, offset), w.i64(c_pitch)])


def _begin(w: FunctionWriter, sums: Sums, offsets: list[tuple[int, int]], pitch: int) -> None:
    """Accumulators: zero, or what was there before."""
    is_clear = sums.is_clear if isinstance(sums.is_clear, Value) else None
    label = w.fresh("sums")
    if is_clear is not None:
        w.terminate(f"br {is_clear}, label %{label}.zero, label %{label}.load")
        w.begin_block(f"{label}.zero")
    if sums.is_clear is not False:
        for tile, _ in offsets:
            _tile_op(w, "tilezero", [tile])
    if is_clear is not None:
        w.terminate(f"br label %{label}.end")
        w.begin_block(f"{label}.load")
    if sums.is_clear is not True:
        for tile, offset in offsets:
            place = w.offset_bytes(sums.source, offset)
            _tile_op(w, "tileloadd64", [tile, place, w.i64(pitch)])
    if is_clear is not None:
        w.begin_block(f"{label}.end")


def _tile_multiply(shape: GemmShape) -> str:
    if shape.a_dtype.is_float:
        return "tdpbf16ps"
    signs = "".join("s" if dtype.kind == "int" else "u" for dtype in (shape.a_dtype, shape.b_dtype))
    return f"tdpb{signs}d"
