"""Shared rows of every length: the product is right, and no access has a bank conflict.

Rows that are no power of two are swizzled by the number of their line; both operands are read by
matrix loads and written by copies here, in pipelines whose stages lie behind each other.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilecore
import tilecore.language as T

LENGTHS = (48, 80, 96, 112, 144, 160, 176, 208, 224, 240)


def product(k: int, columns: int, turned: bool):
    steps = 2
    shape_b, tile_b = ((columns, steps * k), (columns, k)) if turned else (
        (steps * k, columns), (k, columns),
    )  # fmt: skip

    @T.prim_func
    def product(
        A: T.Tensor((32, steps * k), "float16"),
        B: T.Tensor(shape_b, "float16"),
        C: T.Tensor((32, columns), "float32"),
    ):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((32, k), "float16")
            b = T.alloc_shared(tile_b, "float16")
            c = T.alloc_fragment((32, columns), "float32")
            T.clear(c)
            for step in T.Pipelined(steps, num_stages=2):
                T.copy(A[0, step * k], a)
                if turned:
                    T.copy(B[0, step * k], b)
                else:
                    T.copy(B[step * k, 0], b)
                T.gemm(a, b, c, transpose_B=turned)
            T.copy(c, C)

    return product


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "length",
    [n if n in (48, 96, 176) else pytest.param(n, marks=pytest.mark.slow) for n in LENGTHS],
)
def test_rows_of_every_length(length: int, turned: bool) -> None:
    pytest.importorskip("tilecore_backend_cuda_ampere")
    # The reduced axis has the length where B is turned, else B's rows have it.
    k, columns = (length, 32) if turned else (32, length)
    kernel = tilecore.compile(product(k, columns, turned), "cuda_ampere", device="emulator")
    rng = np.random.default_rng(length)
    a = rng.integers(-3, 4, (32, 2 * k)).astype(np.float16)
    b = rng.integers(-3, 4, (2 * k, columns)).astype(np.float16)
    c = np.zeros((32, columns), np.float32)
    kernel(a, np.ascontiguousarray(b.T) if turned else b, c)
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
    accesses = [x for report in kernel.caller.launcher.reports for x in report.shared_accesses]
    assert accesses
    assert [x for x in accesses if x.wavefronts != x.ideal_wavefronts] == []
