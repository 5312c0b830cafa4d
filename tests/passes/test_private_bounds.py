"""A private array is never left: what lies outside is not written, and read as zero."""

from __future__ import annotations

import numpy as np
import pytest
from compiling import kernel_on

import tilecore.language as T

LANES, SIZE = 64, 4


@T.prim_func
def permuted(places: T.Tensor((LANES, SIZE), "int32"), out: T.Tensor((LANES, SIZE), "int32")):
    with T.Kernel(1, threads=LANES) as _:
        lane = T.get_thread_binding(0)
        own = T.alloc_local((SIZE,), "int32")
        for i in T.serial(SIZE):
            own[i] = 7
        for i in T.serial(SIZE):
            own[places[lane, i]] = i
        for i in T.serial(SIZE):
            out[lane, i] = own[places[lane, SIZE - 1 - i]]


@pytest.mark.parametrize("backend", ["cpu_llvm", "cuda_ampere", "cuda_hopper", "rocm_cdna3"])
def test_places_that_only_the_run_tells_are_checked(backend: str) -> None:
    places = np.random.default_rng(0).integers(-3, SIZE + 4, (LANES, SIZE)).astype(np.int32)
    expected = np.zeros_like(places)
    for lane, row in enumerate(places):
        own = [7] * SIZE
        for i, place in enumerate(row):
            if 0 <= place < SIZE:
                own[place] = i
        expected[lane] = [own[p] if 0 <= p < SIZE else 0 for p in row[::-1]]
    out = np.zeros_like(places)
    kernel_on(backend, permuted)(places, out)
    np.testing.assert_array_equal(out, expected)
