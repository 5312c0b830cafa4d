"""Reductions and scans of T.alloc_local: each lane has all of its own array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import kernel_on

import tilecore.language as T

ROWS, COLUMNS = 3, 7
BACKENDS = ("cpu_llvm", "cuda_ampere", "cuda_hopper", "rocm_cdna3")
OPS: dict[str, Any] = {
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "abssum": lambda a, axis: np.sum(np.abs(a), axis=axis),
    "absmax": lambda a, axis: np.max(np.abs(a), axis=axis),
    "bitand": np.bitwise_and.reduce,
    "bitor": np.bitwise_or.reduce,
    "bitxor": np.bitwise_xor.reduce,
}


def reducing(op: str, source: str, result: str, dim: int, clear: bool, threads: int) -> Any:
    kind = "int32" if op.startswith("bit") else "float32"
    size = (ROWS, COLUMNS)[1 - dim]
    made = {"local": T.alloc_local, "shared": T.alloc_shared, "fragment": T.alloc_fragment}

    @T.prim_func
    def main(A: T.Tensor((ROWS, COLUMNS), kind), B: T.Tensor((size,), kind)):
        with T.Kernel(1, threads=threads) as _:
            src = made[source]((ROWS, COLUMNS), kind)
            dst = made[result]((size,), kind)
            T.copy(A, src)
            T.fill(dst, 2)
            if op == "abssum":
                T.reduce_abssum(src, dst, dim=dim)
            else:
                T.reduce(src, dst, op, dim, clear)
            for i in T.serial(size):
                B[i] = dst[i]

    return main


def expected(op: str, a: np.ndarray, dim: int, clear: bool) -> np.ndarray:
    result = OPS[op](a, axis=dim)
    if clear or op == "abssum":
        return result
    both = np.stack([result, np.full_like(result, 2)])
    return OPS[{"absmax": "max"}.get(op, op)](both, axis=0)


@pytest.mark.parametrize("threads", [1, 64])
@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize("op", OPS)
def test_a_private_array_is_reduced_by_each_lane(op: str, clear: bool, threads: int) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    if op.startswith("bit"):
        a = rng.integers(-50, 50, (ROWS, COLUMNS)).astype(np.int32)
    for dim in (0, 1):
        program = reducing(op, "local", "local", dim, clear, threads)
        for backend in ("reference", "cpu_llvm", "cuda_hopper"):
            b = np.zeros((ROWS, COLUMNS)[1 - dim], a.dtype)
            kernel_on(backend, program)(a, b)
            np.testing.assert_allclose(b, expected(op, a, dim, clear), rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize(
    ("source", "result"),
    [("local", "local"), ("shared", "local"), ("fragment", "local"), ("local", "shared")],
)
def test_private_and_shared_tiles_mix(source: str, result: str, clear: bool, backend: str) -> None:
    a = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    b = np.zeros(ROWS, np.float32)
    kernel_on(backend, reducing("max", source, result, 1, clear, 64))(a, b)
    np.testing.assert_array_equal(b, expected("max", a, 1, clear))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("op", "nothing"), [("max", -np.inf), ("min", np.inf), ("absmax", 0)])
def test_nans_alone_give_what_nothing_gives(op: str, nothing: float, backend: str) -> None:
    a = np.full((ROWS, COLUMNS), np.nan, np.float32)
    for memory in ("local", "fragment"):
        b = np.ones(ROWS, np.float32)
        kernel_on(backend, reducing(op, memory, memory, 1, True, 64))(a, b)
        np.testing.assert_array_equal(b, np.full(ROWS, nothing, np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_private_array_is_scanned_by_each_lane(reverse: bool, backend: str) -> None:
    """Each lane has values of its own, too."""

    @T.prim_func
    def main(A: T.Tensor((64, 5), "float32"), B: T.Tensor((64, 5), "float32")):
        with T.Kernel(1, threads=64) as _:
            lane = T.get_thread_binding(0)
            own = T.alloc_local((5,), "float32")
            total = T.alloc_local((1,), "float32")
            for i in T.serial(5):
                own[i] = A[lane, i]
            T.reduce_max(own, total, dim=0)
            T.cumsum(own, dim=0, reverse=reverse)
            for i in T.serial(5):
                B[lane, i] = own[i] + total[0]

    a = np.random.default_rng(0).standard_normal((64, 5)).astype(np.float32)
    b = np.zeros_like(a)
    kernel_on(backend, main)(a, b)
    scanned = np.cumsum(a[:, ::-1], axis=1)[:, ::-1] if reverse else np.cumsum(a, axis=1)
    np.testing.assert_allclose(b, scanned + a.max(axis=1, keepdims=True), rtol=1e-5, atol=1e-6)
