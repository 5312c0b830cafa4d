"""Conditions of runtime loops may ask any memory: fragments, shared memory, tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import kernel_on

import tilecore.language as T

ROWS = 40
BACKENDS = ("cpu_llvm", "cuda_ampere", "cuda_hopper", "rocm_cdna3")


def halving(memory: str, threads: int) -> Any:
    """Halves all rows until the largest is small; counts the rounds."""

    @T.prim_func
    def main(x: T.Tensor((2, ROWS), "int32"), out: T.Tensor((2, ROWS), "int32")):
        with T.Kernel(2, threads=threads) as b:
            tile = T.alloc_fragment((ROWS,), "int32")
            most = T.alloc_fragment((1,), "int32")
            asked = T.alloc_shared((1,), "int32") if memory == "shared" else most
            rounds = T.alloc_var("int32", init=0)
            T.copy(x[b, :], tile)
            T.reduce_max(tile, most, dim=0)
            T.copy(most, asked)
            while asked[0] > 3 and rounds < 20:
                rounds += 1
                if rounds == 2:
                    continue
                for i in T.Parallel(ROWS):
                    tile[i] = tile[i] // 2
                T.reduce_max(tile, most, dim=0)
                T.copy(most, asked)
                if rounds > 5:
                    break
            for i in T.Parallel(ROWS):
                out[b, i] = tile[i] * 100 + rounds

    return main


def expected(x: np.ndarray) -> np.ndarray:
    result = []
    for row in x.copy():
        rounds = 0
        while row.max() > 3 and rounds < 20:
            rounds += 1
            if rounds == 2:
                continue
            row = row // 2
            if rounds > 5:
                break
        result.append(row * 100 + rounds)
    return np.array(result)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("threads", [32, 96])
@pytest.mark.parametrize("memory", ["fragment", "shared"])
def test_a_loop_asks_a_tile_before_each_round(memory: str, threads: int, backend: str) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (2, ROWS)).astype(np.int32)
    x[0, 3], x[1, 5] = 50, 5000
    out = np.zeros_like(x)
    kernel_on(backend, halving(memory, threads))(x, out)
    np.testing.assert_array_equal(out, expected(x))
