"""Windows and rows of fragments: found in registers, and right, whatever the place depends on."""

import numpy as np
import pytest
from passes_support import staged

import tilecore
import tilecore.language as T

TARGETS = ["cuda_hopper", "cuda_ampere", "rocm_cdna3"]
ROWS, COLUMNS = 32, 64


def _program(body):
    """A product in a fragment, which `body` writes to `B` piece by piece."""

    @T.prim_func
    def program(
        A: T.Tensor((ROWS, ROWS), "float16"),
        W: T.Tensor((ROWS, COLUMNS), "float16"),
        B: T.Tensor((ROWS, COLUMNS), "float32"),
    ):
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((ROWS, ROWS), "float16")
            w = T.alloc_shared((ROWS, COLUMNS), "float16")
            f = T.alloc_fragment((ROWS, COLUMNS), "float32")
            T.copy(A, a)
            T.copy(W, w)
            T.gemm(a, w, f, clear_accum=True)
            body(f, B)

    return program


@T.macro
def halves_one_after_the_other(f, B):
    part = T.alloc_shared((ROWS // 2, COLUMNS), "float32")
    for s in range(2):
        for i, j in T.Parallel(ROWS, COLUMNS):
            if i < ROWS // 2:
                part[i, j] = f[i + s * (ROWS // 2), j]
        for i, j in T.Parallel(ROWS // 2, COLUMNS):
            B[i + s * (ROWS // 2), j] = part[i, j]


@T.macro
def window_by_a_copy(f, B):
    for s in T.serial(4):
        T.copy(f[s * 8 : s * 8 + 8, :], B[s * 8 : s * 8 + 8, :])


@T.macro
def rows_one_at_a_time(f, B):
    for r in T.serial(ROWS):
        for j in T.Parallel(COLUMNS):
            B[r, j] = f[r, j]


@T.macro
def columns_from_another_place(f, B):
    for i, j in T.Parallel(ROWS, COLUMNS - 16):
        B[i, j] = f[i, j + 16]
    for i, j in T.Parallel(ROWS, 16):
        B[i, j + COLUMNS - 16] = f[i, j]


@T.macro
def sums_of_windows(f, B):
    for i, j in T.Parallel(ROWS, COLUMNS):
        B[i, j] = 0.0
    for s in T.serial(2):
        for i, j in T.Parallel(ROWS // 2, COLUMNS):
            T.atomic_add(B[i + s * (ROWS // 2), j], f[i + s * (ROWS // 2), j])


def _straight(product):
    return product


def _turned(product):
    return np.roll(product, -16, axis=1)


BODIES = [
    (halves_one_after_the_other, _straight),
    (window_by_a_copy, _straight),
    (rows_one_at_a_time, _straight),
    (columns_from_another_place, _turned),
    (sums_of_windows, _straight),
]


@pytest.mark.parametrize(("body", "expected"), BODIES, ids=[body.__name__ for body, _ in BODIES])
def test_windows_need_no_scratch_and_are_right(body, expected):
    program = _program(body)
    assert not staged(program)
    rng = np.random.default_rng(0)
    a, w = (rng.integers(-3, 4, (ROWS, n)).astype(np.float16) for n in (ROWS, COLUMNS))
    for backend in TARGETS if body is halves_one_after_the_other else TARGETS[:1]:
        out = np.full((ROWS, COLUMNS), np.nan, np.float32)
        tilecore.compile(program, backend=backend, device="emulator")(a, w, out)
        np.testing.assert_array_equal(out, expected(a.astype(np.float32) @ w), err_msg=backend)


@T.macro
def behind_the_end(f, B):
    for i, j in T.Parallel(ROWS, COLUMNS):
        B[i, j] = f[i + 8, j] + 1.0


def test_a_window_that_reaches_behind_the_end_gives_the_safe_value_there():
    """No place of the fragment stands for those rows, which are written all the same."""
    program = _program(behind_the_end)
    assert staged(program)
    a, w = np.eye(ROWS, dtype=np.float16), np.ones((ROWS, COLUMNS), np.float16)
    out = np.full((ROWS, COLUMNS), np.nan, np.float32)
    tilecore.compile(program, backend="cuda_ampere", device="emulator")(a, w, out)
    assert (out[:-8] == 2).all() and (out[-8:] == 1).all()


@T.prim_func
def rows_that_a_tensor_names(
    A: T.Tensor((ROWS, ROWS), "float16"),
    W: T.Tensor((ROWS, COLUMNS), "float16"),
    At: T.Tensor((COLUMNS,), "int32"),
    B: T.Tensor((COLUMNS,), "float32"),
):
    with T.Kernel(1, threads=128) as _:
        a = T.alloc_shared((ROWS, ROWS), "float16")
        w = T.alloc_shared((ROWS, COLUMNS), "float16")
        f = T.alloc_fragment((ROWS, COLUMNS), "float32")
        T.copy(A, a)
        T.copy(W, w)
        T.gemm(a, w, f, clear_accum=True)
        for j in T.Parallel(COLUMNS):
            row = At[j]
            if row >= 0 and row < ROWS:
                B[j] = f[row, j]


@pytest.mark.parametrize("backend", TARGETS)
def test_a_row_that_each_iteration_looks_up_goes_through_scratch(backend):
    assert staged(rows_that_a_tensor_names)
    rng = np.random.default_rng(0)
    a, w = (rng.integers(-3, 4, (ROWS, n)).astype(np.float16) for n in (ROWS, COLUMNS))
    at = rng.integers(-2, ROWS + 2, COLUMNS).astype(np.int32)
    out = np.full(COLUMNS, np.nan, np.float32)
    tilecore.compile(rows_that_a_tensor_names, backend=backend, device="emulator")(a, w, at, out)
    product = a.astype(np.float32) @ w
    inside = (at >= 0) & (at < ROWS)
    np.testing.assert_array_equal(out[inside], product[at[inside], np.flatnonzero(inside)])
    assert np.isnan(out[~inside]).all()
