"""Stores that begin before their tensor: lanes make them, since the copy engine cannot.

On a device each of them was an illegal instruction, a part of the box inside or not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore import driver
from tilecore.errors import EmulatorFault
from tilecore.passes.roles import bulk_stores

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
def test_lanes_store_where_a_tile_may_begin_before_the_tensor(rows: int) -> None:
    assert ("finish_stores(" in check(product(rows), rows)) == (rows % TILE == 0)


def test_a_condition_says_which_tiles_the_engine_may_store() -> None:
    assert "finish_stores(" in check(product(200, guarded=True), 200)


def test_the_emulator_reports_a_store_that_begins_before_its_tensor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk_stores, "_may_begin_before", lambda region, ranges: False)
    monkeypatch.setattr(driver, "_memory", {})
    monkeypatch.setenv("TILECORE_DISABLE_CACHE", "1")
    with pytest.raises(EmulatorFault, match="begins before its tensor"):
        check(product(200), 200)
