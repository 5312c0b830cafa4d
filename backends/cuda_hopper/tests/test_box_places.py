"""Boxes that begin before a tensor they are stored to, or at an odd column: lanes move those.

On a device each of them was an illegal instruction, a part of the box inside or not.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore import driver
from tilecore.errors import EmulatorFault
from tilecore.hooks.records import AsyncCopyRequest, BulkCopyPlan
from tilecore_backend_cuda_hopper import copy
from tilecore_backend_cuda_hopper.store import plan_store

TILE, STEP, K = 128, 64, 256


def product(rows: int, guarded: bool = False) -> Any:
    """A B by tiles that count from the last row of A; the first one may begin before row 0."""

    @T.prim_func
    def program(
        A: T.Tensor((2, rows, K), "float16"),
        B: T.Tensor((K, 64), "float16"),
        C: T.Tensor((2, rows, 64), "float16"),
    ):
        with T.Kernel(T.ceildiv(rows, TILE), 2, threads=256) as (block, batch):
            a = T.alloc_shared((TILE, STEP), "float16")
            b = T.alloc_shared((STEP, 64), "float16")
            c = T.alloc_fragment((TILE, 64), "float32")
            first = rows - (block + 1) * TILE
            T.clear(c)
            for step in T.Pipelined(K // STEP, num_stages=2):
                T.copy(A[batch, first : first + TILE, step * STEP : (step + 1) * STEP], a)
                T.copy(B[step * STEP : (step + 1) * STEP, :], b)
                T.gemm(a, b, c)
            if guarded:
                if first >= 0:
                    T.copy(c, C[batch, first : first + TILE, :])
                else:
                    for i, j in T.Parallel(TILE, 64):
                        if first + i >= 0:
                            C[batch, first + i, j] = c[i, j]
            else:
                T.copy(c, C[batch, first : first + TILE, :])

    return program


def check(program: Any, rows: int) -> str:
    """Compare with NumPy; answers the text."""
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    rng = np.random.default_rng(rows)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, rows, K), (K, 64)))
    c = np.full((2, rows, 64), np.nan, np.float16)
    kernel(a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=2e-3, atol=4e-2)
    return kernel.source


@pytest.mark.parametrize("rows", [192, 200, 256])
def test_lanes_store_where_a_tile_begins_before_the_tensor(rows: int) -> None:
    text = check(product(rows), rows)
    assert "finish_stores(" in text
    assert ("store_global<2>(C" in text) == (rows % TILE > 0)


def test_a_condition_says_which_tiles_the_engine_may_store() -> None:
    text = check(product(200, guarded=True), 200)
    assert "finish_stores(" in text
    assert "store_global<2>(C" not in text


def careless(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend says of no box where it may begin."""

    def plan(request: AsyncCopyRequest) -> BulkCopyPlan | None:
        answer = plan_store(request)
        return answer and dataclasses.replace(answer, begins_at=0)

    def boxes(*args: Any) -> BulkCopyPlan | None:
        answer = copy_boxes(*args)
        return answer and dataclasses.replace(answer, begins_at=0)

    copy_boxes = copy._boxes
    monkeypatch.setattr(copy, "plan_store", plan)
    monkeypatch.setattr(copy, "_boxes", boxes)
    monkeypatch.setattr(driver, "_memory", {})
    monkeypatch.setenv("TILECORE_DISABLE_CACHE", "1")


def test_the_emulator_reports_a_store_that_begins_before_its_tensor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    careless(monkeypatch)
    with pytest.raises(EmulatorFault, match="begins before its tensor"):
        check(product(200), 200)


ROWS, COLUMNS, DEPTH, SIDE = 128, 128, 64, 64

SHIFTS = (
    (0, 0),
    (1, 0),
    (100, 0),
    (0, 8),
    (64, 64),
    (-40, 0),
    (127, 127),
    (63, 1),
    (0, -1),
    (3, -64),
)


def shifted(kind: str, dtype: str, row: int, column: int) -> Any:
    """A product whose tiles land `row` rows and `column` columns early, or are added there."""
    adds = dtype == "float32"

    @T.prim_func
    def main(
        A: T.Tensor((ROWS, DEPTH), "float16"),
        B: T.Tensor((DEPTH, COLUMNS), "float16"),
        Early: T.Tensor((1,), "int32"),
        C: T.Tensor((ROWS, COLUMNS), dtype),
    ):
        with T.Kernel(COLUMNS // SIDE, ROWS // SIDE, threads=128) as (bx, by):
            a = T.alloc_shared((SIDE, 32), "float16")
            b = T.alloc_shared((32, SIDE), "float16")
            c = T.alloc_fragment((SIDE, SIDE), "float32")
            T.clear(c)
            for k in T.Pipelined(DEPTH // 32, num_stages=2):
                T.copy(A[by * SIDE, k * 32], a)
                T.copy(B[k * 32, bx * SIDE], b)
                T.gemm(a, b, c)
            early = Early[0] if kind == "read" else row
            if adds:
                T.atomic_add(C[by * SIDE - early, bx * SIDE - column], c)
            else:
                T.copy(c, C[by * SIDE - early, bx * SIDE - column])

    return main


def arrays(dtype: str, row: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((ROWS, DEPTH), (DEPTH, COLUMNS)))
    return a, b, np.array([row], np.int32), np.full((ROWS, COLUMNS), 7, dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("kind", ["constant", "read"])
@pytest.mark.parametrize(("row", "column"), SHIFTS)
def test_parts_inside_are_stored(kind: str, dtype: str, row: int, column: int) -> None:
    program = shifted(kind, dtype, row, column)
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    a, b, early, c = arrays(dtype, row)
    whole = a.astype(np.float32) @ b.astype(np.float32)
    to, of = np.s_[max(-row, 0) : ROWS - row], np.s_[max(row, 0) : ROWS - max(-row, 0)]
    across = np.s_[max(-column, 0) : COLUMNS - column]
    of_columns = np.s_[max(column, 0) : COLUMNS - max(-column, 0)]
    wanted = c.copy()
    wanted[to, across] = whole[of, of_columns] + (7 if dtype == "float32" else 0)
    kernel(a, b, early, c)
    np.testing.assert_array_equal(c, wanted)
    assert "hopper::store_" in kernel.source


def test_the_emulator_reports_a_store_that_begins_at_an_odd_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    careless(monkeypatch)
    kernel = tilecore.compile(
        shifted("constant", "float16", 0, -1), backend="cuda_hopper", device="emulator"
    )
    with pytest.raises(EmulatorFault, match="no multiple of 16 bytes"):
        kernel(*arrays("float16", 0))


def loaded(row: int, column: int) -> Any:
    """A product of tiles that are read `row` rows and `column` columns early."""

    @T.prim_func
    def main(
        A: T.Tensor((ROWS, COLUMNS), "float16"),
        B: T.Tensor((DEPTH, COLUMNS), "float16"),
        C: T.Tensor((ROWS, COLUMNS), "float32"),
    ):
        with T.Kernel(COLUMNS // SIDE, ROWS // SIDE, threads=128) as (bx, by):
            a = T.alloc_shared((SIDE, 32), "float16")
            b = T.alloc_shared((32, SIDE), "float16")
            c = T.alloc_fragment((SIDE, SIDE), "float32")
            T.clear(c)
            for k in T.Pipelined(DEPTH // 32, num_stages=2):
                T.copy(A[by * SIDE - row, k * 32 - column], a)
                T.copy(B[k * 32, bx * SIDE], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * SIDE, bx * SIDE])

    return main


PLACES = ((0, 0), (1, 0), (0, 1), (0, -1), (5, 3), (-7, -9), (100, 63), (0, 8), (0, -8), (-64, 64))


@pytest.mark.parametrize(("row", "column"), PLACES)
def test_tiles_are_read_from_any_place(row: int, column: int) -> None:
    kernel = tilecore.compile(loaded(row, column), backend="cuda_hopper", device="emulator")
    rng = np.random.default_rng(0)
    shapes = (ROWS, COLUMNS), (DEPTH, COLUMNS)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in shapes)
    c = np.full((ROWS, COLUMNS), np.nan, np.float32)
    kernel(a, b, c)
    np.testing.assert_array_equal(c, wanted_product(a, b, row, column))
    assert ("bulk_load(a" in kernel.source) == (column % 8 == 0)


def wanted_product(a: np.ndarray, b: np.ndarray, row: int, column: int) -> np.ndarray:
    """The product of `loaded`: zeros where A is not."""
    around = np.pad(a.astype(np.float32), 128)
    moved = around[128 - row : 128 - row + ROWS, 128 - column : 128 - column + DEPTH]
    return moved @ b.astype(np.float32)


def test_the_emulator_reports_a_load_that_begins_at_an_odd_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    careless(monkeypatch)
    kernel = tilecore.compile(loaded(0, -1), backend="cuda_hopper", device="emulator")
    with pytest.raises(EmulatorFault, match="no multiple of 16 bytes"):
        kernel(
            *(np.zeros(s, t) for s, t in (((128, 128), "e"), ((64, 128), "e"), ((128, 128), "f")))
        )
