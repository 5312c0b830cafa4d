"""What a multiplication is, and how a CPU runs it: instruction, blocking, storage of operands."""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.dtypes import DType, float32

from .host import HostCpu


@dataclass(frozen=True, slots=True)
class GemmShape:
    """One multiplication: sizes, element types, pitches (elements)."""

    m: int
    n: int
    k: int
    a_dtype: DType
    b_dtype: DType
    c_dtype: DType
    a_pitch: int
    c_pitch: int
    a_is_transposed: bool = False


@dataclass(frozen=True, slots=True)
class GemmPlan:
    """How a multiplication of given element types runs on a CPU.

    `kind` is ``tile`` (AMX), ``dot`` (bfloat16 pair dot products) or ``fma``. `group` elements of
    k are interleaved in B. `n_block` is the width of a panel of B, `m_block` the most rows of a
    register block. `a_dtype` is what A must be stored as: kernels do not convert A.
    """

    kind: str
    group: int
    n_block: int
    m_block: int
    k_block: int
    a_dtype: DType


def plan_gemm(a: DType, b: DType, c: DType, cpu: HostCpu) -> GemmPlan:
    """Choose the instruction and the blocking for the three element types."""
    names = (a.name, b.name, c.name)
    if names == ("bfloat16", "bfloat16", "float32"):
        if cpu.has_amx_bf16:
            return GemmPlan("tile", 2, 16, 32, 32, a)
        if cpu.has_bf16_dot:
            return GemmPlan("dot", 2, 32, 14, 2, a)
    is_bytes = all(name in ("int8", "uint8") for name in names[:2]) and c.bits == 32 and c.is_int
    if is_bytes and cpu.has_amx_int8:
        return GemmPlan("tile", 4, 16, 32, 64, a)
    lanes = cpu.lanes(max(32, c.bits))
    registers = cpu.vector_registers
    columns = 3 if registers == 32 and cpu.vector_bits == 128 else 2
    rows = max(1, (registers - columns - 2) // columns)
    # Narrow accumulators are kept in fp32 over k; A comes in the type of the arithmetic.
    wide = float32 if c.is_float and c.bits < 32 else c
    return GemmPlan("fma", 1, columns * lanes, rows, 1, wide)


def split_rows(m: int, largest: int) -> list[tuple[int, int]]:
    """Cut m rows into blocks of nearly equal height: [(rows, how many blocks)]."""
    blocks = -(-m // largest)
    small, extra = divmod(m, blocks)
    parts = [(small + 1, extra), (small, blocks - extra)]
    return [(rows, count) for rows, count in parts if rows and count]
