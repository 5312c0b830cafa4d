"""What the reference reports: undefined behaviour, failed assertions and wrong arguments."""

from __future__ import annotations

import io

import numpy as np
import pytest

from tilecore.errors import (
    ArgumentError,
    DeviceAssertError,
    EmulatorFault,
    LanguageError,
    UnsupportedError,
)
from tilecore.ir.parser import parse_program
from tilecore.reference import run


def one_block(body, threads=32):
    return parse_program(
        "program p(x: float32[8], n: int32) level tile {\n"
        f"  kernel main(b in 2) threads {threads} {{\n{body}\n  }}\n}}\n",
        filename="user.py",
    )


def execute(body, n=3, **options):
    x = np.arange(8, dtype=np.float32)
    run(one_block(body), {"x": x, "n": n}, **options)
    return x


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("x[n + 6] = 0.0", "expected inside [8], got [9]"),
        ("let v = x[n - 4]\nx[0] = v", "reads outside buffer x"),
        ("let v = x[block.thread()]", "got [8]"),
        ("let v = n // (n - 3)", "floordiv by zero"),
        ("if block.thread() < 5 {\nsync_block()\n}", "not all lanes"),
    ],
)
def test_undefined_behaviour_is_a_fault_with_line_and_block(body, word):
    with pytest.raises(EmulatorFault) as caught:
        execute(body)
    assert word in str(caught.value)
    assert caught.value.loc.file == "user.py"
    assert "block (b=0)" in str(caught.value)


def test_a_branch_not_taken_touches_nothing():
    x = execute("x[0] = select(n > 5, x[n + 100], 7.0)")
    assert x[0] == 7
    with pytest.raises(EmulatorFault):
        execute("x[0] = select(n > 2, x[n + 100], 7.0)")


@pytest.mark.parametrize(
    "use",
    [
        "x[0] = s[1]",
        "parallel (i) in (4) {\nx[i] = s[i]\n}",
        "reduce sum s[:] -> x[0:+1] axis 0",
        "shared t: float32[4]\ncopy s[:] -> t[:]\nx[0] = t[3]",
        "local v: float32[]\nx[0] = v[]",
    ],
)
def test_uses_of_undefined_elements(use):
    body = "shared s: float32[4]\ns[0] = 1.0\n" + use
    with pytest.raises(EmulatorFault, match="never written"):
        execute(body, check_uninitialised=True)
    assert np.isnan(execute(body)).any()


def test_copying_undefined_elements_nowhere_is_no_fault():
    body = "shared s: float32[4]\ns[0] = 1.0\nfill s[1:+1] = 2.0\ncopy s[:] -> x[6:+4]"
    assert execute(body, check_uninitialised=True).tolist() == [0, 1, 2, 3, 4, 5, 1, 2]


def test_a_local_written_by_iterations_is_undefined_afterwards():
    body = "local v: float32[] = 1.0\nparallel (i) in (4) {\nv[] = v[] + x[i]\nx[i] = v[]\n}\n"
    assert execute(body)[7] == 7
    with pytest.raises(EmulatorFault, match="never written"):
        execute(body + "x[5] = v[]", check_uninitialised=True)


def test_assertions_and_prints():
    with pytest.raises(DeviceAssertError, match=r"user.py:4.*n is small") as caught:
        execute('let y = 1\nassert n > 5, "n is small"')
    assert caught.value.loc.line == 4
    out = io.StringIO()
    execute('print "n = ", n\nprint "x: ", &x[0:+2]', output=out)
    assert out.getvalue() == "n = 3\nx: [0. 1.]\n" * 2


def test_what_has_no_meaning_here_is_refused():
    with pytest.raises(UnsupportedError, match="vendor.thing"):
        execute("vendor.thing()")
    with pytest.raises(UnsupportedError, match="vendor.value"):
        execute("let v = vendor.value()")
    with pytest.raises(LanguageError, match="different shapes"):
        execute("shared s: float32[4]\ncopy x[0:+3] -> s[:]")
    with pytest.raises(LanguageError, match="depends on the lane"):
        execute("let t = block.thread()\nparallel (i) in (4) {\nx[i] = cast(t, float32)\n}")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"n": 1}, "missing argument"),
        ({"x": np.zeros(8, np.float32)}, "missing argument"),
        ({"x": np.zeros(9, np.float32), "n": 1}, "wrong shape"),
        ({"x": np.zeros((8, 1), np.float32), "n": 1}, "wrong rank"),
        ({"x": np.zeros(8, np.int32), "n": 1}, "wrong dtype"),
        ({"x": np.zeros(8, np.float32), "n": 2**31}, "does not fit"),
        ({"x": np.zeros(8, np.float32), "n": 1.5}, "does not fit"),
        ({"x": np.zeros(8, np.float32), "n": 1, "z": 2}, "no such parameter"),
    ],
)
def test_wrong_arguments(arguments, word):
    with pytest.raises(ArgumentError, match=word):
        run(one_block("x[0] = 1.0"), arguments)


def test_barriers_order_what_is_in_order_already():
    body = (
        "shared bar: uint64[1]\nbarrier.init(&bar[0], 1)\nbarrier.arrive(&bar[0])\n"
        "barrier.wait(&bar[0], 0)\nnamed_barrier.sync(1, 32)\nsync_warp()\n"
        "warps 0, 1 {\nx[0] = 5.0\n}\nasync.copy(&x[0:+2], &x[2:+2])\nasync.commit()\n"
        "async.wait(0)"
    )
    assert execute(body)[:4].tolist() == [5, 1, 5, 1]
    for wait in ("barrier.wait(&bar[0], 0)", "named_barrier.sync(1, 64)"):
        with pytest.raises(UnsupportedError, match="wait for (each other|one another)"):
            execute(f"shared bar: uint64[1]\nwarps 0, 1 {{\n{wait}\n}}")


def test_a_read_only_result_is_refused():
    x = np.zeros(8, np.float32)
    x.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        run(one_block("x[0] = 1.0"), {"x": x, "n": 1})


def test_lower_levels_are_refused():
    program = parse_program("program p() level lane {\n}")
    with pytest.raises(UnsupportedError):
        run(program, {})
