# ruff: noqa: B007 - loops of tile programs need their variables, arrays add
"""Buffers, indexing and tile operations: what they become, and what they refuse."""

import language_support as support
from traced_bodies import refused, text, traced

import tilecore.language as T
from tilecore.errors import UnsupportedError
from tilecore.ir import stmts as S


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
