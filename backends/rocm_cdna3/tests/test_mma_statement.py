"""Every MFMA against a statement of its own: where AMD's calculator puts elements.

The calculator (github.com/ROCm/amd_matrix_instruction_calculator, cdna3) answers in the other
direction than the atoms are written: element of a matrix -> lane and register. Its formulas and
cycle counts are stated here once more, per instruction.
"""

from __future__ import annotations

from itertools import product

import pytest

from tilecore_backend_rocm.mma import INSTRUCTIONS, Instruction, atom_of

# mnemonic: (k that neighbour in one lane, cycles), as the calculator prints them.
CALCULATOR = {
    "f32_32x32x8_f16": (4, 32), "f32_16x16x16_f16": (4, 16),
    "f32_32x32x8_bf16": (4, 32), "f32_16x16x16_bf16": (4, 16),
    "f32_32x32x16_fp8_fp8": (8, 32), "f32_16x16x32_fp8_fp8": (8, 16),
    "f32_32x32x16_fp8_bf8": (8, 32), "f32_16x16x32_fp8_bf8": (8, 16),
    "f32_32x32x16_bf8_fp8": (8, 32), "f32_16x16x32_bf8_fp8": (8, 16),
    "f32_32x32x16_bf8_bf8": (8, 32), "f32_16x16x32_bf8_bf8": (8, 16),
    "i32_32x32x16_i8": (8, 32), "i32_16x16x32_i8": (8, 16),
    "f32_32x32x4_xf32": (2, 32), "f32_16x16x8_xf32": (2, 16),
    "f32_32x32x2_f32": (1, 64), "f32_16x16x4_f32": (1, 32),
    "f64_16x16x4_f64": (1, 32),
}  # fmt: skip


def place_of_operand(instruction: Instruction, i: int, k: int) -> tuple[int, int]:
    """(lane, position in the lane) of A[i][k]; B[k][j] the same with j."""
    together, _ = CALCULATOR[instruction.mnemonic]
    return instruction.side * (k // together) + i, k % together


def place_of_result(instruction: Instruction, i: int, j: int) -> tuple[int, int]:
    """(lane, result) of D[i][j]."""
    if instruction.suffix == "f64":
        return 16 * (i % 4) + j, i // 4
    if instruction.side == 16:
        return 16 * (i // 4) + j, i % 4
    return 32 * (i // 4) % 64 + j, 4 * (i // 8) + i % 4


def test_all_instructions_are_stated() -> None:
    assert {instruction.mnemonic for instruction in INSTRUCTIONS} == set(CALCULATOR)


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda i: i.mnemonic)
def test_elements_are_where_the_calculator_puts_them(instruction: Instruction) -> None:
    atom, side = atom_of(instruction, 1), instruction.side
    assert atom.a is not None and atom.b is not None
    for outer, k in product(range(side), range(instruction.k)):
        want = place_of_operand(instruction, outer, k)
        assert atom.a.place((outer, k)) == atom.b.place((k, outer)) == want
    for i, j in product(range(side), range(side)):
        # operands are exchanged at the issue: D[i][j] of the instruction is C[j][i]
        assert atom.c.place((j, i)) == place_of_result(instruction, i, j)


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda i: i.mnemonic)
def test_cycles_and_rate(instruction: Instruction) -> None:
    assert instruction.cycles == CALCULATOR[instruction.mnemonic][1]
    # Rates of the CDNA3 white paper, operations a clock and compute unit: four SIMDs.
    rates = {"f16": 2048, "bf16": 2048, "i8": 4096, "xf32": 1024, "f32": 256, "f64": 256}
    work = 2 * instruction.side**2 * instruction.k
    assert 4 * work // instruction.cycles == rates.get(instruction.suffix, 4096)


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda i: i.mnemonic)
@pytest.mark.parametrize("repeats", [1, 2, 4])
def test_repeated_instructions_agree_on_k(instruction: Instruction, repeats: int) -> None:
    """However often an atom repeats its instruction: A and B bring the same k to each of them."""
    atom, run = atom_of(instruction, repeats), instruction.run
    assert atom.a is not None and atom.b is not None
    seen: dict[tuple[int, int, int], int] = {}
    for k in range(atom.k):
        for layout, at in ((atom.a, (0, k)), (atom.b, (k, 0))):
            lane, register = layout.place(at)
            key = (register // run, lane // instruction.side, register % run)
            assert seen.setdefault(key, k) == k
    assert sorted(seen.values()) == list(range(atom.k))
