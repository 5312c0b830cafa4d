"""The old value of an atomic operation: each iteration gets its own, whoever runs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import kernel_on

import tilecore.language as T


def counting(n: int, threads: int, keep: str) -> Any:
    @T.prim_func
    def main(A: T.Tensor((n,), "int32"), out: T.Tensor((n,), "int32")):
        with T.Kernel(1, threads=threads) as _:
            kept = (T.alloc_fragment if keep == "fragment" else T.alloc_shared)((n,), "int32")
            for i in T.Parallel(n):
                old = T.atomic_add(A[i], 1, return_prev=True)
                kept[i] = old * 2
            T.copy(kept, out)

    return main


@pytest.mark.parametrize("keep", ["fragment", "shared"])
@pytest.mark.parametrize(("n", "threads"), [(32, 64), (48, 64), (64, 96), (64, 64), (200, 64)])
def test_old_values_reach_their_iterations(n: int, threads: int, keep: str) -> None:
    program = counting(n, threads, keep)
    for backend in ("cpu_llvm", "cuda_ampere", "cuda_hopper", "rocm_cdna3"):
        a, o = np.arange(n, dtype=np.int32), np.zeros(n, np.int32)
        kernel_on(backend, program)(a, o)
        assert np.array_equal(a, np.arange(n) + 1), backend  # each was counted once
        assert np.array_equal(o, 2 * np.arange(n)), backend
