"""Axes of more than 2^31 elements: every index on them is exact, however it is written."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T

BLOCK = 512
FORMS = ("element", "named", "copy", "asynchronous")
LAST = 2**32 // BLOCK - 1  # the last tile of the axis


def filling(form: str, extent: Any) -> Any:
    """Writes the axis's last two tiles; their places are products of 32-bit values."""

    @T.prim_func
    def main(x: T.Tensor((extent,), "int8")):
        with T.Kernel(2, threads=64) as bx:
            tile = LAST - 1 + bx
            if form == "element":
                for i in T.Parallel(BLOCK):
                    x[tile * BLOCK + i] = i % 100 + 1
            elif form == "named":
                start = tile * BLOCK
                for i in T.Parallel(BLOCK):
                    at = start + i
                    x[at] = i % 100 + 1
            else:
                part = T.alloc_shared((BLOCK,), "int8")
                for i in T.Parallel(BLOCK):
                    part[i] = i % 100 + 1
                T.copy(part, x[tile * BLOCK])
                if form == "asynchronous":  # and back
                    T.clear(part)
                    T.async_copy(x[tile * BLOCK], part)
                    T.async_commit()
                    T.async_wait(0)
                    T.copy(part, x[tile * BLOCK])

    return main


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_end_of_a_long_axis_is_written(form: str, dynamic: bool) -> None:
    """Four gigabytes of address space, of which only the end is touched."""
    extent = T.dynamic("n", "int64") if dynamic else 2**32
    x = np.zeros(2**32, np.int8)
    tilecore.compile(filling(form, extent), backend="cpu_llvm")(x)
    np.testing.assert_array_equal(x[-2 * BLOCK :], np.tile(np.arange(BLOCK) % 100 + 1, 2))
    assert not x[-4 * BLOCK : -2 * BLOCK].any() and not x[: 4 * BLOCK].any()


@pytest.mark.parametrize("backend", ["cuda_ampere", "cuda_hopper", "rocm_cdna3"])
@pytest.mark.parametrize(
    ("shape", "view"),
    [
        ((2**32,), (2**16, 2**16)),
        ((2**16, 2**16), (2**8, 2**8, 2**16)),
        ((2, 2**16, 2**16), (2, 2**16, 2**16)),
    ],
)
def test_rows_past_two_to_the_31_are_where_views_and_strides_say(
    shape: tuple[int, ...], view: tuple[int, ...], backend: str
) -> None:
    last = [extent - 1 for extent in view[:-1]]

    @T.prim_func
    def main(x: T.Tensor(shape, "int8")):
        with T.Kernel(1, threads=64):
            rows = x if view == shape else T.reshape(x, view)
            for i in T.Parallel(BLOCK):
                rows[(*last, i)] = i % 100 + 1

    lane = tilecore.lower(main, backend, device="emulator").ir("lane")
    assert f"int64({math.prod(shape) - view[-1]})" in lane


@pytest.mark.parametrize("backend", ["cuda_ampere", "cuda_hopper", "rocm_cdna3"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_no_place_on_a_long_axis_is_computed_in_32_bits(
    form: str, dynamic: bool, backend: str
) -> None:
    extent = T.dynamic("n", "int64") if dynamic else 2**32
    lane = tilecore.lower(filling(form, extent), backend, device="emulator").ir("lane")
    assert "int64" in lane
    assert f"* {BLOCK}" not in lane, lane  # a product with a 32-bit constant
