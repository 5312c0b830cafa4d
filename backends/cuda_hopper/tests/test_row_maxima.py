"""Maxima of rows by bit patterns: crossing lanes first, tested afterwards, equal to NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T

ROWS = 64


def row_maxima(columns: int) -> Any:
    """The largest sum of each row of Q K^T; a lane holds two rows' pairs of every 8 columns."""

    @T.prim_func
    def program(
        Q: T.Tensor((ROWS, 64), "float16"),
        K: T.Tensor((columns, 64), "float16"),
        Out: T.Tensor((ROWS,), "float32"),
    ):
        with T.Kernel(1, threads=128) as _:
            q = T.alloc_shared((ROWS, 64), "float16")
            k = T.alloc_shared((columns, 64), "float16")
            scores = T.alloc_fragment((ROWS, columns), "float32")
            peak = T.alloc_fragment((ROWS,), "float32")
            T.copy(Q, q)
            T.copy(K, k)
            T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
            T.reduce_max(scores, peak, dim=1)
            T.copy(peak, Out)

    return program


def keys_with(columns: int, sign: str) -> np.ndarray:
    """Keys whose products with queries of ones have the sign that is asked for."""
    keys = -np.abs(np.random.default_rng(columns).standard_normal((columns, 64)))
    if sign == "one is positive":  # so that only one of the four lanes of a row has such a score
        keys[columns // 2 + 1] *= -1
    elif sign == "one is zero":
        keys[columns // 2 + 1] = 0
    elif sign != "all negative":
        keys = np.abs(keys)
    return keys.astype(np.float16)


@pytest.mark.parametrize("columns", [32, 40, 48, 72, 128])
@pytest.mark.parametrize("sign", ["all negative", "one is positive", "one is zero", "all positive"])
def test_maxima_of_any_sign(columns: int, sign: str) -> None:
    program = row_maxima(columns)
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    assert "hopper::max_bits(" in kernel.source
    q = np.ones((ROWS, 64), np.float16)
    q[1::3] *= np.float16(0.5)
    keys, got = keys_with(columns, sign), np.full(ROWS, np.nan, np.float32)
    kernel(q, keys, got)
    want = (q.astype(np.float64) @ keys.astype(np.float64).T).max(axis=1)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
