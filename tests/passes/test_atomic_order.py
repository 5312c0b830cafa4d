"""Atomics of different kinds on one element do not commute: statements keep their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import kernel_on

import tilecore
import tilecore.language as T

SIZE = 16
BACKENDS = ("cpu_llvm", "cuda_ampere", "cuda_hopper", "rocm_cdna3")


def mixing(memory: str, threads: int) -> Any:
    """Other lanes do the second and third atomic of an element."""

    @T.prim_func
    def main(x: T.Tensor((SIZE, SIZE), "int32"), out: T.Tensor((SIZE, SIZE), "int32")):
        with T.Kernel(1, threads=threads):
            own = T.alloc_shared((SIZE, SIZE), "int32")
            tile = T.alloc_fragment((SIZE, SIZE), "int32")
            T.copy(x, tile)
            T.clear(own)
            to = own if memory == "shared" else out
            for _ in T.serial(2):
                for i, j in T.Parallel(SIZE, SIZE):
                    T.atomic_max(to[j, i], tile[i, j])
                T.atomic_add(to, tile)
                for i, j in T.Parallel(SIZE, SIZE):
                    T.atomic_min(to[SIZE - 1 - i, j], tile[i, j] + 3)
            if memory == "shared":
                T.copy(own, out)

    return main


def expected(x: np.ndarray) -> np.ndarray:
    out = np.zeros_like(x)
    for _ in range(2):
        out = np.minimum(np.maximum(out, x.T) + x, x[::-1] + 3)
    return out


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("threads", [32, 128])
@pytest.mark.parametrize("memory", ["global", "shared"])
def test_a_maximum_sees_the_sums_before_it(memory: str, threads: int, backend: str) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (SIZE, SIZE)).astype(np.int32)
    out = np.zeros_like(x)
    kernel_on(backend, mixing(memory, threads))(x, out)
    np.testing.assert_array_equal(out, expected(x))


def test_sums_and_differences_need_no_barrier() -> None:
    @T.prim_func
    def main(x: T.Tensor((SIZE, SIZE), "int32"), out: T.Tensor((SIZE, SIZE), "int32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_fragment((SIZE, SIZE), "int32")
            T.copy(x, tile)
            for i, j in T.Parallel(SIZE, SIZE):
                T.atomic_add(out[j, i], tile[i, j])
            T.atomic_sub(out, tile)

    assert "tc::barrier" not in tilecore.lower(main, "cuda_ampere").source.text
