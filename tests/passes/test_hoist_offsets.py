"""Offsets bound before unrolled loops, and at their use where registers are scarce."""

import pytest

import tilecore.language as T
from tilecore.compiler import lower
from tilecore.targets import choose_target

TARGET = choose_target("cuda_ampere", "sm_80", "emulator")


def crowded(first: int, tile_n: int):
    @T.prim_func
    def program(
        A: T.Tensor((128, 64), "float16"),
        B: T.Tensor((64, tile_n), "float16"),
        C: T.Tensor((128, tile_n), "float32"),
    ):
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((64, tile_n), "float16")
            c = T.alloc_fragment((128, tile_n), "float32")
            T.clear(c)
            T.copy(A, a)
            T.copy(B, b)
            for _step in T.serial(first, first + 3):
                T.gemm(a, b, c)
            T.copy(c, C)

    return program


def text_of(program) -> str:
    return lower(program, target=TARGET).source.text


@pytest.mark.parametrize(
    ("first", "tile_n", "expected"),
    [(0, 256, True), (2, 256, True), (-1, 256, False), (0, 64, False)],
)
def test_addresses_are_computed_at_their_use_only_where_it_is_right(first, tile_n, expected):
    assert ("ampere::at_use(" in text_of(crowded(first, tile_n))) is expected


def test_the_invariant_part_is_bound_once():
    text = text_of(crowded(0, 64))
    assert "const int a_at" in text
    loads = [line for line in text.splitlines() if "ampere::ldmatrix<" in line]
    assert loads
    assert all("lane" not in line for line in loads)  # nothing is computed from the lane inside
