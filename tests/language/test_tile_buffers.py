# ruff: noqa: RUF005 - loops of tile programs need their variables, arrays add
"""Buffers on the chip, reductions, views and kernel frames: what they become, and refuse."""

import language_support as support
import numpy as np
import pytest
from traced_bodies import refused, text, traced

import tilecore.language as T
from tilecore.errors import LanguageError, UnsupportedError
from tilecore.ir import stmts as S


def test_on_chip_shapes_are_constants():
    def dynamic(A, R, bx, by):
        T.alloc_shared((bx, 4), "float16")

    def negative(A, R, bx, by):
        T.alloc_fragment((-1,), "float16")

    def scope(A, R, bx, by):
        T.alloc_shared((4,), "float16", scope="texture")

    def outside(A: T.Tensor((4,), "int32")):
        s = T.alloc_shared((4,), "int32")
        with T.Kernel(1):
            T.copy(A, s)

    refused(dynamic, "extent 0 of T.alloc_shared is not constant")
    refused(negative, "is negative")
    refused(scope, "scope; expected shared, shared.dyn")
    with pytest.raises(LanguageError, match="T.alloc_shared outside of a kernel"):
        T.prim_func(outside)


def test_fill_reduce_scan_and_views_run():
    @T.prim_func
    def main(A: T.Tensor((4, 6), "float32"), R: T.Tensor((9, 4), "float32")):
        with T.Kernel(1):
            a = T.alloc_fragment((4, 6), "float32")
            r = T.alloc_fragment((4,), "float32")
            kept = T.alloc_fragment((4, 1), "float32")
            T.copy(A, a)
            T.reduce_sum(a, r, dim=1)
            T.copy(r, R[0, 0])
            T.reduce_max(a, r, dim=-1, clear=False)
            T.copy(r, R[1, 0])
            T.reduce_min(a, kept, dim=1)
            T.copy(kept[:, 0], R[2, :])
            T.reduce_abssum(a, r)
            T.copy(r, R[3, :])
            T.reduce_absmax(a, r)
            T.copy(r, R[4, :])
            s = T.alloc_shared((4, 6), "float32")
            T.copy(A, s)
            T.cumsum(s, dim=1)
            T.copy(s[:, 5], R[5, :])
            t = T.alloc_shared((6, 4), "float32")
            T.transpose(s, t)
            T.copy(t[2, :], R[6, :])
            T.cummax(t, dim=0, reverse=True)
            T.copy(t[0, :], R[7, :])
            flat = T.reshape(t, [24])
            T.copy(flat[4:8], R[8, :])

    a = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    out = support.result(main, "R", A=a, R=np.zeros((9, 4), np.float32))
    x = a.astype(float)
    c = np.cumsum(x, 1)
    t = np.maximum.accumulate(c.T[::-1], 0)[::-1]
    expected = [
        x.sum(1), np.maximum(x.max(1), x.sum(1)), x.min(1), np.abs(x).sum(1), np.abs(x).max(1),
        c[:, 5], c[:, 2], t[0], t[1],
    ]  # fmt: skip
    np.testing.assert_allclose(out, expected, rtol=1e-12)


def test_reduce_and_view_errors():
    def axis(A, R, bx, by):
        T.reduce_sum(A, R, dim=2)

    def shape(A, R, bx, by):
        r = T.alloc_fragment((48,), "float32")
        T.reduce_sum(A, r, dim=1)

    def bits(A, R, bx, by):
        r = T.alloc_fragment((64,), "float16")
        T.reduce_bitand(A, r, dim=1)

    def kind(A, R, bx, by):
        T.reduce(A, R, "median", 1, True)

    def size(A, R, bx, by):
        s = T.alloc_shared((4, 6), "float16")
        T.view(s, (4, 7))

    refused(axis, "axis of T.reduce_sum is out of range")
    error = refused(shape, "result has another shape")
    assert error.expected == "(64) or (64, 1)"
    refused(bits, "needs integers")
    refused(kind, "unknown reduction")
    refused(size, "keeps the number of bits")


def test_views_change_the_dtype():
    def body(A, R, bx, by):
        s = T.alloc_shared((4, 8), "float16")
        words = T.view(s, dtype="uint32")
        assert words.shape == (4, 4)
        flat = T.Tensor((32,), "float16", s.data)
        flat[0] = 1

    assert "words: uint32[4, 4]" in text(body)


def test_kernel_wide_annotations():
    def body(A, R, bx, by):
        T.use_swizzle(4, order="column")
        T.annotate_min_blocks_per_sm(2)
        T.annotate_safe_value({A: -1.0})
        T.set_max_nreg(40, 0)
        s = T.alloc_shared((8, 16), "float16")
        t = T.alloc_shared((8, 16), "float16")
        T.annotate_layout({s: T.make_linear_layout(s), t: T.make_swizzled_layout(t)})
        T.copy(A[0, 0], s)

    (kernel,) = traced(body).program.kernels
    assert (kernel.block_order.panel, kernel.block_order.order) == (4, "column")
    assert dict(kernel.hints) == {"min_blocks_per_sm": 2, "producer_registers": 40}
    assert traced(body).program.params[0].safe_value == -1.0
    (copy,) = support.statements(traced(body), S.Copy)
    assert copy.src.buffer.safe_value == -1.0
    assert [name for name, _ in kernel.layouts] == ["s"]
    support.body_text(traced(body))


def test_kernel_frames():
    @T.prim_func
    def main(R: T.Tensor((8,), "int32")):
        with T.Kernel(4, threads=(8, 4)) as block:
            R[block] = T.get_thread_binding(1) + T.get_block_binding() + T.get_thread_extent(1)
        with T.Kernel(1, 2) as pair:
            R[pair[1]] = T.get_block_bindings()[2]
        with T.Kernel(1) as (only,):
            R[only] = 1
        with T.Kernel(threads=32):
            R[0] = 1
        with T.ClusterKernel(4, cluster_dims=2) as _:
            R[0] = 1

    kernels = main.program.kernels
    assert [kernel.threads for kernel in kernels] == [32, 128, 128, 32, 128]
    assert [len(kernel.grid) for kernel in kernels] == [1, 2, 1, 1, 1]
    assert kernels[-1].cluster == (2, 1, 1)
    assert "block.thread() // 8" in support.body_text(main)


def test_kernel_frame_errors():
    def kernel(*grid, **options):
        def main(R: T.Tensor((8,), "int32")):
            with T.Kernel(*grid, **options):
                R[0] = 1

        return main

    for main, message in (
        (kernel(1, 2, 3, 4), "at most 3 grid axes"),
        (kernel(2.5), "must be an integer"),
        (kernel(-1), "is negative"),
        (kernel(1, threads=0), "threads is out of range"),
        (kernel(1, threads="x"), "threads must be a constant integer"),
    ):
        with pytest.raises(LanguageError, match=message):
            T.prim_func(main)

    def nested(R: T.Tensor((8,), "int32")):
        with T.Kernel(1), T.Kernel(1):
            R[0] = 1

    def names(R: T.Tensor((8,), "int32")):
        with T.Kernel(1, 2) as (a, b, c):
            R[0] = a + b + c

    def outside(R: T.Tensor((8,), "int32")):
        R[0] = 1
        with T.Kernel(1):
            R[0] = 1

    def prelude(R: T.Tensor((8,), "int32")):
        with T.Kernel(1, prelude="x"):
            R[0] = 1

    for main, message in (
        (nested, "T.Kernel inside T.Kernel"),
        (names, "another number of axes; expected 2, got 3"),
        (outside, "a statement outside of a kernel"),
    ):
        with pytest.raises(LanguageError, match=message):
            T.prim_func(main)
    with pytest.raises(UnsupportedError, match="prelude"):
        T.prim_func(prelude)


def test_unknown_keywords_are_refused():
    def body(A, R, bx, by):
        T.copy(A[0, 0], R[0, 0], fast=True)

    def missing(A, R, bx, by):
        T.gemm(A, R)

    refused(body, r"T.copy\(\) got an unexpected keyword argument 'fast'")
    refused(missing, r"T.gemm\(\) missing 1 required positional argument: 'C'")


def test_type_errors_of_helpers_stay_type_errors():
    def body(A, R, bx, by):
        T.annotate_layout({A: len(3)})

    with pytest.raises(TypeError, match="has no len"):
        traced(body)


@pytest.mark.parametrize(("stride", "dilation", "pad"), [(1, 1, 1), (2, 1, 0), (1, 2, 2)])
def test_im2col(stride, dilation, pad):
    n, h, w, c, kernel = 2, 5, 6, 3, 3
    reach = dilation * (kernel - 1) + 1
    oh, ow = (h + 2 * pad - reach) // stride + 1, (w + 2 * pad - reach) // stride + 1
    rows, columns = n * oh * ow, kernel * kernel * c

    @T.prim_func
    def main(A: T.Tensor((n, h, w, c), "float32"), R: T.Tensor((rows, columns), "float32")):
        with T.Kernel(T.ceildiv(rows, 8), T.ceildiv(columns, 8)) as (by, bx):
            s = T.alloc_shared((8, 8), "float32")
            T.im2col(A, s, by, bx, kernel, stride, dilation, pad)
            T.copy(s, R[by * 8, bx * 8])

    a = np.random.default_rng(1).standard_normal((n, h, w, c)).astype(np.float32)
    padded = np.pad(a, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    expected = np.zeros((n, oh, ow, kernel, kernel, c))
    for y in range(kernel):
        for x in range(kernel):
            i, j = y * dilation, x * dilation
            window = padded[:, i : i + oh * stride : stride, j : j + ow * stride : stride]
            expected[:, :, :, y, x] = window[:, :oh, :ow]
    out = support.result(main, "R", A=a, R=np.zeros((rows, columns), np.float32))
    np.testing.assert_array_equal(out, expected.reshape(rows, columns))


def test_dp4a():
    @T.prim_func
    def main(A: T.Tensor((8,), "int8"), B: T.Tensor((8,), "int8"), R: T.Tensor((2,), "int32")):
        with T.Kernel(2) as b:
            T.dp4a(A[b * 4], B[b * 4 : b * 4 + 4], R[b])

    a = np.array([1, -2, 3, 127, -128, 5, 6, 7], np.int8)
    b = np.array([4, 4, -4, 127, -128, 1, 0, 2], np.int8)
    out = support.result(main, "R", A=a, B=b, R=np.array([10, 20], np.int32))
    products = (a.astype(int) * b).reshape(2, 4).sum(1)
    np.testing.assert_array_equal(out, products + [10, 20])
