"""Windows of an image: one statement at the tile level, nests before all passes unless a copy
engine may take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.compiler import lower
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import float32
from tilecore.ir.expr import Const, Var, const, substitute
from tilecore.ir.parser import parse_program
from tilecore.ir.printer import format_program
from tilecore.ir.ranges import Ranges
from tilecore.ir.simplify import simplify
from tilecore.ir.windows import Windows

IMAGE = (2, 6, 5, 8)


def windowed(place: str = "pipelined") -> Any:
    """R is the matrix of windows of A, by tiles of 8 x 24; `place` says where the statement is."""
    n, h, w, c = IMAGE
    rows, columns = n * h * w, 9 * c

    @T.prim_func
    def windowed(A: T.Tensor(IMAGE, "float32"), R: T.Tensor((rows, columns), "float32")):
        with T.Kernel(T.ceildiv(rows, 8), threads=32) as by:
            s = T.alloc_shared((8, 24), "float32")
            f = T.alloc_fragment((8, 24), "float32")
            if place == "pipelined":
                for k in T.Pipelined(columns // 24, num_stages=2):
                    T.im2col(A, s, by, k, 3, 1, 1, 1)
                    T.copy(s, R[by * 8, k * 24])
            elif place == "fragment":
                for k in T.Pipelined(columns // 24, num_stages=2):
                    T.im2col(A, f, by, k, 3, 1, 1, 1)
                    T.copy(f, R[by * 8, k * 24])
            elif place == "part":
                for k in T.Pipelined(columns // 24, num_stages=2):
                    for half in T.unroll(2):
                        T.im2col(A, s[:, 12 * half : 12 * half + 12], by, 2 * k + half, 3, 1, 1, 1)
                    T.copy(s, R[by * 8, k * 24])
            else:
                for k in T.serial(columns // 24):
                    T.im2col(A, s, by, k, 3, 1, 1, 1)
                    T.copy(s, R[by * 8, k * 24])

    return windowed


PLACES = ("pipelined", "serial", "fragment", "part")


@pytest.mark.parametrize("place", PLACES)
def test_tile_level_has_one_statement_that_reads_back(place: str) -> None:
    program = windowed(place).program
    text = format_program(program)
    assert "tile.windows" in text
    assert parse_program(text) == program


@pytest.mark.parametrize("place", PLACES)
def test_gathered_before_all_passes(place: str) -> None:
    for backend in ("cpu_llvm", "cuda_ampere"):
        lowered = lower(windowed(place), backend=backend)
        assert "tile.windows" not in lowered.ir("canonical")
    kept = "tile.windows" in lower(windowed(place), backend="cuda_hopper").ir("canonical")
    assert kept == (place == "pipelined")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", ["cpu_llvm", "reference"])
def test_every_place_gives_the_windows(place: str, way: str) -> None:
    n, h, w, c = IMAGE
    a = np.random.default_rng(0).standard_normal(IMAGE).astype(np.float32)
    padded = np.pad(a, ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = np.stack([padded[:, y : y + h, x : x + w] for y in range(3) for x in range(3)], axis=3)
    out = np.zeros((n * h * w, 9 * c), np.float32)
    if way == "reference":
        tilecore.compile(windowed(place), device="reference")(a, out)
    else:
        tilecore.compile(windowed(place), way)(a, out)
    np.testing.assert_array_equal(out, want.reshape(out.shape))


@pytest.mark.parametrize("facts", [(3, 1, 1, 1), (2, 3, 2, 0), (5, 2, 1, 4), (1, 1, 1, 0)])
def test_place_of_an_element(facts: tuple[int, int, int, int]) -> None:
    """Counted one after the other, as the matrix is written down."""
    kernel, stride, dilation, pad = facts
    windows = Windows(
        Buffer("A", tuple(map(const, IMAGE)), float32, Scope.GLOBAL), kernel, stride, dilation, pad
    )
    row, column = Var("row"), Var("column")
    at = windows.place(row, column)
    reach = dilation * (kernel - 1) + 1
    n, h, w, c = IMAGE
    pixels = [
        (i, y, x)
        for i in range(n)
        for y in range(-pad, h + pad - reach + 1, stride)
        for x in range(-pad, w + pad - reach + 1, stride)
    ]
    parts = [
        (dy * dilation, dx * dilation, channel)
        for dy in range(kernel)
        for dx in range(kernel)
        for channel in range(c)
    ]
    assert windows.columns == const(len(parts))
    for r in range(0, len(pixels), 7):
        for k in range(0, len(parts), 5):
            values = {row: const(r), column: const(k)}
            got = [
                simplify(substitute(e, values), Ranges())
                for e in (at.n, at.y, at.x, at.dy, at.dx, at.c, at.column_fits)
            ]
            numbers = [int(e.value) for e in got if isinstance(e, Const)]
            assert numbers == [*pixels[r], *parts[k], True]
