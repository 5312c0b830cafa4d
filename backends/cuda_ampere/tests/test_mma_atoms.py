"""The atom table against the manual's formulas, and the layouts that follow from it."""

import itertools

import pytest

from tilecore.ir.dtypes import float16, float64, int8, tfloat32, uint8
from tilecore.ir.layout import FragmentLayout
from tilecore_backend_cuda_ampere.layout import best_layout, conflicts
from tilecore_backend_cuda_ampere.mma import ATOMS, SOURCE

# PTX ISA, "Matrix Fragments": lane = 4 g + t, element i -> (row, column) of the operand as written.
FORMULAS = {
    "mma_m16n8k16": (
        lambda g, t, i: (g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4)),
        lambda g, t, i: (2 * t + i % 2 + 8 * (i // 2), g),
    ),
    "mma_m16n8k8": (
        lambda g, t, i: (g + 8 * (i // 2), 2 * t + i % 2),
        lambda g, t, i: (2 * t + i, g),
    ),
    "mma_m16n8k8_tf32": (
        lambda g, t, i: (g + 8 * (i % 2), t + 4 * (i // 2)),
        lambda g, t, i: (t + 4 * i, g),
    ),
    "mma_m16n8k32": (
        lambda g, t, i: (g + 8 * (i // 4 % 2), 4 * t + i % 4 + 16 * (i // 8)),
        lambda g, t, i: (4 * t + i % 4 + 16 * (i // 4), g),
    ),
    "mma_m8n8k4": (lambda g, t, i: (g, t), lambda g, t, i: (t, g)),
}


def accumulator(g, t, i):
    return (g + 8 * (i // 2), 2 * t + i % 2)


def check(layout: FragmentLayout, formula) -> None:
    for lane, register in itertools.product(range(32), range(layout.registers)):
        expected = formula(lane // 4, lane % 4, register)
        assert layout.coordinates(lane, register) == expected, (lane, register)


def label(atom) -> str:
    return f"{atom.name}-{atom.a_dtype}-{atom.b_dtype}-{atom.c_dtype}"


@pytest.mark.parametrize("atom", ATOMS, ids=label)
def test_layouts_are_the_manuals(atom):
    a, b = FORMULAS[atom.name]
    assert atom.a is not None and atom.b is not None
    check(atom.a, a)
    check(atom.b, b)
    check(atom.c, accumulator)
    assert atom.source == SOURCE
    for layout in (atom.a, atom.b, atom.c):
        assert layout.is_bijective()


def test_every_required_kind_is_in_the_table():
    kinds = {(a.a_dtype, a.b_dtype) for a in ATOMS}
    assert {(float16, float16), (tfloat32, tfloat32), (float64, float64)} <= kinds
    assert {(int8, uint8), (uint8, int8)} <= kinds


@pytest.mark.parametrize("element_bytes", [1, 2, 4])
@pytest.mark.parametrize("row_bytes", [32, 64, 128, 256, 512])
@pytest.mark.parametrize("rows", [16, 64, 128])
def test_operand_tiles_have_no_bank_conflicts(rows, row_bytes, element_bytes):
    layout = best_layout((rows, row_bytes // element_bytes), element_bytes)
    assert layout.is_injective()
    assert conflicts(layout, element_bytes) == 2  # one pass for the matrix load, one for the copy
    assert layout.span * element_bytes == rows * row_bytes  # and no byte is wasted


@pytest.mark.parametrize("columns", [24, 40, 80, 96, 176, 200])
def test_other_widths_have_fewer_conflicts_than_plain_rows(columns):
    from tilecore.ir.layout import Layout

    shape = (64, columns)
    assert conflicts(best_layout(shape, 2), 2) <= conflicts(Layout.row_major(shape), 2)
    assert best_layout(shape, 2).is_injective()
