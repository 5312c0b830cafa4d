"""Views of a lane's own array are that lane's own."""

from __future__ import annotations

import numpy as np
import pytest
from compiling import kernel_on
from language_support import BACKENDS

import tilecore.language as T
from tilecore.errors import LanguageError

LANES = 64


@T.prim_func
def main(
    x: T.Tensor((LANES,), "int32"),
    out: T.Tensor((LANES,), "int32"),
    low: T.Tensor((LANES,), "int16"),
):
    with T.Kernel(1, threads=LANES):
        lane = T.get_thread_binding(0)
        own = T.alloc_local((4,), "int32")
        square = T.reshape(own, (2, 2))
        T.fill(own, lane)
        for i, j in T.grid(2, 2):
            square[i, j] = square[i, j] + x[(lane + i + j) % LANES] * (i * 2 + j + 1)
        halves = T.view(own, (8,), dtype="int16")
        meet = T.alloc_shared((LANES,), "int32")
        meet[lane] = own[1] + own[2]
        T.sync_threads()
        out[lane] = meet[LANES - 1 - lane] + own[3]
        if lane % 2 == 0:
            low[lane] = halves[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_of_own_arrays(backend: str) -> None:
    x = np.random.default_rng(0).integers(-9, 9, LANES).astype(np.int32)
    lane = np.arange(LANES)
    own = [lane + np.roll(x, -(i + j)) * (i * 2 + j + 1) for i in (0, 1) for j in (0, 1)]
    out, low = np.zeros(LANES, np.int32), np.zeros(LANES, np.int16)
    kernel_on(backend, main)(x, out, low)
    np.testing.assert_array_equal(out, (own[1] + own[2])[::-1] + own[3])
    np.testing.assert_array_equal(low, np.where(lane % 2 == 0, own[0], 0))


def test_what_lanes_have_of_their_own_has_no_meaning_in_a_nest() -> None:
    """Which lane runs an iteration is not defined: refused on every backend, at its line."""

    def of_the_index(x: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            lane = T.get_thread_binding(0)
            for i in T.Parallel(64):
                x[i] = lane

    def of_a_variable(x: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            v = T.alloc_var("int32", init=5)
            if T.get_thread_binding(0) == 0:
                v = v + 1
            for i in T.Parallel(64):
                x[i] = v

    def of_an_array(x: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            own = T.alloc_local((2,), "int32")
            own[0] = T.get_thread_binding(0)
            for i in T.Parallel(64):
                own[1] = i
                x[i] = own[1]

    for function, name in ((of_the_index, "lane"), (of_a_variable, "v"), (of_an_array, "own")):
        program = T.prim_func(function)
        for backend in BACKENDS:
            with pytest.raises(LanguageError, match=f"depends on {name}, which differs") as caught:
                kernel_on(backend, program)
            assert caught.value.loc is not None and caught.value.loc.file == __file__
