# ruff: noqa: B007, RUF005 - loops of tile programs need their variables, arrays add
"""Buffers, indexing and tile operations: what they become, and what they refuse."""

import language_support as support
import numpy as np
import pytest

import tilecore.language as T
from tilecore.errors import LanguageError, UnsupportedError
from tilecore.ir import stmts as S


def traced(body):
    """The program of ``body(A, R)``, with A float16 (64, 48) and R float32 (64, 48)."""
    macro = T.macro(body)

    @T.prim_func
    def main(A: T.Tensor((64, 48), "float16"), R: T.Tensor((64, 48), "float32")):
        with T.Kernel(2, 3, threads=64) as (bx, by):
            macro(A, R, bx, by)

    return main


def text(body):
    return support.body_text(traced(body))


def refused(body, message, error=LanguageError):
    with pytest.raises(error, match=message) as caught:
        traced(body)
    assert caught.value.loc is not None and caught.value.loc.file == __file__
    return caught.value


def test_slices_points_and_ends():
    def body(A, R, bx, by):
        s = T.alloc_shared((8, 16), "float16")
        T.copy(A[bx * 8 : (bx + 1) * 8, by * 16 : by * 16 + 16], s)
        T.copy(A[bx, 0:16], s[3, :])
        T.copy(A[-8:, -16:], s)
        T.copy(A[8:-48, 0:16], s)
        s[-1, -2] = A[bx, -1]
        T.copy(s[0:4, ...], A[0:4, 32:])

    lines = text(body).splitlines()[1:]
    assert lines == [
        "copy A[bx * 8:+8, by * 16:+16] -> s[:, :]",
        "copy A[bx, 0:+16] -> s[3, :]",
        "copy A[56:+8, 32:+16] -> s[:, :]",
        "copy A[8:+8, 0:+16] -> s[:, :]",
        "s[7, 14] = A[bx, 47]",
        "copy s[0:+4, :] -> A[0:+4, 32:+16]",
    ]


def test_head_elements_take_the_other_sides_extent():
    def body(A, R, bx, by):
        s = T.alloc_shared((8, 16), "float16")
        row = T.alloc_fragment((16,), "float32")
        one = T.alloc_shared((1, 16), "float16")
        T.copy(A[bx * 8, by * 16], s)
        T.copy(s, A[bx * 8, by * 16])
        T.copy(A[bx, by * 16], row)
        T.copy(one, A[bx, 0:16])
        T.copy(row, one)
        T.copy(A[bx, by], R[by, bx])

    lines = text(body).splitlines()[3:]
    assert lines == [
        "copy A[bx * 8:+8, by * 16:+16] -> s[:, :]",
        "copy s[:, :] -> A[bx * 8:+8, by * 16:+16]",
        "copy A[bx, by * 16:+16] -> row[:]",
        "copy one[0, :] -> A[bx, 0:+16]",
        "copy row[:] -> one[0, :]",
        "R[by, bx] = cast(A[bx, by], float32)",
    ]


def test_names_do_not_hide_equal_extents():
    def body(A, R, bx, by):
        s = T.alloc_shared((8, 16), "float16")
        first = bx * 8 + by
        last = (bx + 1) * 8 + by
        start = first + 0 * last
        T.copy(A[first:last, start : start + 16], s)

    assert "s[:, :]" in text(body)


def test_assignment_to_slices():
    def body(A, R, bx, by):
        s = T.alloc_shared((8, 16), "float32")
        s[0:4, :] = 1
        s[4:8, :] = R[0:4, 0:16]
        s[0, 0] += 2

    lines = text(body).splitlines()[1:]
    assert lines == [
        "fill s[0:+4, :] = 1.0",
        "copy R[0:+4, 0:+16] -> s[4:+4, :]",
        "s[0, 0] = s[0, 0] + 2.0",
    ]


def test_attributes_of_buffers():
    def body(A, R, bx, by):
        assert A.shape == (64, 48) and A.ndim == 2 and A.dtype == "float16"
        assert A.scope() == "global" and A.strides is None and A.name == "A"
        s = T.alloc_shared((8, 16), "float32")
        assert s[0:4, 2].shape == (4,) and s.scope() == "shared"
        T.clear(s)

    text(body)


def test_indexing_errors():
    def rank(A, R, bx, by):
        R[0, 0] = A[bx]

    def too_large(A, R, bx, by):
        R[64, 0] = 1

    def too_negative(A, R, bx, by):
        R[-65, 0] = 1

    def is_float(A, R, bx, by):
        R[bx / 2, 0] = 1

    def step(A, R, bx, by):
        T.clear(R[0:8:2, 0])

    def backwards(A, R, bx, by):
        T.clear(R[bx + 4 : bx, 0])

    def on_chip(A, R, bx, by):
        s = T.alloc_shared((8,), "float16")
        T.clear(s[4:9])

    def twice(A, R, bx, by):
        R[0, 0] = R[0:4, 0][1]

    def iterate(A, R, bx, by):
        for row in R:
            T.clear(row)

    def whole(A, R, bx, by):
        R[0, 0] = A * 2

    def compare(A, R, bx, by):
        if A < R:
            T.clear(R)

    def tile_in_element(A, R, bx, by):
        R[0, 0] = A

    for body, message in (
        (rank, r"wrong number of indices for A; expected 2 for shape \(64, 48\), got 1"),
        (too_large, "index 0 of R is outside the buffer; expected 0 to 63, got 64"),
        (too_negative, "outside the buffer"),
        (is_float, "must be an integer; expected an integer, got a float32 value"),
        (step, "has a step"),
        (backwards, "ends before it starts"),
        (on_chip, "reaches outside the buffer"),
        (twice, "cannot be indexed again"),
        (iterate, "`for` loop over a value"),
        (whole, "on a whole buffer"),
        (compare, "on a whole buffer"),
        (tile_in_element, "cannot be stored in one element"),
    ):
        refused(body, message)


def test_copy_errors_say_both_shapes():
    def shapes(A, R, bx, by):
        s = T.alloc_shared((8, 17), "float16")
        T.copy(A[0:8, 0:16], s)

    def nothing(A, R, bx, by):
        T.copy(3, R)

    def rank(A, R, bx, by):
        s = T.alloc_shared((2, 8, 16), "float16")
        T.copy(A[bx, by], s)

    error = refused(shapes, "shapes differ in T.copy")
    assert error.expected == "(8, 17) as s" and error.got == "(8, 16) of A"
    refused(nothing, "source of T.copy is no tile")
    refused(rank, "fewer axes than the tile")


def test_gemm():
    def body(A, R, bx, by):
        a = T.alloc_shared((2, 32, 8), "float16")
        b = T.alloc_shared((16, 8), "float16")
        c = T.alloc_fragment((32, 16), "float32")
        T.gemm(
            a[bx, :, :], b, c, transpose_B=True, policy=T.GemmWarpPolicy.FullCol,
            clear_accum=bx == 0, k_pack=2,
        )  # fmt: skip

    (gemm,) = support.statements(traced(body), S.Gemm)
    assert gemm.transpose_b and not gemm.transpose_a
    assert gemm.policy is S.WarpPolicy.FULL_COL
    assert gemm.hints == (("k_pack", 2),)
    assert str(gemm.clear_accum.op) == "eq"
    assert "gemm a[bx, :, :], b[:, :] -> c[:, :] transpose_b" in text(body)


def test_gemm_errors():
    def operands(m, n, k, transpose=False, dtypes=("float16", "float16", "float32"), where=None):
        def body(A, R, bx, by):
            a = T.alloc_shared((32, 8), dtypes[0])
            b = T.alloc_shared((8, 16), dtypes[1])
            c = (where or T.alloc_fragment)((m, n), dtypes[2])
            T.gemm(a, b, c, transpose_A=transpose)

        return body

    refused(operands(32, 17, 8), "n of B and C")
    refused(operands(31, 16, 8), "m of A and C")
    refused(operands(32, 16, 8, transpose=True), "k of A and B")
    refused(operands(32, 16, 8, dtypes=("float16", "bfloat16", "float32")), "differ in dtype")
    refused(operands(32, 16, 8, dtypes=("int8", "int8", "float32")), "accumulates in another kind")
    error = refused(operands(32, 16, 8, where=T.alloc_shared), "operand C of T.gemm lives in the")
    assert error.expected == "fragment"

    def barrier(A, R, bx, by):
        T.gemm(A, A, R, mbar=1)

    def from_global(A, R, bx, by):
        c = T.alloc_fragment((64, 64), "float32")
        T.gemm(A, A, c, transpose_B=True)

    refused(barrier, "T.gemm\\(mbar", UnsupportedError)
    refused(from_global, "operand A of T.gemm lives in the wrong memory")


def test_a_parallel_nest_in_one_joins_it_or_runs_round_by_round():
    def joined(A, R, bx, by):
        for i in T.Parallel(8):
            for j in T.Parallel(16):
                R[i, j] = 1

    def rounds(A, R, bx, by):
        for i in T.Parallel(8):
            R[i, 0] = 2
            for j in T.Parallel(i + 1):
                R[i, j] = 1

    def before(A, R, bx, by):
        for i in T.Parallel(8):
            for j in T.Parallel(4):
                R[i, j] = 1
            R[i, 0] = 2

    assert "parallel (i, j) in (8, 16) {" in text(joined)
    for body in (rounds, before):
        assert "parallel (i) in (8) {" in text(body) and "for j in serial" in text(body)


def test_tile_operations_do_not_nest_in_parallel():
    def copy(A, R, bx, by):
        for i in T.Parallel(8):
            T.copy(A[0:1, 0:48], R[0:1, 0:48])

    def shared(A, R, bx, by):
        for i in T.Parallel(8):
            T.alloc_shared((1,), "int32")

    def leave(A, R, bx, by):
        for i in T.Parallel(8):
            break

    def leave_grid(A, R, bx, by):
        for i, j in T.grid(2, 8):
            if j == 2:
                continue

    refused(copy, "T.copy inside T.Parallel")
    refused(shared, "T.alloc_shared inside T.Parallel")
    refused(leave, "`break` inside T.Parallel")
    refused(leave_grid, "`continue` inside T.grid")


def test_what_parallel_may_hold():
    def body(A, R, bx, by):
        for i, j in T.Parallel(8, 4, coalesced_width=4):
            acc = T.alloc_var("float32", init=0)
            best = T.alloc_local((2,), "float32")
            for k in T.serial(3):
                x = A[i, k] + A[k, j]
                if x > 1:
                    acc += x
                else:
                    break
            best[0] = acc
            R[i, j] = best[0]

    main = traced(body)
    (loop,) = support.statements(main, S.Parallel)
    assert loop.hints == (("coalesced_width", 4),)
    support.body_text(main)


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
