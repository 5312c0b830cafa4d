"""Pipelined loops that read what an earlier round brought: such a tile has one place.

A copy may run ahead only where the loop reads nothing of its tile but what it has just brought.
Every form is run at several depths, with matrix units and without, on every backend.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from agreement import agree, each_backend, whole_numbers
from compiling import EMULATED

import tilecore.language as T
from tilecore.compiler import lower

FORMS = (
    "both late", "one late", "changed after it is read", "half a round", "slots of the author",
    "elements of the author's slots", "a row of an earlier round",
)  # fmt: skip
K = 128


def carried(form: str, stages: int, threads: int, dtype: str, tile: tuple[int, int, int]) -> Any:
    """C = sums of products of tiles, some of them an earlier round's."""
    m, n, k = tile
    rounds = K // k

    @T.prim_func
    def main(
        A: T.Tensor((m, K), dtype), B: T.Tensor((K, n), dtype), C: T.Tensor((m, n), "float32")
    ):
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared((m, k), dtype)
            b = T.alloc_shared((k, n), dtype)
            own = T.alloc_shared((2, m, k), dtype)
            c = T.alloc_fragment((m, n), "float32")
            T.clear(c)
            for step in T.Pipelined(rounds + 1, num_stages=stages):
                if form == "one late":
                    T.copy(A[0, (step - 1) * k], a)
                elif form == "half a round":
                    at = step % 2 * (m // 2)
                    T.copy(A[0 : m // 2, step * k : step * k + k], a[at : at + m // 2, :])
                    T.copy(B[step * k, 0], b)
                elif form in FORMS[4:6]:
                    T.copy(A[0, step * k], own[step % 2, :, :])
                    T.copy(B[step * k, 0], b)
                elif form == "a row of an earlier round":
                    T.copy(A[0:1, step * k : step * k + k], a[step % m : step % m + 1, :])
                if step > 0:
                    if form == "slots of the author":
                        T.gemm(own[(step + 1) % 2, :, :], b, c)
                    elif form == "elements of the author's slots":
                        for i, j in T.Parallel(m, k):
                            c[i, j] = c[i, j] * 2 + own[(step + 1) % 2, i, j] - own[step % 2, i, j]
                    elif form == "a row of an earlier round":
                        for i, j in T.Parallel(m, k):
                            c[i, j] = c[i, j] + a[(step - 1) % m, j]
                    else:
                        T.gemm(a, b, c)
                if form in ("both late", "changed after it is read"):
                    T.copy(A[0, step * k], a)
                if form in ("both late", "one late", "changed after it is read"):
                    T.copy(B[step * k, 0], b)
                if form == "changed after it is read":
                    for i, j in T.Parallel(m, k):
                        a[i, j] = a[i, j] + 1
            T.copy(c, C)

    return main


def check(form: str, backend: str, dtype: str, tile: tuple[int, int, int]) -> None:
    m, n, _ = tile
    a = whole_numbers(m, K, dtype=dtype)
    b = whole_numbers(K, n, dtype=dtype, seed=1)
    for stages, threads in ((2, 128), (3, 256)):
        program = carried(form, stages, threads, dtype, tile)
        agree(backend, program, a, b, np.zeros((m, n), np.float32))


@each_backend
@pytest.mark.parametrize("form", FORMS)
def test_a_tile_of_an_earlier_round_is_still_there(form: str, backend: str) -> None:
    check(form, backend, "float16", (64, 64, 32))


@pytest.mark.slow
@each_backend
@pytest.mark.parametrize("form", FORMS)
def test_in_tiles_without_matrix_units(form: str, backend: str) -> None:
    check(form, backend, "float32", (12, 48, 16))


@pytest.mark.parametrize("backend", EMULATED)
def test_slots_that_an_author_reads_as_they_came_are_no_hindrance(backend: str) -> None:
    """The copy of A into a slot of the author's runs ahead where that slot alone is read."""

    @T.prim_func
    def main(
        A: T.Tensor((64, K), "float16"), B: T.Tensor((K, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=128):
            own = T.alloc_shared((2, 64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for step in T.Pipelined(K // 32, num_stages=2):
                T.copy(A[0, step * 32], own[step % 2, :, :])
                T.copy(B[step * 32, 0], b)
                T.gemm(own[step % 2, :, :], b, c)
            T.copy(c, C)

    a, b = whole_numbers(64, K, dtype="float16"), whole_numbers(K, 64, dtype="float16", seed=1)
    agree(backend, main, a, b, np.zeros((64, 64), np.float32))
    if backend == "cuda_ampere":
        assert re.search(r"shared own: float16\[2, 2, 64, 32\]", lower(main, backend).ir())
