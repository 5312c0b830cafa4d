"""Flat fragments with composed and divided indices are spread over lanes, whatever numbers them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import EMULATED, kernel_on
from passes_support import context, kernel_of, run, staged

import tilecore.language as T
from tilecore.errors import ResourceError


def in_lines(rows: int, columns: int, dtype: str, threads: int, number: str) -> Any:
    """Tiles of two axes go through a fragment of one, numbered in one way or another."""

    @T.prim_func
    def main(A: T.Tensor((2 * rows, columns), dtype), B: T.Tensor((2 * rows * columns,), dtype)):
        with T.Kernel(2, threads=threads) as by:
            tile = T.alloc_fragment((rows, columns), dtype)
            line = T.alloc_fragment((rows * columns,), dtype)
            T.copy(A[by * rows, 0], tile)
            for i, j in T.Parallel(rows, columns):
                if number == "rows":
                    line[i * columns + j] = tile[i, j]
                elif number == "columns":
                    line[j * rows + i] = tile[i, j]
                elif number == "turned":
                    line[(i * columns + j + 5) % (rows * columns)] = tile[i, j]
                else:
                    line[rows * columns - 1 - i * columns - j] = tile[i, j]
            for k in T.Parallel(rows * columns):
                B[by * rows * columns + k // columns * columns + k % columns] = line[k] + 1

    return main


def in_tiles(rows: int, columns: int, dtype: str, threads: int, number: str) -> Any:
    """The other way round: a line's elements are put into a tile by quotient and rest."""

    @T.prim_func
    def main(A: T.Tensor((2 * rows * columns,), dtype), B: T.Tensor((2 * rows, columns), dtype)):
        with T.Kernel(2, threads=threads) as by:
            line = T.alloc_fragment((rows * columns,), dtype)
            tile = T.alloc_fragment((rows, columns), dtype)
            T.copy(A[by * rows * columns], line)
            for k in T.Parallel(rows * columns):
                if number == "rows":
                    tile[k // columns, k % columns] = line[k] + 1
                else:
                    tile[k % rows, k // rows] = line[k] + 1
            T.copy(tile, B[by * rows, 0])

    return main


SHAPES = [(32, 576, 128), (32, 72, 64), (7, 33, 64)]


@pytest.mark.parametrize("backend", EMULATED)
@pytest.mark.parametrize("number", ["rows", "columns", "turned"])
@pytest.mark.parametrize(("rows", "columns", "threads"), SHAPES)
def test_tiles_in_lines(rows: int, columns: int, threads: int, number: str, backend: str) -> None:
    a = np.random.default_rng(0).integers(-99, 99, (2 * rows, columns)).astype(np.float16)
    out = np.zeros(a.size, np.float16)
    kernel_on(backend, in_lines(rows, columns, "float16", threads, number))(a, out)
    lines = (a + 1).reshape(2, rows * columns)
    if number == "columns":
        lines = (a + 1).reshape(2, rows, columns).transpose(0, 2, 1)
    elif number == "turned":
        lines = np.roll(lines, 5, axis=1)
    np.testing.assert_array_equal(out, lines.reshape(-1))


@pytest.mark.parametrize("backend", EMULATED)
@pytest.mark.parametrize("number", ["rows", "columns"])
@pytest.mark.parametrize(("rows", "columns", "threads"), SHAPES[:2])
def test_lines_in_tiles(rows: int, columns: int, threads: int, number: str, backend: str) -> None:
    a = np.random.default_rng(0).integers(-99, 99, 2 * rows * columns).astype(np.float16)
    out = np.zeros((2 * rows, columns), np.float16)
    kernel_on(backend, in_tiles(rows, columns, "float16", threads, number))(a, out)
    tiles = (a + 1).reshape(2, rows, columns)
    if number == "columns":
        tiles = (a + 1).reshape(2, columns, rows).transpose(0, 2, 1)
    np.testing.assert_array_equal(out, tiles.reshape(2 * rows, columns))


@pytest.mark.parametrize(
    ("make", "number"),
    [
        (in_lines, "rows"),
        (in_lines, "columns"),
        (in_lines, "turned"),
        (in_lines, "backwards"),
        (in_tiles, "rows"),
        (in_tiles, "columns"),
    ],
)
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
@pytest.mark.parametrize(("rows", "columns", "threads"), [*SHAPES, (16, 96, 256), (128, 36, 96)])
def test_no_lane_holds_more_than_twice_its_share(
    rows: int, columns: int, threads: int, dtype: str, number: str, make: Any
) -> None:
    """But where that is little beside its registers."""
    layouts = dict(kernel_of(run(make(rows, columns, dtype, threads, number))).layouts)
    share, little = -(-rows * columns // threads), context().target.registers_per_thread * 2
    for name in ("tile", "line"):
        held = layouts[name].registers
        assert held <= 2 * share or held * np.dtype(dtype).itemsize <= little, (name, layouts[name])


@pytest.mark.parametrize(("rows", "columns", "threads"), [(32, 576, 128), (64, 24, 64)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rows_that_lanes_divide_need_no_scratch(
    rows: int, columns: int, threads: int, dtype: str
) -> None:
    assert not staged(in_lines(rows, columns, dtype, threads, "rows"))


def test_scratch_that_does_not_fit_is_refused_at_the_kernel() -> None:
    program = in_lines(32, 576, "float32", 128, "turned")
    with pytest.raises(
        ResourceError, match=r"test_flat_fragments.py:\d+: .*shared memory"
    ) as wrong:
        kernel_on("rocm_cdna3", program)
    assert "line_staged: 73728 bytes" in str(wrong.value)
