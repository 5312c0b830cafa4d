"""Atomics on one element that do not commute, by different lanes: statements keep their order."""

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


STEPS = {
    "add": lambda old, new: old + new, "max": np.maximum, "xor": np.bitwise_xor,
    "exchange": lambda old, new: new, "store": lambda old, new: new, "load": lambda old, new: old,
}  # fmt: skip
AFTER = (
    ("add", "add", True), ("xor", "xor", True), ("max", "exchange", True), ("add", "load", True),
    ("store", "load", True), ("exchange", "exchange", False), ("store", "store", False),
    ("exchange", "add", False),
)  # fmt: skip
"""(first, second, whether the second tells what it found)"""


def in_turn(first: str, second: str, tells: bool, memory: str, threads: int) -> Any:
    """Two statements on each element, by lanes far apart, in three rounds."""
    one, two = getattr(T, f"atomic_{first}"), getattr(T, f"atomic_{second}")

    @T.prim_func
    def main(
        x: T.Tensor((3, 96), "int32"),
        out: T.Tensor((96,), "int32"),
        old: T.Tensor((3, 96), "int32"),
    ):
        with T.Kernel(1, threads=threads):
            own = T.alloc_shared((96,), "int32")
            T.clear(own)
            to = own if memory == "shared" else out
            for k in T.serial(3):
                for i in T.Parallel(96):
                    one(to[i], x[k, i])
                for i in T.Parallel(96):
                    if second == "load":
                        old[k, i] = two(to[95 - i])
                    elif tells:
                        old[k, i] = two(to[95 - i], x[k, i], return_prev=True)
                    else:
                        two(to[95 - i], x[k, i])
            if memory == "shared":
                T.copy(own, out)

    return main


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("memory", ["global", "shared"])
@pytest.mark.parametrize(("first", "second", "tells"), AFTER)
def test_what_is_found_and_what_stays_keeps_its_turn(
    first: str, second: str, tells: bool, memory: str, backend: str
) -> None:
    x = np.random.default_rng(0).integers(1, 99, (3, 96)).astype(np.int32)
    out, old = np.zeros(96, np.int32), np.zeros((3, 96), np.int32)
    kernel_on(backend, in_turn(first, second, tells, memory, 96))(x, out, old)
    value, found = np.zeros(96, np.int32), np.zeros((3, 96), np.int32)
    for k in range(3):
        value = STEPS[first](value, x[k])
        if tells:
            found[k] = value[::-1]
        value = STEPS[second](value, x[k, ::-1])
    np.testing.assert_array_equal(out, value)
    np.testing.assert_array_equal(old, found)
