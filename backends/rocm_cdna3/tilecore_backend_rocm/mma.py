"""The MFMA instructions as a table of self-checking atoms.

Layouts are those of AMD's "Instinct MI300 Instruction Set Architecture", section 7.1 (matrix
arithmetic instructions): lane l of a 32 x 32 instruction brings row (A) or column (B) ``l % 32``
and a run of k that starts at ``run * (l // 32)``; its results lie in column ``l % 32``, rows
``8 * (v // 4) + 4 * (l // 32) + v % 4``. The 16 x 16 ones likewise with 16.

Operands are exchanged when the instruction is issued: it computes D^T = B^T A^T. So a lane's
results are one ROW of C, four neighbours at a time: they are stored as vectors, row reductions stay
within two lanes (four with 16 x 16), and C has the layout of the next gemm's A (P of attention
needs no exchange). An atom whose k is a multiple of the instruction's runs several of them on
operands of 16 bytes a lane; any order of k serves as long as A and B agree on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.hooks.records import MmaAtom, MmaRequest
from tilecore.ir.buffers import Scope
from tilecore.ir.dtypes import (
    DType,
    bfloat16,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float16,
    float32,
    float64,
    int8,
    int32,
    tfloat32,
)
from tilecore.ir.layout import REGISTER, THREAD, FragmentLayout, FragmentMode
from tilecore.ir.stmts import Gemm
from tilecore.passes.contraction import tile_mma
from tilecore.target import Target

LANES = 64
OPERAND_BYTES = 16
"""What one lane reads of an operand at once: ds_read_b128."""
SOURCE = "AMD Instinct MI300 ISA, 7.1 Matrix Arithmetic Instructions"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One v_mfma instruction.

    Attributes:
        suffix: names the operand types in the names of atoms.
        mnemonic: the instruction, without its ``v_mfma_`` prefix.
        side: m and n.
        k: its depth.
        a, b, c: dtypes.
        cycles: issue passes of 4 clocks times 4, from the same manual.
    """

    suffix: str
    mnemonic: str
    side: int
    k: int
    a: DType
    b: DType
    c: DType
    cycles: int

    @property
    def run(self) -> int:
        """Neighbouring k of one lane."""
        return self.k * self.side // LANES


def _pair(
    suffix: str, names: tuple[str, str], ks: tuple[int, int], types: tuple[DType, DType, DType],
    cycles: tuple[int, int],
) -> tuple[Instruction, Instruction]:  # fmt: skip
    """The 32 x 32 and the 16 x 16 instruction of one combination of types."""
    return (
        Instruction(suffix, names[0], 32, ks[0], *types, cycles[0]),
        Instruction(suffix, names[1], 16, ks[1], *types, cycles[1]),
    )


def _fp8(a: str, b: str) -> tuple[Instruction, Instruction]:
    kinds = {"fp8": float8_e4m3fnuz, "bf8": float8_e5m2fnuz}
    return _pair(
        f"{a}_{b}", (f"f32_32x32x16_{a}_{b}", f"f32_16x16x32_{a}_{b}"), (16, 32),
        (kinds[a], kinds[b], float32), (32, 16),
    )  # fmt: skip


INSTRUCTIONS: tuple[Instruction, ...] = (
    *_pair("f16", ("f32_32x32x8_f16", "f32_16x16x16_f16"), (8, 16),
           (float16, float16, float32), (32, 16)),
    *_pair("bf16", ("f32_32x32x8_bf16", "f32_16x16x16_bf16"), (8, 16),
           (bfloat16, bfloat16, float32), (32, 16)),
    *_fp8("fp8", "fp8"), *_fp8("fp8", "bf8"), *_fp8("bf8", "fp8"), *_fp8("bf8", "bf8"),
    *_pair("i8", ("i32_32x32x16_i8", "i32_16x16x32_i8"), (16, 32), (int8, int8, int32), (32, 16)),
    *_pair("xf32", ("f32_32x32x4_xf32", "f32_16x16x8_xf32"), (4, 8),
           (tfloat32, tfloat32, float32), (32, 16)),
    *_pair("f32", ("f32_32x32x2_f32", "f32_16x16x4_f32"), (2, 4),
           (float32, float32, float32), (64, 32)),
    Instruction("f64", "f64_16x16x4_f64", 16, 4, float64, float64, float64, 32),
)  # fmt: skip


def _t(extent: int, stride: int) -> FragmentMode:
    return FragmentMode(extent, THREAD, stride)


def _r(extent: int, stride: int) -> FragmentMode:
    return FragmentMode(extent, REGISTER, stride)


def accumulator(instruction: Instruction) -> FragmentLayout:
    """C over (m, n): one row a lane, by the exchange of operands."""
    side = instruction.side
    lanes = _t(LANES // side, side)
    if (
        instruction.c == float64
    ):  # results of one lane are LANES // side rows apart, not side by side
        return FragmentLayout(((_t(side, 1),), (lanes, _r(4, 1))))
    columns = (_r(4, 1), lanes, _r(4, 4)) if side == 32 else (_r(4, 1), lanes)
    return FragmentLayout(((_t(side, 1),), columns))


def _operand(side: int, run: int) -> tuple[FragmentMode, ...]:
    """The k axis of an operand: `run` neighbours a lane, then the groups of `side` lanes."""
    lanes = _t(LANES // side, side)
    return (_r(run, 1), lanes) if run > 1 else (lanes,)


def atom_of(
    instruction: Instruction, repeats: int, widened: tuple[DType, DType] | None = None
) -> MmaAtom:
    """The atom that runs an instruction `repeats` times along k.

    Args:
        instruction: which.
        repeats: how often.
        widened: dtypes of operands that are converted to the instruction's when they are loaded.
    """
    side, k = instruction.side, instruction.k * repeats
    along_k = _operand(side, instruction.run * repeats)
    a, b = widened or (instruction.a, instruction.b)
    return MmaAtom(
        f"mfma_{side}x{side}x{k}_{instruction.suffix}", side, side, k, a, b, instruction.c, LANES,
        FragmentLayout(((_t(side, 1),), along_k)), FragmentLayout((along_k, (_t(side, 1),))),
        accumulator(instruction), SOURCE,
        register_dtype=instruction.a if widened else None, operand_sets=2,
    )  # fmt: skip


def _repeats(instruction: Instruction) -> int:
    """How many instructions 16 bytes a lane feed."""
    return max(1, OPERAND_BYTES // (instruction.run * instruction.a.bytes))


_OCP = (float8_e4m3fn, float8_e5m2)


def _atoms() -> tuple[MmaAtom, ...]:
    found: list[MmaAtom] = []
    for instruction in INSTRUCTIONS:
        steps = {_repeats(instruction), 1}
        found += [atom_of(instruction, repeats) for repeats in sorted(steps, reverse=True)]
        if instruction.a == float16:  # every OCP 8-bit float is a float16
            found += [
                atom_of(instruction, repeats, (a, b))
                for repeats in sorted(steps, reverse=True)
                for a in _OCP
                for b in _OCP
            ]
    return tuple(found)


ATOMS: tuple[MmaAtom, ...] = _atoms()
"""All atoms; of one combination of types those with the larger side and the larger k come first."""


def select_mma(request: MmaRequest, target: Target) -> MmaAtom | None:
    """The atom for a gemm; None where only multiply-adds are right.

    The 32 x 32 instruction where it pads no more than the 16 x 16 one. Operands in registers take
    the run of k in which results of an earlier gemm lie; operands in memory take 16 bytes a lane.
    float32 uses the float32 instruction, or xf32 when the gemm's hint ``tf32`` is set. OCP 8-bit
    floats are widened to float16 (exact); FNUZ ones run at the 8-bit rate.
    """
    gemm = request.gemm
    m_n, stored = gemm.c.static_shape, gemm.a.static_shape
    if request.threads % LANES or m_n is None or stored is None or not _in_reach(gemm):
        return None
    depth = stored[0 if gemm.transpose_a else 1]
    wanted = _types(gemm)
    in_registers = Scope.FRAGMENT in (gemm.a.buffer.scope, gemm.b.buffer.scope)
    in_registers = in_registers and not dict(gemm.hints).get("held")
    best: MmaAtom | None = None
    for atom in ATOMS:
        if (atom.a_dtype, atom.b_dtype, atom.c_dtype) != wanted or depth % atom.k:
            continue
        if in_registers and atom.name not in _CHAINED:
            continue
        if best is None or (
            atom.m < best.m and _area(gemm, atom, request) < _area(gemm, best, request)
        ):
            best = atom
    return best


def _chained(instruction: Instruction) -> MmaAtom:
    """The atom whose A lies as results do: runs of four neighbours (float64: none).

    8-bit instructions take eight at least: theirs go through memory.
    """
    run = 1 if instruction.c == float64 else 4
    return atom_of(instruction, max(1, run // instruction.run))


_CHAINED = {_chained(instruction).name for instruction in INSTRUCTIONS}


def _types(gemm: Gemm) -> tuple[DType, DType, DType]:
    a, b, c = gemm.a.dtype, gemm.b.dtype, gemm.c.dtype
    if dict(gemm.hints).get("tf32") and float32 in (a, b):
        a = b = tfloat32
    return a, b, c


def _area(gemm: Gemm, atom: MmaAtom, request: MmaRequest) -> int:
    """Elements of C that are computed, padding included."""
    tiled = tile_mma(gemm, atom, request.threads)
    rows = tiled.groups_m * tiled.tiles_m * atom.m
    return rows * tiled.groups_n * tiled.tiles_n * atom.n


def _in_reach(gemm: Gemm) -> bool:
    """True when operands are where lanes can load them."""
    return all(r.buffer.scope is not Scope.LOCAL for r in (gemm.a, gemm.b, gemm.c))
