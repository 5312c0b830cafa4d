"""Sums carried by lanes: applied where it is the same, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.compiler import lower

ROWS, COLUMNS, STEPS = 32, 64, 3
MODULES = {
    "cuda_ampere": "tilecore_backend_cuda_ampere",
    "cuda_hopper": "tilecore_backend_cuda_hopper",
    "rocm_cdna3": "tilecore_backend_rocm",
}
KINDS = ("scaled", "plain", "starts at one", "read in the loop", "part is read after")


def program(kind: str) -> object:
    """Row sums over steps of one tile, in five spellings."""

    @T.prim_func
    def sums(
        X: T.Tensor((STEPS, ROWS, COLUMNS), "float32"),
        Out: T.Tensor((ROWS,), "float32"),
        Part: T.Tensor((ROWS,), "float32"),
    ):
        with T.Kernel(1, threads=64):
            x = T.alloc_fragment((ROWS, COLUMNS), "float32")
            part = T.alloc_fragment((ROWS,), "float32")
            total = T.alloc_fragment((ROWS,), "float32")
            seen = T.alloc_fragment((ROWS,), "float32")
            T.fill(total, 1.0 if kind == "starts at one" else 0.0)
            T.clear(seen)
            for step in T.serial(STEPS):
                T.copy(X[step, 0:ROWS, 0:COLUMNS], x)
                T.reduce_sum(x, part, dim=1)
                for i in T.Parallel(ROWS):
                    if kind == "plain":
                        total[i] = total[i] + part[i]
                    else:
                        total[i] = total[i] * 0.5 + part[i]
                if kind == "read in the loop":
                    for i in T.Parallel(ROWS):
                        seen[i] = seen[i] + total[i]
            if kind == "part is read after":
                for i in T.Parallel(ROWS):
                    seen[i] = part[i]
            T.copy(total, Out)
            T.copy(seen, Part)

    return sums


def want(kind: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total = np.full(ROWS, 1.0 if kind == "starts at one" else 0.0)
    seen = np.zeros(ROWS)
    for step in range(STEPS):
        total = total * (1.0 if kind == "plain" else 0.5) + x[step].astype(np.float64).sum(1)
        if kind == "read in the loop":
            seen += total
    if kind == "part is read after":
        seen = x[-1].astype(np.float64).sum(1)
    return total, seen


@pytest.mark.parametrize("backend", MODULES)
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_the_same(kind: str, backend: str) -> None:
    pytest.importorskip(MODULES[backend])
    kernel = tilecore.compile(program(kind), backend=backend, device="emulator")
    x = np.random.default_rng(0).standard_normal((STEPS, ROWS, COLUMNS)).astype(np.float32)
    out, part = np.zeros(ROWS, np.float32), np.zeros(ROWS, np.float32)
    kernel(x, out, part)
    total, seen = want(kind, x)
    np.testing.assert_allclose(out, total, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(part, seen, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_only_sums_that_are_added_up_are_deferred(kind: str) -> None:
    pytest.importorskip(MODULES["cuda_ampere"])
    text = lower(program(kind), backend="cuda_ampere").ir("scheduled")
    assert ("fragment.sum_lanes" in text) == (kind in ("scaled", "plain"))
