"""The wgmma instructions as self-checking atoms, and the choice of one for a gemm.

Register layouts are those of the PTX ISA, "Register Fragments and Shared Memory Matrix Layouts" of
wgmma: warp w of the warpgroup owns rows 16 w ... 16 w + 15, lane 4 g + t of it rows g and g + 8.
"""

from __future__ import annotations

import functools

from tilecore.errors import LoweringError
from tilecore.hooks.records import MmaAtom, MmaRequest
from tilecore.ir.buffers import Region, Scope
from tilecore.ir.dtypes import (
    DType,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    int8,
    int32,
    tfloat32,
    uint8,
)
from tilecore.ir.layout import REGISTER, THREAD, FragmentLayout, FragmentMode
from tilecore.ir.simplify import known_multiple
from tilecore.ir.stmts import Gemm
from tilecore.passes.contraction import tile_mma
from tilecore_backend_cuda_hopper.layout import panels
from tilecore_backend_cuda_hopper.wgmma_source import (
    WGMMA_KINDS,
    WGMMA_M,
    WgmmaInstruction,
    WgmmaKind,
    legal_n,
)

WARPGROUP = 128
"""Lanes that execute one instruction together."""

SOURCE = "PTX ISA, Asynchronous Warpgroup Level Matrix Instructions, Register Fragments"

_TYPES: dict[str, DType] = {
    "f16": float16, "bf16": bfloat16, "tf32": tfloat32, "e4m3": float8_e4m3fn,
    "e5m2": float8_e5m2, "s8": int8, "u8": uint8, "f32": float32, "s32": int32,
}  # fmt: skip
_KIND_OF: dict[tuple[DType, DType, DType], WgmmaKind] = {
    (_TYPES[kind.a], _TYPES[kind.b], _TYPES[kind.accumulator]): kind
    for kind in WGMMA_KINDS.values()
    if kind.a in _TYPES
}


def _t(extent: int, stride: int) -> FragmentMode:
    return FragmentMode(extent, THREAD, stride)


def _r(extent: int, stride: int) -> FragmentMode:
    return FragmentMode(extent, REGISTER, stride)


def accumulator_layout(n: int) -> FragmentLayout:
    """The D fragment over (64, n): pairs of columns, rows g and g + 8, then 8 columns further."""
    rows = (_t(8, 4), _r(2, 2), _t(4, 32))
    columns = (_r(2, 1), _t(4, 1), _r(n // 8, 4)) if n > 8 else (_r(2, 1), _t(4, 1))
    return FragmentLayout((rows, columns))


def a_layout(per_word: int) -> FragmentLayout:
    """The A fragment over (64, k): words of `per_word` elements, rows g and g + 8, k halves."""
    rows = (_t(8, 4), _r(2, per_word), _t(4, 32))
    k = ((_r(per_word, 1),) if per_word > 1 else ()) + (_t(4, 1), _r(2, 2 * per_word))
    return FragmentLayout((rows, k))


@functools.lru_cache(maxsize=256)
def wgmma_atom(kind_name: str, n: int, a_in_registers: bool) -> MmaAtom:
    """The atom of one instruction; its name is that of the instruction's function."""
    kind = WGMMA_KINDS[kind_name]
    instruction = WgmmaInstruction(kind_name, n, a_in_registers)
    a, b = _TYPES[kind.a], _TYPES[kind.b]
    registers = a_layout(4 // a.bytes) if a_in_registers else None
    return MmaAtom(
        instruction.function_name, WGMMA_M, n, kind.k, a, b, _TYPES[kind.accumulator], WARPGROUP,
        registers, None, accumulator_layout(n), SOURCE,
    )  # fmt: skip


def instruction_of(atom_name: str) -> WgmmaInstruction:
    """The instruction whose function has this name."""
    head, _, source = atom_name.rpartition("_")
    kind, _, n = head.removeprefix("wgmma_").rpartition("_n")
    return WgmmaInstruction(kind, int(n), source == "rs")


def select_mma(request: MmaRequest) -> MmaAtom | None:
    """The widest wgmma that divides a gemm's tile among the warpgroups; None where none does.

    Then the base backend answers: float32 and float64 operands, bfloat16 sums, tiles whose
    rows are no multiple of 64, blocks that are no whole number of warpgroups. tfloat32 operands,
    and float32 ones of gemms with the hint ``tf32``, lose the bits that the type has not.
    """
    gemm = request.gemm
    a, b = gemm.a.dtype, gemm.b.dtype
    if float32 in (a, b) and dict(gemm.hints).get("tf32"):
        a, b = (tfloat32 if dtype is float32 else dtype for dtype in (a, b))
    kind = _KIND_OF.get((a, b, gemm.c.dtype))
    m_n, a_shape = gemm.c.static_shape, gemm.a.static_shape
    if kind is None or request.threads % WARPGROUP or m_n is None or a_shape is None:
        return None
    m, n = m_n
    if m % WGMMA_M or a_shape[0 if gemm.transpose_a else 1] % kind.k or 0 in (m, n):
        return None
    if not kind.has_transpose and (gemm.transpose_a or not gemm.transpose_b):
        return None
    in_registers = gemm.a.buffer.scope is Scope.FRAGMENT
    if in_registers and a is tfloat32:
        return None  # lanes would have to round; the base backend's atom does
    panel_a = 1 if in_registers else _panel(gemm.a)
    panel_b = _panel(gemm.b)
    if panel_a is None or panel_b is None or gemm.c.buffer.scope is Scope.LOCAL:
        return None
    for columns in sorted(legal_n(kind), reverse=True):
        if n % columns:
            continue
        atom = wgmma_atom(kind.name, columns, in_registers)
        if _divides(gemm, atom, request.threads, panel_b):
            return atom
    return None


def _divides(gemm: Gemm, atom: MmaAtom, threads: int, panel_b: int) -> bool:
    """True when warpgroups times atoms are the tile itself, each at the start of a panel."""
    try:
        tiled = tile_mma(gemm, atom, threads)
    except LoweringError:
        return False
    m, n = gemm.c.static_shape or (0, 0)
    if tiled.groups_m * tiled.tiles_m * atom.m != m or tiled.groups_n * tiled.tiles_n * atom.n != n:
        return False
    several = tiled.groups_n * tiled.tiles_n > 1
    return not (several and not gemm.transpose_b and atom.n % panel_b)


def _panel(region: Region) -> int | None:
    """Columns of one panel of an operand's shared layout; None when wgmma cannot read it."""
    buffer = region.buffer
    if buffer.scope not in (Scope.SHARED, Scope.GLOBAL):
        return None
    is_shared = buffer.scope is Scope.SHARED
    shape = buffer.static_shape if is_shared else region.static_shape
    if shape is None:
        return None
    layout = panels(shape, buffer.dtype.bytes)
    if layout is None or layout.swizzle is None:
        return None
    panel = layout.axes[-1][0].extent
    if is_shared and (
        region.axes != (buffer.rank - 2, buffer.rank - 1)
        or known_multiple(region.starts[-1]) % panel
        or known_multiple(region.starts[-2]) % 8
        or (region.static_shape or (0, 0))[-1] % panel
    ):
        return None
    return panel
