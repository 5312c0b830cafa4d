"""Flat and split fragments: one index for several loops keeps elements where they are."""

import itertools

import numpy as np
import pytest
from compiling import kernel_on
from hypothesis import given
from hypothesis import strategies as st
from passes_support import staged

import tilecore.language as T
from tilecore.ir.expr import Var, binary, const
from tilecore.ir.layout import REGISTER, THREAD, FragmentMode, split_int
from tilecore.passes.mixed_digits import digits_of, divided, joined

ROW, COLUMN, PLANE = (Var(name) for name in "ijk")


def _sum(*terms):
    total = const(0)
    for var, by in terms:
        total = binary("add", total, binary("mul", var, const(by)))
    return total


@pytest.mark.parametrize(
    ("index", "digits"),
    [
        (_sum((ROW, 8), (COLUMN, 1)), (1, 0)),
        (_sum((COLUMN, 4), (ROW, 1)), (0, 1)),
        (_sum((ROW, 24), (COLUMN, 3), (PLANE, 1)), (2, 1, 0)),
        (_sum((ROW, 1)), None),  # one loop
        (_sum((ROW, 4), (COLUMN, 1)), None),  # rows that overlap
        (_sum((ROW, 16), (COLUMN, 1)), None),  # rows with gaps
        (binary("add", _sum((ROW, 8), (COLUMN, 1)), const(2)), None),
    ],
)
def test_digits_are_found(index, digits):
    assert digits_of(index, (ROW, COLUMN, PLANE), (4, 8, 3)) == digits


def _place(modes, coordinate):
    at = {THREAD: 0, REGISTER: 0}
    for digit, mode in zip(split_int(coordinate, (m.extent for m in modes)), modes, strict=True):
        at[mode.space] += digit * mode.stride
    return at


@given(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=4), st.data())
def test_parts_of_an_axis_place_what_the_axis_places(extents, data):
    """And joined again they are the axis."""
    strides = {THREAD: 1, REGISTER: 1}
    modes = []
    for extent in extents:
        space = data.draw(st.sampled_from([THREAD, REGISTER]))
        modes.append(FragmentMode(extent, space, strides[space]))
        strides[space] *= extent
    total = int(np.prod(extents))
    fast = data.draw(st.sampled_from([k for k in range(1, total + 1) if total % k == 0]))
    parts = divided(tuple(modes), (fast, total // fast))
    if parts is None:
        return  # a digit begins inside of a place that does not divide
    for low, high in itertools.product(range(fast), range(total // fast)):
        whole = _place(modes, low + fast * high)
        apart = [_place(part, c) for part, c in zip(parts, (low, high), strict=True)]
        assert all(whole[space] == sum(at[space] for at in apart) for space in whole)
    again = joined(parts, (fast, total // fast))
    assert again is not None
    assert [_place(again, c) for c in range(total)] == [_place(modes, c) for c in range(total)]


def _flat(rows, columns, threads):
    """A product that goes through a flat fragment, and comes out by one loop."""

    @T.prim_func
    def program(
        A: T.Tensor((rows, 32), "float16"),
        W: T.Tensor((32, columns), "float16"),
        B: T.Tensor((rows * columns,), "float32"),
    ):
        with T.Kernel(1, threads=threads) as _:
            a = T.alloc_shared((rows, 32), "float16")
            w = T.alloc_shared((32, columns), "float16")
            f = T.alloc_fragment((rows, columns), "float32")
            g = T.alloc_fragment((rows * columns,), "float32")
            T.copy(A, a)
            T.copy(W, w)
            T.gemm(a, w, f, clear_accum=True)
            for i, j in T.Parallel(rows, columns):
                g[i * columns + j] = f[i, j]
            for i in T.Parallel(rows * columns):
                B[i // columns * columns + i % columns] = g[i] + 1.0

    return program


def _split(rows, columns, threads):
    """A product whose columns are looked at as groups, each with factors of its own."""

    @T.prim_func
    def program(
        A: T.Tensor((rows, 32), "float16"),
        W: T.Tensor((32, columns), "float16"),
        S: T.Tensor((columns // 16, 16), "float32"),
        B: T.Tensor((rows, columns // 16), "float32"),
    ):
        with T.Kernel(1, threads=threads) as _:
            a = T.alloc_shared((rows, 32), "float16")
            w = T.alloc_shared((32, columns), "float16")
            f = T.alloc_fragment((rows, columns), "float32")
            s = T.alloc_fragment((columns // 16, 16), "float32")
            g = T.alloc_fragment((rows, columns // 16), "float32")
            T.copy(A, a)
            T.copy(W, w)
            T.copy(S, s)
            T.gemm(a, w, f, clear_accum=True)
            groups = T.reshape(f, (rows, columns // 16, 16))
            for i, j, k in T.Parallel(rows, columns // 16, 16):
                groups[i, j, k] = T.max(groups[i, j, k], 0) * s[j, k]
            T.reduce_sum(groups, g, dim=-1, clear=True)
            T.copy(g, B)

    return program


@pytest.mark.parametrize("backend", ["cuda_hopper", "rocm_cdna3", "cpu_llvm"])
@pytest.mark.parametrize("make", [_flat, _split])
def test_flat_and_split_products_are_right(make, backend):
    rows, columns = 64, 64
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (rows, 32)).astype(np.float16)
    w = rng.integers(-3, 4, (32, columns)).astype(np.float16)
    product = a.astype(np.float32) @ w.astype(np.float32)
    kernel = kernel_on(backend, make(rows, columns, 128))
    if make is _flat:
        out = np.zeros(rows * columns, np.float32)
        kernel(a, w, out)
        np.testing.assert_array_equal(out, product.ravel() + 1)
        return
    s = rng.integers(-2, 3, (columns // 16, 16)).astype(np.float32)
    out = np.zeros((rows, columns // 16), np.float32)
    kernel(a, w, s, out)
    groups = np.maximum(product, 0).reshape(rows, -1, 16) * s
    np.testing.assert_array_equal(out, groups.sum(-1))


@pytest.mark.parametrize("make", [_flat, _split])
def test_they_need_no_scratch(make):
    assert not staged(make(64, 64, 128))
