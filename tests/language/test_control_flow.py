# ruff: noqa: SIM108, SIM201, F841 - the tests need these very statements
"""Python's statements on runtime values, against the same Python run on numbers."""

from pathlib import Path

import language_support as support
import numpy as np
import pytest

import tilecore.language as T
from tilecore.errors import LanguageError
from tilecore.ir import stmts as S


def test_branches_loops_and_jumps():
    @T.prim_func
    def main(N: T.Tensor((6,), "int32"), R: T.Tensor((6,), "int32")):
        with T.Kernel(6) as b:
            total = T.alloc_var(T.int32, init=0)
            for i in range(10):
                if i == 7:
                    break
                if i % 2 == 0:
                    continue
                if i > 4:
                    total += 100
                else:
                    total = total + i * N[b]
            R[b] = total

    n = np.array([0, 1, 2, -3, 5, 7], np.int32)
    out = support.result(main, "R", N=n, R=np.zeros(6, np.int32))
    np.testing.assert_array_equal(out, (1 + 3) * n + 100)


def test_while_and_short_circuit():
    @T.prim_func
    def main(A: T.Tensor((5,), "int32"), R: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            i = T.alloc_var("int32")  # starts at 0
            while i < 5 and A[i] != 9:
                i += 1
            R[0] = i

    for values in ([1, 9, 3, 4, 5], [1, 2, 3, 4, 5], [9, 9, 9, 9, 9]):
        out = support.result(main, "R", A=np.array(values, np.int32), R=np.zeros(1, np.int32))
        assert out[0] == (values.index(9) if 9 in values else 5)


def test_logic_ternary_and_chains():
    @T.prim_func
    def main(X: T.Tensor((9,), "int32"), R: T.Tensor((9, 4), "bool"), S_: T.Tensor((9,), "int32")):
        with T.Kernel(9) as b:
            x = X[b]
            R[b, 0] = 2 < x <= 5
            R[b, 1] = not x or x == 4
            R[b, 2] = x > 1 and not x == 3 and x < 7
            R[b, 3] = x != 2 or (x > 3) == (x > 4)
            S_[b] = x * 2 if x > 4 else -x

    x = np.arange(9, dtype=np.int32)
    out = support.result(main, "R", X=x, R=np.zeros((9, 4), bool), S_=np.zeros(9, np.int32))
    expected = [
        [2 < v <= 5, (not v) or v == 4, v > 1 and v != 3 and v < 7, v != 2 or (v > 3) == (v > 4)]
        for v in range(9)
    ]
    np.testing.assert_array_equal(out, np.array(expected))


def test_static_conditions_leave_no_trace():
    flag, values = True, (1, 2, 3)

    @T.prim_func
    def main(R: T.Tensor((3,), "int32")):
        with T.Kernel(1):
            if flag and len(values) == 3:
                kept = 10
            else:
                kept = 20
            for k, value in enumerate(values):
                if value == 2:
                    continue
                R[k] = value * kept
            n = 0
            while n < 2:
                n += 1
            R[1] = n

    assert {type(s) for s in main.program.kernels[0].body} == {S.Store}
    out = support.result(main, "R", R=np.zeros(3, np.int32))
    np.testing.assert_array_equal(out, [10, 2, 30])


def test_static_break_leaves_the_python_loop():
    @T.prim_func
    def main(R: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            for k in (0, 1, 2, 3):
                if k == 2:
                    break
                R[k] = k + 1

    assert len(support.statements(main, S.Store)) == 2


def test_loop_kinds():
    @T.prim_func
    def main(R: T.Tensor((64,), "int32")):
        with T.Kernel(1):
            for i in T.serial(2, 10, 2):
                R[i] = 1
            for i in T.unroll(4, unroll_factor=2):
                R[i] = 1
            for i in T.vectorized(4):
                R[i] = 1
            for i, j in T.grid(2, 3):
                R[i * 3 + j] = 1
            for i in T.serial(9, 0, -3):
                R[i] = 1
            for i in T.Pipelined(8, num_stages=2, order=[0], stage=[0], group=[[0]]):
                R[i] = 1

    loops = support.statements(main, S.For)
    assert [str(loop.kind) for loop in loops] == [
        "serial", "unroll", "vectorized", "serial", "serial", "serial", "pipelined",
    ]  # fmt: skip
    first, down = loops[0], loops[5]
    assert (first.start.value, first.extent.value, first.step.value) == (2, 4, 2)
    assert (down.start.value, down.extent.value, down.step.value) == (9, 3, -3)
    assert loops[1].hints == (("unroll_factor", 2),)
    assert loops[-1].pipeline == S.PipelineSpec(2, (0,), (0,), ((0,),))
    support.body_text(main)


def test_runtime_while_with_tile_condition():
    @T.prim_func
    def main(A: T.Tensor((4,), "bool"), R: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            n = T.alloc_var(T.int32, init=0)
            flags = T.alloc_shared((4,), "bool")
            T.copy(A, flags)
            while T.any_of(flags):
                flags[n] = False
                n += 1
            R[0] = n

    for values, rounds in (([0, 0, 0, 0], 0), ([1, 0, 1, 0], 3), ([1, 1, 1, 1], 4)):
        out = support.result(main, "R", A=np.array(values, bool), R=np.zeros(1, np.int32))
        assert out[0] == rounds


@pytest.mark.parametrize("form", ["if", "for", "while"])
def test_rebinding_under_runtime_control_is_refused_at_the_use(form):
    def use(R, start):
        if form == "if":
            x = 1
            if R[0] > 0:
                x = start
            R[1] = x
        elif form == "for":
            x = 1
            for _ in T.serial(3):
                x = start
            R[1] = x
        else:
            x = 1
            while R[0] > 0:
                x = start
            R[1] = x

    macro = T.macro(use)
    with pytest.raises(LanguageError, match=r"x was assigned \(line \d+\) inside a") as caught:

        @T.prim_func
        def main(R: T.Tensor((4,), "int32")):
            with T.Kernel(1):
                macro(R, 2)

    assert "T.alloc_var" in str(caught.value)
    lines = Path(__file__).read_text().splitlines()
    assert lines[caught.value.loc.line - 1].strip() == "R[1] = x"


def test_a_value_carried_through_a_runtime_loop_is_refused_at_the_assignment():
    with pytest.raises(LanguageError, match="carried from round to round") as caught:

        @T.prim_func
        def main(R: T.Tensor((4,), "int32")):
            with T.Kernel(1):
                x = 0
                for i in T.serial(3):
                    x = x + i
                R[0] = x

    lines = Path(__file__).read_text().splitlines()
    assert lines[caught.value.loc.line - 1].strip() == "x = x + i"
    assert "T.alloc_var" in caught.value.hint


def test_what_may_be_rebound():
    @T.prim_func
    def main(R: T.Tensor((8,), "int32")):
        with T.Kernel(2) as b:
            x = 1
            for i in T.serial(3):
                y = i * 2  # new in each round
                x = 1  # the same as before
                R[i] = y
            if b == 0:
                z = 5
            else:
                z = 5
            y = 7  # assigned again before it is read
            R[4] = x + y + z
            for _ in (0, 1):
                x = x + 1  # carried through a loop that is unrolled while tracing
            R[5] = x

    out = support.result(main, "R", R=np.zeros(8, np.int32))
    np.testing.assert_array_equal(out[:6], [0, 2, 4, 0, 13, 3])


def test_loop_variables_end_with_their_loop():
    with pytest.raises(LanguageError, match="i is the variable of the loop"):

        @T.prim_func
        def main(R: T.Tensor((4,), "int32")):
            with T.Kernel(1):
                for i in T.serial(3):
                    R[i] = 1
                R[0] = i


def test_buffers_end_with_their_block():
    with pytest.raises(LanguageError, match="A is used where it does not exist"):

        @T.prim_func
        def main(R: T.Tensor((4,), "int32")):
            holder = []
            with T.Kernel(1):
                A = T.alloc_shared((4,), "int32")
                holder.append(A)
            with T.Kernel(1):
                R[0] = holder[0][1]


def test_reading_an_unbound_name():
    with pytest.raises(LanguageError, match="x is read before it is assigned"):

        @T.prim_func
        def main(R: T.Tensor((4,), "int32")):
            with T.Kernel(1):
                R[0] = x  # noqa: F821
                x = 1
                x = 2


def test_tuple_assignment_reads_before_it_writes():
    @T.prim_func
    def main(R: T.Tensor((2,), "int32")):
        with T.Kernel(1):
            a = T.alloc_var(T.int32, init=1)
            b = T.alloc_var(T.int32, init=2)
            a, b = b, a + 10
            R[0], R[1] = a, b

    np.testing.assert_array_equal(support.result(main, "R", R=np.zeros(2, np.int32)), [2, 11])


def test_values_are_taken_when_they_are_named():
    @T.prim_func
    def main(R: T.Tensor((3,), "int32")):
        with T.Kernel(1):
            old = R[0]
            pair = (R[0], 1)
            R[0] = 50
            R[1] = old
            R[2] = pair[0]

    out = support.result(main, "R", R=np.array([7, 0, 0], np.int32))
    np.testing.assert_array_equal(out, [50, 7, 7])


def test_cells_in_lists_are_stored_to():
    @T.prim_func
    def main(R: T.Tensor((2,), "int32")):
        with T.Kernel(1):
            cells = [T.alloc_var(T.int32, init=k) for k in range(2)]
            for _ in T.serial(3):
                cells[0] += 1
                cells[1] = cells[0] * 2
            R[0] = cells[0]
            R[1] = cells[1]

    np.testing.assert_array_equal(support.result(main, "R", R=np.zeros(2, np.int32)), [3, 6])


def test_assert_statements():
    @T.prim_func
    def main(A: T.Tensor((T.dynamic("n"),), "int32")):
        n = A.shape[0]
        assert n > 2, "too short"
        assert len(A.shape) == 1
        with T.Kernel(1):
            assert A[0] == 0, "first is not zero"
            A[1] = 1

    messages = [stmt.message for stmt in support.statements(main, S.Assert)]
    assert messages == ["too short", "first is not zero"]
    with pytest.raises(LanguageError, match="never"):

        @T.prim_func
        def other(A: T.Tensor((3,), "int32")):
            assert len(A.shape) == 2, "never"


def test_a_dtype_without_a_value_is_a_variable_that_let_sets():
    @T.prim_func
    def main(x: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32):
            n = T.int32()
            for i in range(4):
                T.let(n, n + i)
                x[i] = n

    assert support.result(main, "x", x=np.zeros(4, np.int32)).tolist() == [0, 1, 3, 6]
    assert (T.int64() & 1).dtype == "int64"
    with pytest.raises(LanguageError, match="T.let sets a variable"):

        @T.prim_func
        def wrong(x: T.Tensor((4,), "int32")):
            with T.Kernel(1, threads=32):
                T.let(x[0], 1)
