"""Grids: empty ones launch nothing, those over the target's limits are refused with their sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilecore
import tilecore.language as T
from tilecore.errors import ResourceError
from tilecore.hooks.records import KernelSource
from tilecore.runtime.grids import launch_grid
from tilecore.target import Target

LIMITS = (1000, 200, 30)
TARGET = Target("one", "two", grid_limits=LIMITS)
KERNEL = KernelSource("work", (), (), 32)


@given(st.lists(st.integers(-3, 1500), min_size=1, max_size=3))
def test_every_grid_is_whole_empty_or_refused(extents: list[int]) -> None:
    whole = [*extents, 1, 1][:3]
    over = [i for i in range(3) if whole[i] > LIMITS[i]]
    if min(whole) <= 0:
        assert launch_grid(KERNEL, tuple(extents), TARGET) is None
    elif over:
        with pytest.raises(ResourceError) as caught:
            launch_grid(KERNEL, tuple(extents), TARGET)
        text = str(caught.value)
        assert f"kernel work has too many blocks along {'xyz'[over[0]]}" in text
        assert f"at most {LIMITS[over[0]]}, got {whole[over[0]]}" in text
    else:
        assert launch_grid(KERNEL, tuple(extents), TARGET) == tuple(whole)


@pytest.mark.parametrize("backend", ["cuda_ampere", "cuda_hopper", "rocm_cdna3"])
def test_a_grid_is_the_same_under_emulation(backend: str) -> None:
    n = T.dynamic("n")

    @T.prim_func
    def add_one(X: T.Tensor((n,), "int8"), Y: T.Tensor((n,), "int8")):
        with T.Kernel(1, n, threads=32) as (_, by):
            Y[by] = X[by] + T.cast(1, "int8")

    kernel = tilecore.compile(add_one, backend=backend, device="emulator")
    for size in (0, 3):
        x, y = np.arange(size, dtype=np.int8), np.zeros(size, np.int8)
        kernel(x, y)
        assert np.array_equal(y, x + 1)
    many = np.zeros(65536, np.int8)
    with pytest.raises(ResourceError, match="kernel add_one has too many blocks along y"):
        kernel(many, many.copy())
