"""The old value of an atomic operation: each iteration gets its own, whoever runs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import BACKENDS, kernel_on
from devices import in_any_order

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


ROUNDS, LANES, COUNTERS = 3, 96, 5


def tickets(rounds: str, memory: str, threads: int) -> Any:
    """Each round every iteration takes a number from one of a few counters, between two others:
    a sum that lifts the counters, and one number that all of the block want."""

    @T.prim_func
    def main(
        x: T.Tensor((ROUNDS, LANES), "int32"),
        count: T.Tensor((COUNTERS,), "int32"),
        taken: T.Tensor((ROUNDS, LANES), "int32"),
        ahead: T.Tensor((ROUNDS, LANES), "int32"),
    ):
        with T.Kernel(1, threads=threads):
            own = T.alloc_shared((COUNTERS,), "int32")
            here = T.alloc_shared((LANES,), "int32")
            round = T.alloc_var("int32")
            T.clear(own)
            to = own if memory == "shared" else count
            if rounds == "while":
                while round < ROUNDS:
                    one_round(round, x, here, to, taken, ahead)
                    round = round + 1
            elif rounds == "pipelined":
                for k in T.Pipelined(ROUNDS, num_stages=2):
                    one_round(k, x, here, to, taken, ahead)
            else:
                for k in T.unroll(ROUNDS):
                    one_round(k, x, here, to, taken, ahead)
            if memory == "shared":
                T.copy(own, count)

    return main


@T.macro
def one_round(k, x, here, to, taken, ahead):
    T.copy(x[k, :], here)
    for i in T.Parallel(LANES):
        taken[k, i] = T.atomic_add(to[here[i]], 1, return_prev=True)
    for i in T.Parallel(COUNTERS):
        T.atomic_add(to[COUNTERS - 1 - i], 10)
    first = T.atomic_add(to[0], 1, return_prev=True)
    for i in T.Parallel(LANES):
        ahead[k, i] = first


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
@pytest.mark.parametrize("memory", ["shared", "global"])
@pytest.mark.parametrize("rounds", ["unrolled", "while", "pipelined"])
def test_numbers_are_taken_after_those_of_earlier_statements(
    rounds: str, memory: str, backend: str
) -> None:
    x = np.random.default_rng(2).integers(0, COUNTERS, (ROUNDS, LANES)).astype(np.int32)
    count = np.zeros(COUNTERS, np.int32)
    taken, ahead = np.zeros_like(x), np.zeros_like(x)
    kernel = in_any_order(kernel_on(backend, tickets(rounds, memory, 96)))
    kernel(x, count, taken, ahead)
    now = np.zeros(COUNTERS, np.int64)
    for k in range(ROUNDS):
        for counter in range(COUNTERS):
            found = np.sort(taken[k][x[k] == counter])  # in whatever order lanes come
            np.testing.assert_array_equal(found, now[counter] + np.arange(found.size))
            now[counter] += found.size + 10
        assert (ahead[k] == now[0]).all()
        now[0] += 1
    np.testing.assert_array_equal(count, now)
