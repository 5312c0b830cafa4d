"""Elements of four bits: packed in memory, the same values everywhere, no neighbour touched."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from compiling import BACKENDS, EMULATED, kernel_on
from hypothesis import given, settings
from hypothesis import strategies as st

import tilecore
import tilecore.language as T
from tilecore.errors import LanguageError, UnsupportedError
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.ir.packing import pack_elements, unpack_elements

DTYPES = ("int4", "uint4", "float4_e2m1fn")


@dataclasses.dataclass(frozen=True)
class Case:
    """A move of an (m, n) array through tiles of (rows, columns), with `shift` added to columns."""

    dtype: str
    m: int
    n: int
    rows: int
    columns: int
    threads: int
    by_copy: bool
    dynamic: bool


def moved(case: Case) -> Any:
    m, n = (T.dynamic("m"), T.dynamic("n")) if case.dynamic else (case.m, case.n)

    @T.prim_func
    def main(
        x: T.Tensor((m, n), case.dtype),
        wide: T.Tensor((m, n), "float32"),
        y: T.Tensor((m, n), case.dtype),
        z: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(
            T.ceildiv(n, case.columns), T.ceildiv(m, case.rows), threads=case.threads
        ) as (bx, by):
            s = T.alloc_shared((case.rows, case.columns), case.dtype)
            f = T.alloc_fragment((case.rows, case.columns), case.dtype)
            T.copy(x[by * case.rows, bx * case.columns], s)
            T.copy(s, f)
            for i, j in T.Parallel(case.rows, case.columns):
                z[by * case.rows + i, bx * case.columns + j] = (
                    f[i, j] + wide[by * case.rows + i, bx * case.columns + j]
                )
            if case.by_copy:
                T.copy(f, y[by * case.rows, bx * case.columns])
            else:
                for i, j in T.Parallel(case.rows, case.columns):
                    y[by * case.rows + i, bx * case.columns + j] = s[i, j]

    return main


cases = st.builds(
    Case, st.sampled_from(DTYPES), st.integers(1, 9), st.integers(1, 41),
    st.sampled_from([1, 3, 8]), st.sampled_from([2, 6, 16, 32]),
    st.sampled_from([32, 64, 96]), st.booleans(), st.booleans(),
)  # fmt: skip


def check_moved(case: Case, target: str) -> None:
    dtype = dtype_of(case.dtype)
    rng = np.random.default_rng(case.m * 100 + case.n)
    packed = rng.integers(0, 256, (case.m, -(-case.n // 2))).astype(np.uint8)
    wide = rng.integers(-9, 10, (case.m, case.n)).astype(np.float32)
    y, z = np.full_like(packed, 0xA5), np.zeros_like(wide)
    kernel_on(target, moved(case))(packed, wide, y, z)
    values = unpack_elements(packed, dtype, case.n)
    came = unpack_elements(y, dtype, case.n)
    np.testing.assert_array_equal(came.view(np.uint8), values.view(np.uint8))
    np.testing.assert_array_equal(z, values.astype(np.float32) + wide)


@settings(max_examples=12)
@given(cases)
def test_any_tile_moves_any_array_on_the_host(case: Case) -> None:
    check_moved(case, BACKENDS[0])


@pytest.mark.parametrize("target", [*EMULATED, "reference"])
@settings(max_examples=2)
@given(case=cases)
def test_any_tile_moves_any_array_elsewhere(target: str, case: Case) -> None:
    check_moved(case, target)


FLOATS = np.concatenate(
    [
        np.array([0.0, -0.0, np.inf, -np.inf, 7.0, -7.0, 1e30, 6.5, -6.01], np.float32),
        np.arange(-28, 29, dtype=np.float32) / 4,  # every tie between neighbours, and around them
        np.nextafter(np.arange(-28, 29, dtype=np.float32) / 4, np.float32(0)),
        np.arange(-20, 21, dtype=np.float32) + np.float32(0.5),
    ]
)


@pytest.mark.parametrize("target", [*BACKENDS, "reference"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_conversions_follow_the_rules_of_casts(dtype: str, target: str) -> None:
    count = FLOATS.size

    @T.prim_func
    def main(
        x: T.Tensor((count,), "float32"),
        i: T.Tensor((count,), "int32"),
        y: T.Tensor((3, count), dtype),
        back: T.Tensor((count,), "float16"),
    ):
        with T.Kernel(1, threads=64):
            for k in T.Parallel(count):
                y[0, k] = x[k]
                y[1, k] = i[k]
                y[2, k] = T.cast(T.cast(x[k], dtype), "float32") - T.cast(i[k], dtype)
                back[k] = T.cast(x[k], dtype)

    ints = (np.arange(count) * 7 - 300).astype(np.int32)
    kind = numpy_dtype(dtype_of(dtype))
    if dtype.startswith("float"):
        floats, wrapped = FLOATS.astype(kind), ints.astype(np.float32).astype(kind)
    else:
        low, high = (-8, 7) if dtype == "int4" else (0, 15)
        floats = np.clip(np.trunc(FLOATS), low, high).astype(np.int8).astype(kind)
        wrapped = unpack_elements(pack_elements(ints, dtype_of(dtype)), dtype_of(dtype), count)
    y, back = np.zeros((3, -(-count // 2)), np.uint8), np.zeros(count, np.float16)
    kernel_on(target, main)(FLOATS, ints, y, back)
    rows = unpack_elements(y, dtype_of(dtype), count).astype(np.float32)
    np.testing.assert_array_equal(rows[0], floats.astype(np.float32))
    np.testing.assert_array_equal(rows[1], wrapped.astype(np.float32))
    if target != "reference":  # it keeps floats unrounded until the last store
        np.testing.assert_array_equal(back, floats.astype(np.float16))
        difference = floats.astype(np.float32) - wrapped.astype(np.float32)
        if dtype.startswith("float"):
            expected = difference.astype(kind)
        else:
            expected = np.clip(difference, low, high).astype(np.int8).astype(kind)
        np.testing.assert_array_equal(rows[2], expected.astype(np.float32))


@pytest.mark.parametrize("target", [*BACKENDS, "reference"])
def test_integer_arithmetic_wraps_in_four_bits(target: str) -> None:
    @T.prim_func
    def main(
        a: T.Tensor((16, 16), "int4"),
        b: T.Tensor((16, 16), "int4"),
        u: T.Tensor((16, 16), "uint4"),
        out: T.Tensor((7, 16, 16), "int8"),
    ):
        with T.Kernel(1, threads=64):
            for i, j in T.Parallel(16, 16):
                out[0, i, j] = a[i, j] + b[i, j]
                out[1, i, j] = a[i, j] * b[i, j]
                out[2, i, j] = T.max(a[i, j], b[i, j]) - T.min(a[i, j], b[i, j])
                out[3, i, j] = (a[i, j] ^ b[i, j]) | (a[i, j] & 3)
                out[4, i, j] = u[i, j] - T.cast(b[i, j], "uint4")
                out[5, i, j] = T.if_then_else(a[i, j] < b[i, j], -a[i, j], ~b[i, j])
                out[6, i, j] = T.cast(T.popcount(a[i, j]), "int8")

    def wrapped(x: np.ndarray) -> np.ndarray:
        return ((x & 15) ^ 8) - 8

    a = np.repeat(np.arange(-8, 8)[:, None], 16, 1)
    b = a.T
    u = np.repeat(np.arange(16)[:, None], 16, 1)
    packed = [pack_elements(x, dtype_of(d)) for x, d in ((a, "int4"), (b, "int4"), (u, "uint4"))]
    out = np.zeros((7, 16, 16), np.int8)
    kernel_on(target, main)(*packed, out)
    expected = [
        wrapped(a + b), wrapped(a * b), wrapped(np.maximum(a, b) - np.minimum(a, b)),
        (a ^ b) | (a & 3), (u - (b & 15)) & 15, np.where(a < b, wrapped(-a), ~b),
        np.vectorize(lambda x: int(x & 15).bit_count())(a),
    ]  # fmt: skip
    for k, want in enumerate(expected):
        np.testing.assert_array_equal(out[k], want, err_msg=str(k))


@pytest.mark.parametrize("target", [*BACKENDS, "reference"])
@pytest.mark.parametrize(
    ("dtype", "accumulator"), [("int4", "int32"), ("float4_e2m1fn", "float32")]
)
def test_products_of_packed_operands_are_exact(dtype: str, accumulator: str, target: str) -> None:
    m, n, k = 40, 24, 70

    @T.prim_func
    def main(
        A: T.Tensor((m, k), dtype), B: T.Tensor((n, k), dtype), C: T.Tensor((m, n), accumulator)
    ):
        with T.Kernel(T.ceildiv(n, 16), T.ceildiv(m, 32), threads=64) as (bx, by):
            a = T.alloc_shared((32, 32), dtype)
            b = T.alloc_shared((16, 32), dtype)
            c = T.alloc_fragment((32, 16), accumulator)
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[by * 32, ko * 32], a)
                T.copy(B[bx * 16, ko * 32], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[by * 32, bx * 16])

    rng = np.random.default_rng(7)
    packed = [rng.integers(0, 256, (rows, k // 2)).astype(np.uint8) for rows in (m, n)]
    c = np.zeros((m, n), np.int32 if accumulator == "int32" else np.float32)
    kernel_on(target, main)(*packed, c)
    a, b = (unpack_elements(x, dtype_of(dtype), k).astype(np.float64) for x in packed)
    np.testing.assert_array_equal(c, a @ b.T)


@pytest.mark.parametrize("target", [*BACKENDS, "reference"])
def test_one_row_after_the_other_and_strided_rows(target: str) -> None:
    """Elements stored one by one, rows at places that are read, in a tensor with gaps."""
    s = T.dynamic("s")

    @T.prim_func
    def main(
        x: T.Tensor((6, 9), "uint4"),
        to: T.Tensor((6,), "int32"),
        y: T.StridedTensor((8, 9), (s, 1), "uint4"),
    ):
        with T.Kernel(6, threads=32) as row:
            for k in T.serial(9):
                y[to[row], k] = x[row, 8 - k]

    x = np.random.default_rng(3).integers(0, 256, (6, 5)).astype(np.uint8)
    to = np.array([7, 0, 3, 2, 6, 1], np.int32)
    back = np.full((8, 8), 0xEE, np.uint8)
    kernel_on(target, main)(x, to, back[:, :5])
    values = unpack_elements(x, dtype_of("uint4"), 9)
    came = unpack_elements(back[:, :5], dtype_of("uint4"), 9)
    np.testing.assert_array_equal(came[to], values[:, ::-1])
    assert (back[[4, 5]] == 0xEE).all() and (back[:, 5:] == 0xEE).all()


@pytest.mark.parametrize("target", BACKENDS)
def test_a_row_whose_start_may_be_odd_is_walked_by_one_lane(target: str) -> None:
    @T.prim_func
    def main(x: T.Tensor((4, 8), "int4"), shift: T.int32, y: T.Tensor((4, 16), "int4")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(4, 8):
                y[i, j + shift] = x[i, j]

    x = np.random.default_rng(3).integers(0, 256, (4, 4)).astype(np.uint8)
    for shift in (0, 3, 8):
        y = np.full((4, 8), 0x5A, np.uint8)
        expected = unpack_elements(y, dtype_of("int4"), 16).copy()
        expected[:, shift : shift + 8] = unpack_elements(x, dtype_of("int4"), 8)
        kernel_on(target, main)(x, shift, y)
        np.testing.assert_array_equal(unpack_elements(y, dtype_of("int4"), 16), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_safe_values_outside_an_odd_row(dtype: str) -> None:
    @T.prim_func
    def main(x: T.Tensor((3, 5), dtype), y: T.Tensor((4, 8), "float32")):
        with T.Kernel(1, threads=32):
            T.annotate_safe_value({x: 3})
            for i, j in T.Parallel(4, 8):
                y[i, j] = x[i, j]

    x = np.random.default_rng(3).integers(0, 256, (3, 3)).astype(np.uint8)
    expected = np.full((4, 8), 3, np.float32)
    expected[:3, :5] = unpack_elements(x, dtype_of(dtype), 5)
    for target in BACKENDS:
        y = np.zeros((4, 8), np.float32)
        kernel_on(target, main)(x, y)
        np.testing.assert_array_equal(y, expected)


def stores_at(place: Any, blocks: int = 4) -> Any:
    @T.prim_func
    def main(x: T.Tensor((64,), "int4"), order: T.Tensor((64,), "int32")):
        with T.Kernel(blocks, threads=32) as b:
            lane = T.get_thread_binding(0)
            place(x, order, b, lane)

    return main


def odd_tile(x: Any, order: Any, b: Any, lane: Any) -> None:
    s = T.alloc_shared((7,), "int4")
    T.clear(s)
    T.copy(s, x[b * 7 : b * 7 + 7])


def one_each(x: Any, order: Any, b: Any, lane: Any) -> None:
    x[b] = 1


def by_lane(x: Any, order: Any, b: Any, lane: Any) -> None:
    x[lane] = 1


def read_place(x: Any, order: Any, b: Any, lane: Any) -> None:
    x[order[b]] = 1


@pytest.mark.parametrize("place", [odd_tile, one_each, by_lane, read_place])
def test_stores_beside_another_lane_or_block_are_refused(place: Any) -> None:
    with pytest.raises(UnsupportedError, match="elements share bytes.*begin at even places"):
        tilecore.compile(stores_at(T.macro(place)), BACKENDS[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_atomics_on_them_are_refused(dtype: str) -> None:
    @T.prim_func
    def main(x: T.Tensor((64,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                T.atomic_add(x[i], 1)

    with pytest.raises((UnsupportedError, LanguageError), match="atomic"):
        tilecore.compile(main, BACKENDS[0])
