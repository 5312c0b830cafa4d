"""The MFMA table, against a statement of its own of where AMD's manual puts each element."""

from __future__ import annotations

import re
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from tilecore.emulator import LaunchShape, RunOptions, build_kernel, launch
from tilecore.hooks.records import MmaAtom
from tilecore_backend_rocm.emulation import HEADERS, SUPPORT
from tilecore_backend_rocm.mma import ATOMS, INSTRUCTIONS, Instruction, _chained, accumulator

# Of the manual's tables: bytes of A that one lane brings to one instruction.
OPERAND_BYTES = {"f16": 8, "bf16": 8, "i8": 8, "xf32": 8, "f32": 4, "f64": 8}
ELEMENT_BYTES = {"f16": 2, "bf16": 2, "i8": 1, "xf32": 4, "f32": 4, "f64": 8}
TYPES = {
    "f16": (np.float16, np.float16, np.float32), "i8": (np.int8, np.int8, np.int32),
    "bf16": (ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32),
    "xf32": (np.float32, np.float32, np.float32), "f32": (np.float32, np.float32, np.float32),
    "f64": (np.float64, np.float64, np.float64),
    **{
        f"{a}_{b}": (kind_a, kind_b, np.float32)
        for (a, kind_a), (b, kind_b) in product(
            (("fp8", ml_dtypes.float8_e4m3fnuz), ("bf8", ml_dtypes.float8_e5m2fnuz)), repeat=2
        )
    },
}  # fmt: skip
OWN = [atom for atom in ATOMS if atom.register_dtype is None]


def parts(atom: MmaAtom) -> tuple[int, int, str]:
    match = re.fullmatch(r"mfma_(\d+)x(\d+)x(\d+)_(\w+)", atom.name)
    assert match is not None and match[1] == match[2]
    return int(match[1]), int(match[3]), match[4]


def d_row(side: int, lane: int, v: int, suffix: str) -> int:
    """Row of result v of a lane in the instruction's own D, by the manual's formulas."""
    if suffix == "f64":
        return 4 * v + lane // 16
    if side == 16:
        return 4 * (lane // 16) + v
    return 8 * (v // 4) + 4 * (lane // 32) + v % 4


@pytest.mark.parametrize("atom", ATOMS, ids=lambda a: f"{a.name}-{a.a_dtype}-{a.b_dtype}")
def test_layouts_are_the_manuals(atom: MmaAtom) -> None:
    side, k, suffix = parts(atom)
    run = k * side // 64
    assert atom.a is not None and atom.b is not None
    for lane, i in product(range(64), range(run)):
        outer, depth = lane % side, run * (lane // side) + i
        assert atom.a.place((outer, depth)) == (lane, i)
        assert atom.b.place((depth, outer)) == (lane, i)
    for lane, v in product(range(64), range(side * side // 64)):
        # operands are exchanged: the instruction's rows are C's columns
        assert atom.c.place((lane % side, d_row(side, lane, v, suffix))) == (lane, v)


CHAINED = [i for i in INSTRUCTIONS if i.c.name == "float32" and i.run <= 4]


@pytest.mark.parametrize("instruction", CHAINED, ids=lambda i: i.mnemonic)
def test_results_lie_as_the_next_products_operand_wants_them(instruction: Instruction) -> None:
    """S^T = K Q^T without a shuffle: slice s of a row of results is the operand of slice s.

    8-bit instructions take eight neighbours at least: there P goes through memory.
    """
    chained = _chained(instruction)
    results = accumulator(instruction)
    per_slice = chained.k * instruction.side // 64
    assert chained.a is not None
    for row, column in product(range(instruction.side), repeat=2):
        slice_, depth = divmod(column, chained.k)
        lane, register = chained.a.place((row, depth))
        assert results.place((row, column)) == (lane, slice_ * per_slice + register)


def test_an_instruction_takes_whole_operands_of_the_manuals_size() -> None:
    for instruction in INSTRUCTIONS:
        size = OPERAND_BYTES.get(instruction.suffix, 8)
        element = ELEMENT_BYTES.get(instruction.suffix, 1)
        assert instruction.run * element == size, instruction


def test_the_headers_have_every_atom() -> None:
    text = (HEADERS / "cdna3_mfma.h").read_text()
    lines = re.findall(r"^CDNA3_ATOM\((\d+), (\d+), (\w+), (.*)\)$", text, re.M)
    assert {f"mfma_{s}x{s}x{k}_{suffix}" for s, k, suffix, _ in lines} == {a.name for a in ATOMS}
    for side, k, suffix, rest in lines:
        builtin = rest.split(", ")[-2]
        depth = int(re.findall(r"\d+x\d+x(\d+)", builtin)[0])
        assert int(k) % depth == 0 and f"{side}x{side}x" in builtin
        first, *second = suffix.split("_")
        if second:  # the builtin's operands are exchanged
            assert builtin.endswith(f"{second[0]}_{first}")


TEXT = """
TC_KERNEL(64, 0) run(const {a}* A, const {b}* B, const {d}* C0, {d}* C) {{
  const int outer = tc::lane_in_block() % {side}, group = tc::lane_in_block() / {side};
  TC_FRAGMENT({a}, a, {run});
  TC_FRAGMENT({b}, b, {run});
  TC_FRAGMENT({d}, d, {results});
  for (int i = 0; i < {run}; ++i) {{
    a[i] = tc::load_global(A + outer * {k} + {run} * group + i);
    b[i] = tc::load_global(B + ({run} * group + i) * {side} + outer);
  }}
  for (int v = 0; v < {results}; ++v)
    d[v] = tc::load_global(C0 + outer * {side} + {column});
  cdna3::{name}(d, a, b);
  for (int v = 0; v < {results}; ++v)
    tc::store_global(C + outer * {side} + {column}, d[v]);
}}
"""
C_TYPES = {
    np.float16: "tc::half", ml_dtypes.bfloat16: "tc::bfloat16", np.float32: "float",
    np.float64: "double", np.int8: "int8_t", np.int32: "int32_t",
    ml_dtypes.float8_e4m3fnuz: "tc::e4m3fnuz", ml_dtypes.float8_e5m2fnuz: "tc::e5m2fnuz",
}  # fmt: skip


@pytest.mark.parametrize("atom", OWN, ids=lambda a: a.name)
def test_emulated_instruction_multiplies(atom: MmaAtom) -> None:
    side, k, suffix = parts(atom)
    kinds = TYPES[suffix]
    results = side * side // 64
    columns = [d_row(side, 0, v, suffix) for v in range(results)]
    step = d_row(side, side, 0, suffix)
    text = TEXT.format(
        a=C_TYPES[kinds[0]], b=C_TYPES[kinds[1]], d=C_TYPES[kinds[2]], side=side, k=k,
        run=k * side // 64, results=results, name=atom.name,
        column=f"({'8 * (v / 4) + v % 4' if columns[1] == 1 else '4 * v'}) + {step} * group",
    )  # fmt: skip
    random = np.random.default_rng(len(atom.name))
    a = random.integers(-3, 4, (side, k)).astype(kinds[0])
    b = random.integers(-3, 4, (k, side)).astype(kinds[1])
    start = random.integers(-9, 9, (side, side)).astype(kinds[2])
    result = np.zeros_like(start)
    launch(
        build_kernel(text, "run", SUPPORT), [a, b, start, result],
        LaunchShape((1, 1, 1), (64, 1, 1), 0), RunOptions(seed=1),
    )  # fmt: skip
    expected = start + a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(result.astype(np.float64), expected)
