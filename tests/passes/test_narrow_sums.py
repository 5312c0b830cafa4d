"""Contractions that sum 16-bit floats: by an atom, or in float32, rounded once each."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilecore
import tilecore.language as T

K, TILE = 256, 64
KINDS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def product(kind: str, stages: int, part: bool, threads: int) -> Any:
    @T.prim_func
    def main(A: T.Tensor((64, K), kind), B: T.Tensor((K, 64), kind), C: T.Tensor((64, 64), kind)):
        with T.Kernel(1, threads=threads) as _:
            a = T.alloc_shared((64, TILE), kind)
            b = T.alloc_shared((TILE, 64), kind)
            c = T.alloc_fragment((64, 128 if part else 64), kind)
            T.fill(c, 1)
            for k in T.Pipelined(K // TILE, num_stages=stages):
                T.copy(A[0, k * TILE], a)
                T.copy(B[k * TILE, 0], b)
                T.gemm(a, b, c[:, 64:] if part else c)
            T.copy(c[:, 64:] if part else c, C)

    return main


@pytest.mark.parametrize("backend", ["cuda_ampere", "cuda_hopper", "rocm_cdna3"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("stages", "part", "threads"), [(0, False, 128), (2, True, 64)])
def test_sums_of_narrow_floats_use_matrix_units(
    stages: int, part: bool, threads: int, kind: str, backend: str
) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((64, K)).astype(KINDS[kind])
    b = rng.standard_normal((K, 64)).astype(KINDS[kind])
    c = np.zeros((64, 64), KINDS[kind])
    kernel = tilecore.compile(
        product(kind, stages, part, threads), backend=backend, device="emulator"
    )
    assert "mma." in kernel.ir("lane")
    kernel(a, b, c)
    wide = a.astype(np.float64) @ b.astype(np.float64) + 1
    largest = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)) + 1
    # One rounding a step of an atom (k = 8 or more), and one a tile, of sums below `largest`.
    rounding = float(ml_dtypes.finfo(KINDS[kind]).eps) / 2
    steps = K // 8 if kind == "float16" else K // TILE
    assert (np.abs(c.astype(np.float64) - wide) <= (steps + 2) * rounding * largest).all()
