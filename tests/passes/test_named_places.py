"""Places that a nest names before it uses them: a looked-up row, a counter, a value read back.

Vector accesses stand outside the loop over their elements, so that what their place is computed
from must be known there. The result is the reference's, for every number of threads and backend.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T

ROWS, COLUMNS, SOURCE = 32, 64, 96
HALF, INT = "float16", "int32"
BACKENDS = ("cuda_ampere", "cuda_hopper", "rocm_cdna3")


def looked_up_row(kv: Any, KV: Any, rows: Any, columns: Any) -> None:
    for b, c in T.Parallel(ROWS, COLUMNS):
        at = rows[b]
        kv[b, c] = KV[at, c]


def row_named_twice(kv: Any, KV: Any, rows: Any, columns: Any) -> None:
    for b, c in T.Parallel(ROWS, COLUMNS):
        at = rows[b]
        after = at + 1
        kv[b, c] = KV[after, c]


def row_of_the_column(kv: Any, KV: Any, rows: Any, columns: Any) -> None:
    for b, c in T.Parallel(ROWS, COLUMNS):
        at = columns[c]
        kv[b, c] = KV[at, c]


def row_in_a_variable(kv: Any, KV: Any, rows: Any, columns: Any) -> None:
    at = T.alloc_var(INT)
    for b, c in T.Parallel(ROWS, COLUMNS):
        at = rows[b]
        kv[b, c] = KV[at, c]


def stored_to_a_looked_up_row(kv: Any, KV: Any, rows: Any, columns: Any) -> None:
    T.fill(kv, 0)
    for b, c in T.Parallel(ROWS, COLUMNS):
        to = (rows[b] * 0 + b * 5 + 3) % ROWS
        kv[to, c] = KV[b, c]


def counted_row(kv: Any, KV: Any, rows: Any, columns: Any) -> None:
    counter = T.alloc_shared((COLUMNS,), INT)
    T.fill(counter, 0)
    for c in T.Parallel(COLUMNS):
        old = T.atomic_add(counter[c], 1, return_prev=True)
        kv[old, c] = KV[old + 2, c]
    for b, c in T.Parallel(ROWS - 1, COLUMNS):
        kv[b + 1, c] = KV[b, c]


BODIES = (
    looked_up_row,
    row_named_twice,
    row_of_the_column,
    row_in_a_variable,
    stored_to_a_looked_up_row,
    counted_row,
)


def gathering(body: Any, threads: int) -> Any:
    part = T.macro(body)

    @T.prim_func
    def main(
        KV: T.Tensor((SOURCE, COLUMNS), HALF),
        rows: T.Tensor((ROWS,), INT),
        columns: T.Tensor((COLUMNS,), INT),
        out: T.Tensor((ROWS, COLUMNS), HALF),
    ):
        with T.Kernel(1, threads=threads) as _:
            kv = T.alloc_shared((ROWS, COLUMNS), HALF)
            part(kv, KV, rows, columns)
            T.copy(kv, out)

    return main


def result(program: Any, **where: Any) -> np.ndarray:
    rng = np.random.default_rng(0)
    source = rng.standard_normal((SOURCE, COLUMNS)).astype(np.float16)
    rows = rng.integers(-2, SOURCE + 2, ROWS).astype(np.int32)  # some beyond both ends: zeros
    columns = rng.integers(-2, SOURCE + 2, COLUMNS).astype(np.int32)
    made = np.ones((ROWS, COLUMNS), np.float16)
    tilecore.compile(program, **where)(source, rows, columns, made)
    return made


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@pytest.mark.parametrize("threads", [64, 96, 128])
def test_a_named_place_is_where_it_says(body: Any, threads: int) -> None:
    program = gathering(body, threads)
    expected = result(program, device="reference")
    assert np.array_equal(result(program, backend="cpu_llvm"), expected)
    for backend in BACKENDS:
        found = result(program, backend=backend, device="emulator")
        assert np.array_equal(found, expected), backend


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_looked_up_row_is_moved_in_vectors(backend: str) -> None:
    """The name costs nothing: the row's elements move as they do without it."""

    def inline(kv: Any, KV: Any, rows: Any, columns: Any) -> None:
        for b, c in T.Parallel(ROWS, COLUMNS):
            kv[b, c] = KV[rows[b], c]

    def moves(body: Any) -> int:
        kernel = tilecore.compile(gathering(body, 64), backend=backend, device="emulator")
        return kernel.ir("lane").count("lane.move")

    assert moves(looked_up_row) == moves(inline) > 0
