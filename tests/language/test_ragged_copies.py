"""Copies between tiles and slices whose length the call tells: the same on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import BACKENDS, kernel_on
from devices import needs_emulator

import tilecore.language as T
from tilecore.errors import DeviceAssertError, LanguageError

EVERYWHERE = ["reference", *BACKENDS]


def moved(where: str, threads: int = 64) -> Any:
    """Rows `first` to `last` of x become the first rows of y, and the last columns of z."""
    alloc = T.alloc_shared if where == "shared" else T.alloc_fragment
    n = T.dynamic("n")

    @T.prim_func
    def main(
        x: T.Tensor((n, 24), "float16"),
        y: T.Tensor((16, 24), "float32"),
        z: T.Tensor((24, n), "float32"),
        first: T.int32,
        last: T.int32,
    ):
        with T.Kernel(1, threads=threads):
            tile = alloc((16, 24), "float32")
            turned = alloc((24, 16), "float32")
            T.copy(x[first:last, :], tile)
            T.copy(tile, y)
            for i, j in T.Parallel(24, 16):
                turned[i, j] = tile[j, i]
            T.copy(turned, z[:, first:last])

    return main


@pytest.mark.parametrize("where", ["shared", "fragment"])
@pytest.mark.parametrize("backend", EVERYWHERE)
def test_what_lies_behind_a_slice_is_zero_and_stays(backend: str, where: str) -> None:
    x = np.arange(40 * 24, dtype=np.float16).reshape(40, 24)
    kernel = kernel_on(backend, moved(where))
    for first, last in ((3, 10), (0, 16), (5, 5), (24, 40), (39, 40), (7, 6)):
        y, z = np.ones((16, 24), np.float32), np.ones((24, 40), np.float32)
        kernel(x, y, z, first, last)
        size = max(last - first, 0)
        expected = np.zeros_like(y)
        expected[:size] = x[first:last]
        np.testing.assert_array_equal(y, expected)
        beyond = np.ones_like(z)
        beyond[:, first : first + size] = x[first:last].T
        np.testing.assert_array_equal(z, beyond)


@pytest.mark.parametrize("backend", EVERYWHERE)
def test_a_slice_longer_than_its_tile_is_no_shorter_one(backend: str) -> None:
    needs_emulator(backend)
    x = np.zeros((40, 24), np.float16)
    y, z = np.ones((16, 24), np.float32), np.ones((24, 40), np.float32)
    with pytest.raises(Exception, match="longer than its tile") as caught:
        kernel_on(backend, moved("shared"))(x, y, z, 2, 19)
    if backend in ("reference", "cpu_llvm"):
        assert caught.type is DeviceAssertError


def test_constant_extents_stay_equal() -> None:
    with pytest.raises(LanguageError, match=r"shapes differ in T\.copy"):

        @T.prim_func
        def main(x: T.Tensor((8, 8), "float32"), y: T.Tensor((8, 8), "float32")):
            with T.Kernel(1):
                T.copy(x[:, :2], y[:, :3])


def test_arrays_of_a_lane_take_constant_parts() -> None:
    n = T.dynamic("n")
    with pytest.raises(LanguageError, match=r"shapes differ in T\.copy"):

        @T.prim_func
        def main(x: T.Tensor((n,), "float32")):
            with T.Kernel(1):
                own = T.alloc_local((4,), "float32")
                T.copy(x[0:n], own)
