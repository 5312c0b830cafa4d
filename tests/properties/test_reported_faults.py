"""Kinds of fault that users of tile languages report; README.md says where the others are."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from agreement import agree, each_backend, whole_numbers
from compiling import EMULATED, HOST, kernel_on

import tilecore.language as T
from tilecore.compiler import lower
from tilecore.ir.dtypes import dtype_of, numpy_dtype

# --- pipelines --------------------------------------------------------------------------------

ROUNDS, WIDTH = 6, 32


@T.macro
def carry(kind, stays, k, A, B, s, t, f, total):
    """What a round does after its sums f, with the row s of A that it has brought."""
    if kind == "write the next round's rows":
        for i in T.Parallel(WIDTH):
            A[k + 1, i] = f[i]
    elif kind == "add to the next round's rows":
        for i in T.Parallel(WIDTH):
            T.atomic_add(A[k + 1, i], f[i] + 1)
    elif kind == "write the rows behind":
        T.copy(B[k, :], t)
        for i in T.Parallel(WIDTH):
            A[k, i] = t[WIDTH - 1 - i]
    elif kind == "rewrite the copied tile":
        for i in T.Parallel(WIDTH):
            s[i] = s[i] + f[WIDTH - 1 - i]
        if stays:
            for i in T.Parallel(WIDTH):
                t[i] = t[i] + s[WIDTH - 1 - i]
        else:
            for i in T.Parallel(WIDTH):
                f[i] = f[i] - s[WIDTH - 1 - i]
    elif kind == "read the tile last":
        T.reduce_sum(s, total, dim=0)
        for i in T.Parallel(WIDTH):
            f[i] = f[i] + total[0]
    elif kind == "read rows that the round before wrote":
        T.copy(B[k, :], t)
        for i in T.Parallel(WIDTH):
            f[i] = f[i] + t[WIDTH - 1 - i]
        if k < ROUNDS - 1:
            T.copy(f, B[k + 1, :])


def carried(kind: str, stages: int, threads: int, stays: bool = True) -> Any:
    """A pipelined loop that reads what an earlier round wrote, or wrote where a later one reads.

    `stays` says whether the copied tiles are touched outside of the loop, too: copies into tiles
    that are run ahead only where they are not.
    """

    @T.prim_func
    def main(
        A: T.Tensor((ROUNDS + 1, WIDTH), "float32"),
        B: T.Tensor((ROUNDS, WIDTH), "float32"),
        out: T.Tensor((WIDTH,), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            s = T.alloc_shared((WIDTH,), "float32")
            t = T.alloc_shared((WIDTH,), "float32")
            f = T.alloc_fragment((WIDTH,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.clear(f)
            if stays:
                T.copy(B[0, :], t)  # touched before the loop, in it, and after it
            for k in T.Pipelined(ROUNDS, num_stages=stages):
                T.copy(A[k, :], s)
                for i in T.Parallel(WIDTH):
                    f[i] = f[i] * 2 + s[i]
                carry(kind, stays, k, A, B, s, t, f, total)
            if stays:
                for i in T.Parallel(WIDTH):
                    out[i] = f[i] + t[i] + s[i]
            else:
                T.copy(f, out)

    return main


KINDS = (
    "write the next round's rows", "add to the next round's rows", "write the rows behind",
    "rewrite the copied tile", "read the tile last", "read rows that the round before wrote",
    "nothing else",
)  # fmt: skip
AHEAD = ("read the tile last", "read rows that the round before wrote", "nothing else")
"""Kinds that write nothing that the tile is copied from, nor the tile."""


@each_backend
@pytest.mark.parametrize("stays", [True, False], ids=["stays", "of-the-loop"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pipeline_reorders_no_write_and_no_atomic(kind: str, stays: bool, backend: str) -> None:
    variants = [(0, 32), (2, 64), (3, 96), (4, 32)] if backend == HOST else [(2, 64), (3, 32)]
    for stages, threads in variants:
        a, b = whole_numbers(7, 32), whole_numbers(6, 32, seed=1)
        zeros = np.zeros(32, np.float32)
        came = agree(backend, carried(kind, stages, threads, stays), a, b, zeros)
        if kind == "add to the next round's rows":
            total = np.zeros(32, np.float32)
            for k in range(ROUNDS):
                total = total * 2 + a[k]
                a[k + 1] += total + 1
            np.testing.assert_array_equal(came[0], a)


@pytest.mark.parametrize("backend", [name for name in EMULATED if name.startswith("cuda")])
def test_copies_of_these_loops_run_ahead_where_they_may(backend: str) -> None:
    """Else the test above would say nothing about pipelines."""
    for kind in KINDS:
        for stays in (True, False):
            schedule = lower(carried(kind, 3, 32, stays), backend).ir("scheduled")
            ahead = re.search(r"shared s: float32\[[34], 32\]", schedule) is not None
            assert ahead == (not stays and kind in AHEAD), (kind, stays)


@each_backend
@pytest.mark.parametrize(("stages", "inner"), [(2, False), (3, False), (2, True), (0, False)])
def test_tiles_that_a_pipelined_loop_declares(stages: int, inner: bool, backend: str) -> None:
    """Declared in the loop, under another loop or not, beside one that is declared before it."""
    m, n, k = 32, 32, 96

    @T.prim_func
    def main(
        A: T.Tensor((2, m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((2, m, n), "float32"),
    ):
        with T.Kernel(1 if inner else 2, threads=64) as block:
            b = T.alloc_shared((32, n), "float16")
            for row in T.serial(2 if inner else 1):
                c = T.alloc_fragment((m, n), "float32")
                T.clear(c)
                for ko in T.Pipelined(k // 32, num_stages=stages):
                    a = T.alloc_shared((m, 32), "float16")
                    half = T.alloc_fragment((m, 32), "float16")
                    T.copy(A[block + row, 0, ko * 32], a)
                    T.copy(B[ko * 32, 0], b)
                    T.copy(a, half)
                    for i, j in T.Parallel(m, 32):
                        half[i, j] = half[i, j] * 2
                    T.gemm(half, b, c)
                T.copy(c, C[block + row, 0, 0])

    a, b = whole_numbers(2, m, k, dtype="float16"), whole_numbers(k, n, dtype="float16", seed=1)
    agree(backend, main, a, b, np.zeros((2, m, n), np.float32))


# --- atomics ----------------------------------------------------------------------------------

PAIRS = [
    ("float32", "float16"), ("float32", "bfloat16"), ("float32", "int32"), ("float16", "float32"),
    ("bfloat16", "float32"), ("int32", "int8"), ("int32", "float32"), ("int32", "uint8"),
    ("int64", "int32"), ("float64", "float32"), ("float16", "int8"),
]  # fmt: skip


@each_backend
@pytest.mark.parametrize(("to", "of"), PAIRS)
def test_atomics_between_dtypes(to: str, of: str, backend: str) -> None:
    @T.prim_func
    def main(x: T.Tensor((48, 20), of), y: T.Tensor((20,), to), z: T.Tensor((48, 20), to)):
        with T.Kernel(2, threads=64) as block:
            tile = T.alloc_shared((24, 20), of)
            T.copy(x[block * 24, 0], tile)
            for i, j in T.Parallel(24, 20):
                T.atomic_add(y[j], tile[i, j])
            T.atomic_add(z[block * 24, 0], tile)

    x = np.abs(whole_numbers(48, 20, dtype="int32")).astype(numpy_dtype(dtype_of(of)))
    y, z = np.zeros(20, numpy_dtype(dtype_of(to))), np.ones((48, 20), numpy_dtype(dtype_of(to)))
    _, y, z = agree(backend, main, x, y, z)
    np.testing.assert_array_equal(y, x.sum(axis=0, dtype=np.int64).astype(y.dtype))
    np.testing.assert_array_equal(z, (x.astype(np.int64) + 1).astype(z.dtype))


# --- fragments --------------------------------------------------------------------------------


@each_backend
@pytest.mark.parametrize(("m", "n", "threads"), [(24, 40, 96), (7, 10, 64), (16, 33, 128)])
def test_loops_of_different_extent_over_one_fragment(
    m: int, n: int, threads: int, backend: str
) -> None:
    @T.prim_func
    def main(x: T.Tensor((m, n), "float32"), y: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=threads):
            f = T.alloc_fragment((m, n), "float32")
            row = T.alloc_fragment((m,), "float32")
            T.copy(x, f)
            for i, j in T.Parallel(m, n // 2):
                f[i, j] = f[i, j] * 2
            for i, j in T.Parallel(m // 2, n):
                f[i, j] = f[i, j] + 1
            for j in T.Parallel(n):
                f[m - 1, j] = f[m - 1, j] - 3
            for i in T.Parallel(m):
                row[i] = f[i, n - 1]
            for i, j in T.Parallel(m, n // 3):
                f[i, j + n // 3] = f[i, j + n // 3] + row[i]
            T.copy(f, y)

    agree(backend, main, whole_numbers(m, n), np.zeros((m, n), np.float32))


@each_backend
@pytest.mark.parametrize("threads", [32, 96, 160])
def test_slices_and_padded_rows_in_tile_operations(threads: int, backend: str) -> None:
    @T.prim_func
    def main(
        x: T.StridedTensor((20, 24), (40, 1), "float32"),
        sums: T.Tensor((3, 12), "float32"),
        scan: T.Tensor((12, 16), "float32"),
        all_of_it: T.Tensor((20, 24), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            s = T.alloc_shared((20, 24), "float32")
            part = T.alloc_shared((12, 16), "float32")
            row = T.alloc_fragment((12,), "float32")
            T.copy(x, s)
            T.reduce_sum(s[4:16, 3:19], row, dim=1)
            T.copy(row, sums[0, :])
            T.reduce_max(s[4:16, 3:19], row, dim=1)
            T.copy(row, sums[1, :])
            T.reduce_absmax(s[8:20, 0:7], row, dim=1)
            T.copy(row, sums[2, :])
            T.copy(s[4:16, 3:19], part)
            T.cumsum(part, part, dim=1)
            T.copy(part, scan)
            T.fill(s[1:3, 5:11], 9)
            T.copy(s[10:14, 0:5], s[0:4, 19:24])
            T.copy(s, all_of_it)

    padded = whole_numbers(20, 40)
    outputs = [np.zeros(shape, np.float32) for shape in ((3, 12), (12, 16), (20, 24))]
    expected = [array.copy() for array in outputs]
    kernel_on("reference", main)(padded[:, :24], *expected)
    kernel_on(backend, main)(padded[:, :24], *outputs)
    for left, right in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(left, right)


# --- edges ------------------------------------------------------------------------------------


def beyond_both_ends(threads: int, stages: int) -> Any:
    """Tiles that begin before a buffer or end past it, in global memory and on the chip."""

    @T.prim_func
    def main(
        x: T.Tensor((32, 24), "float32"),
        places: T.Tensor((4,), "int32"),
        loaded: T.Tensor((4, 16, 8), "float32"),
        stored: T.Tensor((4, 32, 24), "float32"),
        product: T.Tensor((4, 16, 16), "float32"),
        moved: T.Tensor((4, 32, 24), "float32"),
        sums: T.Tensor((4, 16), "float32"),
    ):
        with T.Kernel(4, threads=threads) as b:
            at = places[b]
            tile = T.alloc_shared((16, 8), "float32")
            first = T.alloc_shared((16, 16), "float32")
            second = T.alloc_shared((16, 16), "float32")
            c = T.alloc_fragment((16, 16), "float32")
            whole = T.alloc_shared((32, 24), "float32")
            other = T.alloc_shared((32, 24), "float32")
            row = T.alloc_fragment((16,), "float32")
            T.annotate_safe_value({x: -3})
            T.copy(x[at, at - 3], tile)
            T.copy(tile, loaded[b, 0, 0])
            T.copy(tile, stored[b, at - 1, at - 9])
            T.fill(stored[b, at - 8 : at - 4, at - 1 : at + 2], 7)
            T.clear(c)
            for k in T.Pipelined(3, num_stages=stages):
                T.copy(x[at + k * 8 - 8, at - 16 + k * 8], first)
                T.copy(x[k * 16 - 16, at], second)
                T.gemm(first, second, c)
            T.copy(c, product[b, 0, 0])
            T.copy(x, whole)
            T.fill(other, 5)
            T.copy(whole, other[at - 1 : at + 31, at : at + 24])
            T.copy(whole[at : at + 8, at - 3 : at + 5], other[0:8, 0:8])
            T.copy(other, moved[b, 0, 0])
            T.reduce_sum(whole[at : at + 16, at : at + 8], row, dim=1)
            T.copy(row, sums[b, 0])

    return main


@each_backend
def test_tiles_that_begin_before_a_buffer_or_end_past_it(backend: str) -> None:
    x, places = whole_numbers(32, 24), np.array([-20, -1, 12, 35], np.int32)
    around = np.full((200, 200), -3.0, np.float32)
    around[80:112, 80:104] = x
    loaded = np.stack([around[80 + at : 96 + at, 77 + at : 85 + at] for at in places])
    shapes = ((4, 16, 8), (4, 32, 24), (4, 16, 16), (4, 32, 24), (4, 16))
    for threads, stages in ((64, 0), (128, 2)):
        outputs = [np.zeros(shape, np.float32) for shape in shapes]
        agree(backend, beyond_both_ends(threads, stages), x, places, *outputs)
        kernel_on(backend, beyond_both_ends(threads, stages))(x, places, *outputs)
        np.testing.assert_array_equal(outputs[0], loaded)


# --- sizes ------------------------------------------------------------------------------------


@each_backend
def test_an_output_whose_size_a_later_argument_tells(backend: str) -> None:
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def main(
        table: T.Tensor((m, n), "int32"),
        total: T.Tensor((m,), "int32"),
        rows: T.Tensor((m,), "int32"),
        columns: T.Tensor((n,), "int32"),
    ):
        held = T.alloc_global((n, m), "int32")
        with T.Kernel(T.ceildiv(m, 8), threads=32) as block:
            for i, j in T.Parallel(8, n):
                table[block * 8 + i, j] = rows[block * 8 + i] + columns[j]
            for i, j in T.Parallel(8, n):
                if block * 8 + i < m:
                    held[j, block * 8 + i] = columns[j]
        with T.Kernel(m, threads=32) as row:
            one = T.alloc_var("int32", init=0)
            for j in T.serial(n):
                one += held[j, row]
            total[row] = one

    kernel = kernel_on(backend, main, out_idx=[0, 1])
    for sizes in ((5, 3), (20, 1), (0, 4), (1, 17), (5, 3)):
        rows, columns = (np.arange(1, size + 1, dtype=np.int32) for size in sizes)
        table, total = kernel(rows, columns)
        assert table.shape == sizes and total.shape == sizes[:1]
        np.testing.assert_array_equal(table, rows[:, None] + columns[None, :])
        np.testing.assert_array_equal(total, np.full(sizes[0], columns.sum()))


@each_backend
def test_nests_and_copies_over_extents_of_the_call(backend: str) -> None:
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def main(
        x: T.Tensor((m, n), "int32"),
        y: T.Tensor((m, n), "int32"),
        z: T.Tensor((m, n), "int32"),
        count: T.Tensor((1,), "int32"),
    ):
        with T.Kernel(1, threads=64):
            T.copy(x, y)
            for i, j in T.Parallel(m, n):
                z[i, j] = y[i, j] + i * 100 + j
                T.atomic_add(count[0], 1)
            for j, i in T.Parallel(n, m // 2):
                z[i, j] = z[i, j] * 2
            T.fill(y, 7)

    kernel = kernel_on(backend, main)
    for sizes in ((3, 5), (1, 700), (300, 2), (0, 4), (4, 0)):
        x = whole_numbers(*sizes, dtype="int32")
        y, z, count = np.zeros_like(x), np.zeros_like(x), np.zeros(1, np.int32)
        kernel(x, y, z, count)
        i, j = np.indices(sizes)
        expected = x + i * 100 + j
        expected[: sizes[0] // 2] *= 2
        np.testing.assert_array_equal(z, expected)
        assert (y == 7).all() and count[0] == x.size


@each_backend
def test_grids_from_none_to_many_blocks(backend: str) -> None:
    a, b, c = T.dynamic("a"), T.dynamic("b"), T.dynamic("c")

    @T.prim_func
    def main(x: T.Tensor((a, b, c), "int32"), count: T.Tensor((1,), "int32")):
        with T.Kernel(c, b, a, threads=32) as (bx, by, bz):
            x[bz, by, bx] = x[bz, by, bx] + bx + by * 2 + bz * 3
            T.atomic_add(count[0], 1)

    kernel = kernel_on(backend, main)
    for sizes in ((0, 2, 3), (2, 0, 3), (2, 3, 0), (0, 0, 0), (1, 1, 1), (3, 2, 300), (300, 2, 1)):
        x, count = np.ones(sizes, np.int32), np.zeros(1, np.int32)
        kernel(x, count)
        i, j, k = np.indices(sizes)
        np.testing.assert_array_equal(x, 1 + k + j * 2 + i * 3)
        assert count[0] == x.size
