"""Axes of more than 2^31 elements: every index on them is exact, however it is written."""

from __future__ import annotations

import math
import re
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


def last_rows(kind: str) -> Any:
    """Writes the last row of each plane; sizes, and so strides, are known at the call only."""
    n, m, k = T.dynamic("n, m, k")
    tensor = T.Tensor((n, m, k), "int8")
    if kind == "strided":
        tensor = T.StridedTensor((n, m, k), (m * k, k, 1), "int8")

    @T.prim_func
    def main(x: tensor):
        with T.Kernel(n, threads=64) as bx:
            if kind == "copied":
                part = T.alloc_shared((BLOCK,), "int8")
                for i in T.Parallel(BLOCK):
                    part[i] = i % 100 + 1
                T.copy(part, x[bx, m - 1, 0])
            elif kind == "view":
                rows = T.reshape(x, (n * m, k))
                for i in T.Parallel(BLOCK):
                    rows[bx * m + m - 1, i] = i % 100 + 1
            elif kind == "flat view":
                rows = T.view(x, (n, m * (k // 4), 4))
                for i in T.Parallel(BLOCK):
                    rows[bx, (m - 1) * (k // 4) + i // 4, i % 4] = i % 100 + 1
            else:
                for i in T.Parallel(BLOCK):
                    x[bx, m - 1, i] = i % 100 + 1

    return main


DYNAMIC = ("plain", "strided", "copied", "view", "flat view")


@pytest.mark.parametrize("kind", DYNAMIC)
def test_strides_of_sizes_that_only_the_call_tells_are_exact(kind: str) -> None:
    """Planes of 2^31 + 2^15 elements."""
    x = np.zeros((3, 2**16 + 1, 2**15), np.int8)
    tilecore.compile(last_rows(kind), backend="cpu_llvm")(x)
    np.testing.assert_array_equal(x[:, -1, :BLOCK], [np.arange(BLOCK) % 100 + 1] * 3)
    assert not x[:, -1, BLOCK:].any() and not x[:, -3:-1].any() and not x[:, :3].any()


@pytest.mark.parametrize("backend", ["cuda_ampere", "cuda_hopper", "rocm_cdna3"])
@pytest.mark.parametrize("kind", DYNAMIC)
def test_no_stride_of_two_dynamic_sizes_is_multiplied_in_32_bits(kind: str, backend: str) -> None:
    lane = tilecore.lower(last_rows(kind), backend, device="emulator").ir("lane")
    if kind == "copied":
        lane = "".join(line for line in lane.splitlines() if "x_at" in line or "&x[" in line)
    places = re.findall(r"x\[.*\] =|let x_at = .*", lane)
    assert places and "cast(m, int64)" in "".join(places), lane
    for text in places:
        assert not re.search(r"(?<!\w)[mk] \* [mk](?!\w)", text), text
