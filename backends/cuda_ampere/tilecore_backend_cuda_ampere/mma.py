"""The mma.sync instructions as a table of self-checking atoms.

Layouts are those of the PTX ISA 9.0, section 9.7.15.4 ("Matrix Fragments for mma.m16n8k16" and its
neighbours): lane l = 4 * g + t. `MmaAtom` checks counts when it is made; tests prove each layout
bijective and equal to what the emulated instruction computes.
"""

from __future__ import annotations

from tilecore.hooks.records import MatrixLoad, MatrixStore, MmaAtom, MmaRequest
from tilecore.ir.buffers import Scope
from tilecore.ir.dtypes import (
    DType,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int32,
    tfloat32,
    uint8,
)
from tilecore.ir.layout import REGISTER, THREAD, FragmentLayout, FragmentMode
from tilecore.ir.stmts import Gemm
from tilecore.target import Target

SOURCE = "PTX ISA 9.0, Warp Level Matrix Instructions, Matrix Fragments"


def _t(extent: int, stride: int) -> FragmentMode:
    return FragmentMode(extent, THREAD, stride)


def _r(extent: int, stride: int) -> FragmentMode:
    return FragmentMode(extent, REGISTER, stride)


def _accumulator(rows_twice: bool = True) -> FragmentLayout:
    """Two neighbours in row g (and row g + 8): the C/D fragment of all m16n8 shapes."""
    rows = (_t(8, 4), _r(2, 2)) if rows_twice else (_t(8, 4),)
    return FragmentLayout((rows, (_r(2, 1), _t(4, 1))))


def _a(per_word: int, halves: int) -> FragmentLayout:
    """A (m, k): words of `per_word` neighbours along k; rows g, g + 8; then the second k half."""
    k = [_t(4, 1)] if per_word == 1 else [_r(per_word, 1), _t(4, 1)]
    if halves == 2:
        k.append(_r(2, 2 * per_word))
    return FragmentLayout(((_t(8, 4), _r(2, per_word)), tuple(k)))


def _b(per_word: int, halves: int) -> FragmentLayout:
    """B (k, n): words of `per_word` neighbours along k, column g; then the second k half."""
    k = [_t(4, 1)] if per_word == 1 else [_r(per_word, 1), _t(4, 1)]
    if halves == 2:
        k.append(_r(2, per_word))
    return FragmentLayout((tuple(k), (_t(8, 4),)))


def _matrix(element_bits: int, transposed: bool) -> MatrixLoad:
    per_word = 32 // element_bits
    if transposed:
        layout = FragmentLayout(((_r(2, 1), _t(4, 1)), (_t(8, 4),)))
        return MatrixLoad("ampere.ldmatrix_trans", 16, 8, layout, (4, 2, 1))
    columns = (_t(4, 1),) if per_word == 1 else (_r(per_word, 1), _t(4, 1))
    layout = FragmentLayout(((_t(8, 4),), columns))
    return MatrixLoad("ampere.ldmatrix", element_bits, 8, layout, (4, 2, 1))


_LOADS_16 = (_matrix(16, False), _matrix(16, True))
MATRIX_STORES = tuple(
    MatrixStore(load.name.replace("ldmatrix", "stmatrix"), 16, load.layout, load.counts)
    for load in _LOADS_16
)
"""stmatrix and stmatrix.trans (PTX ISA, "Warp-level matrix store instruction"): from sm_90 on."""


def _half_atom(dtype: DType, accumulator: DType, k: int) -> MmaAtom:
    halves = k // 8
    return MmaAtom(
        f"mma_m16n8k{k}", 16, 8, k, dtype, dtype, accumulator, 32,
        _a(2, halves), _b(2, halves), _accumulator(), SOURCE, _LOADS_16,
    )  # fmt: skip


TF32 = MmaAtom(
    "mma_m16n8k8_tf32", 16, 8, 8, tfloat32, tfloat32, float32, 32, _a(1, 2), _b(1, 2),
    _accumulator(), SOURCE, (_matrix(32, False),), "ampere.to_tf32", "ampere.to_tf32",
)  # fmt: skip
FP64 = MmaAtom(
    "mma_m8n8k4", 8, 8, 4, float64, float64, float64, 32,
    FragmentLayout(((_t(8, 4),), (_t(4, 1),))), FragmentLayout(((_t(4, 1),), (_t(8, 4),))),
    _accumulator(rows_twice=False), SOURCE,
)  # fmt: skip


_EIGHT_BIT_FLOATS = (float8_e4m3fn, float8_e5m2)


def _widened_atom(a: DType, b: DType) -> MmaAtom:
    """8-bit floats on the float16 instruction: exact, at the rate of float16."""
    return MmaAtom(
        "mma_m16n8k16", 16, 8, 16, a, b, float32, 32, _a(2, 2), _b(2, 2), _accumulator(), SOURCE,
        register_dtype=float16,
    )  # fmt: skip


def _byte_atom(a: DType, b: DType, accumulator: DType) -> MmaAtom:
    """Integers, or 8-bit floats as they are (targets with "float8")."""
    return MmaAtom(
        "mma_m16n8k32", 16, 8, 32, a, b, accumulator, 32, _a(4, 2), _b(4, 2), _accumulator(),
        SOURCE, (_matrix(8, False),),
    )  # fmt: skip


_FLOAT8_ATOMS = tuple(
    _byte_atom(a, b, float32) for a in _EIGHT_BIT_FLOATS for b in _EIGHT_BIT_FLOATS
)
ATOMS: tuple[MmaAtom, ...] = (
    _half_atom(float16, float32, 16),
    _half_atom(bfloat16, float32, 16),
    _half_atom(float16, float16, 16),
    _half_atom(float16, float32, 8),
    _half_atom(bfloat16, float32, 8),
    TF32,
    FP64,
    *(_byte_atom(a, b, int32) for a in (int8, uint8) for b in (int8, uint8)),
    *_FLOAT8_ATOMS,
    *(_widened_atom(a, b) for a in _EIGHT_BIT_FLOATS for b in _EIGHT_BIT_FLOATS),
)
"""All atoms, preferred ones first among those that fit a gemm."""


def select_mma(request: MmaRequest, target: Target) -> MmaAtom | None:
    """The atom for a gemm; None where only multiply-adds are right.

    float32 operands keep their precision by multiply-adds, unless the gemm's hint ``tf32`` is set;
    operands of dtype tfloat32 use tf32. 8-bit floats stay what they are where the
    target has "float8" and k is a multiple of 32. On sm_89 and sm_120 that is twice the rate of
    float16, with sums that the hardware may keep in fewer bits than a float32 between two
    instructions. On sm_90 and sm_100 the products are those of float16, exactly, yet operands come
    by matrix loads, half as many bytes (H200: 1.5 of the speed of widened ones in gemm, 2.3 in
    attention): so only where both operands lie along k (else 0.88). Elsewhere they are widened to
    float16 when they are loaded (exact: every value of both formats is a float16), at the rate of
    float16 and without a narrower accumulator.
    """
    gemm = request.gemm
    if request.threads % 32:
        return None
    k = gemm.a.static_shape
    m_n = gemm.c.static_shape
    if k is None or m_n is None:
        return None
    depth = k[0 if gemm.transpose_a else 1]
    a, b, c = gemm.a.dtype, gemm.b.dtype, gemm.c.dtype
    if float32 in (a, b) and dict(gemm.hints).get("tf32"):
        a = b = tfloat32
    for atom in ATOMS:
        if atom in _FLOAT8_ATOMS and not _multiplies_float8(gemm, target):
            continue
        if (atom.a_dtype, atom.b_dtype, atom.c_dtype) == (a, b, c) and depth % atom.k == 0:
            return atom if _in_reach(request) else None
    return None


def _multiplies_float8(gemm: Gemm, target: Target) -> bool:
    """Whether mma.sync on 8-bit floats is there and faster than float16's on widened ones."""
    a_along_k = gemm.a.buffer.scope is Scope.FRAGMENT or not gemm.transpose_a
    b_along_k = gemm.b.buffer.scope is Scope.FRAGMENT or gemm.transpose_b
    return target.has("float8_mma") or (target.has("float8") and a_along_k and b_along_k)


def _in_reach(request: MmaRequest) -> bool:
    """True when operands are where lanes can load them."""
    gemm = request.gemm
    return all(r.buffer.scope is not Scope.LOCAL for r in (gemm.a, gemm.b, gemm.c))
