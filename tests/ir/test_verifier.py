"""Every rule of the verifier, each with a program that breaks it."""

from __future__ import annotations

import pytest

from tilecore.errors import LanguageError, VerifyError
from tilecore.ir.parser import parse_program
from tilecore.ir.program import Level
from tilecore.ir.verifier import verify

HEAD = """
program p[n: int32](A: float16[64, n], B: float16[n, 32],
    x: float32[8], c: int32[8], s: int32) level {level} {{
  kernel main(bx in 4, by in n) threads 128 {{
{head}
{body}
  }}
}}
"""
TILES = """
shared a: float16[64, 32]
shared b: float16[32, 32]
fragment d: float32[64, 32]
fragment row: float32[64]
local v: int32[] = 0
"""


def program_of(body, level="tile", head=TILES, filename="user.py"):
    return parse_program(HEAD.format(level=level, head=head, body=body), filename)


GOOD = [
    "copy A[0:+64, by * 32:+32] -> a[:, :]",
    "copy a[:, 3] -> row[:]",
    "fill d[:, :] = 0.0",
    "gemm a[:, :], b[:, :] -> d[:, :]",
    "gemm a[:, :], b[:, :] -> d[:, :] transpose_b clear bx == 0 policy full_row",
    "reduce max d[:, :] -> row[:] axis 1 accumulate",
    "reduce sum d[:, :] -> d[0:+1, :] axis 0",
    "scan sum d[:, :] -> d[:, :] axis 0 reverse",
    "parallel (i, j) in (64, 32) {\nlet y = d[i, j]\nd[i, j] = select(y > 0.0, y, 0.0)\n}",
    "parallel (i) in (64) {\nfor k in unroll(0, 4) {\nif row[i] > 1.0 {\nbreak\n}\n}\n}",
    "parallel (i) in (8) {\nx[i + 100] = 1.0\nx[900] = 1.0\n}",
    "for k in pipelined(0, n, stages=3, order=[0, 1], stage=[0, 1]) {\nv[] = k\nv[] = 1\n}",
    "while v[] < 5 {\nv[] = v[] + 1\ncontinue\n}",
    "let old = atomic add 1 -> c[0]\nc[1] = old",
    "atomic add &row[0:+8] -> x[:]",
    "alias shared flat: float32[1024] of a\nfill flat[:] = 1.0",
    "warps 0, 4 role \"producer\" {\nsync_block()\n}",
    "let t = block.thread()\nif t < 4 {\nx[t] = 1.0\n}\nsync_block()",
    "print \"a\", &a[:, :]\nassert s > 0, \"positive\"",
    "let f = fma(1.0, 2.0, 3.0)\nlet p = popcount(s)\nlet m = abs(s)\nlet q = vendor.magic(f)",
    "let z = bitcast(1.5, int32)\nlet w = (z << int8(3)) >> 1\nlet g = not (z < w or isnan(1.0))",
]  # fmt: skip


@pytest.mark.parametrize("body", GOOD)
def test_legal_programs(body):
    verify(program_of(body))


BAD = [
    # names and scopes
    ("let y = 1\nlet y = 2", "declared twice"),
    ("if s > 1 {\nlet y = 1\n}\nif s > 2 {\nlet y = 1\n}", "declared twice"),
    ("let a = 1", "declared twice"),
    ("for bx in serial(0, 2) {\n}", "declared twice"),
    ("shared x: float32[4]", "declared twice"),
    # expressions
    ("let y = s + int64(1)", "differ in dtype; expected int32, got int64"),
    ("let y = s and s", "and of what are no bools"),
    ("let y = 1.0 & 2.0", "bitand of floats"),
    ("let y = true + true", "add of bools"),
    ("let y = 1.0 << 2", "no integers"),
    ("let y = -true", "neg of a bool"),
    ("let y = ~1.5", "bitnot of a float32"),
    ("let y = not s", "not of a int32"),
    ("let y = select(s, 1, 2)", "a select's condition is no bool"),
    ("let y = select(true, 1, 2.0)", "branches of a select differ"),
    ("let y = bitcast(s, float16)", "different widths"),
    ("let y = int8(300)", "does not fit its dtype"),
    ("let y = frobnicate(1.0)", "an unknown function"),
    ("let y = exp(1.0, 2.0)", "wrong number of arguments of exp"),
    ("let y = exp(s)", "exp of a int32"),
    ("let y = popcount(1.0)", "popcount of what is no integer"),
    ("let y = fma(1.0, 1.0, float64(1.0))", "arguments of fma differ"),
    ("let y = isnan(1.0):float32", "result of isnan"),
    ("let y = popcount(s):float32", "popcount gives an integer"),
    ("let y = x[0, 1]", "wrong number of indices into x; expected 1, got 2"),
    ("let y = x[1.0]", "an index into x is no integer"),
    ("let y = x[8]", "a constant index is outside x; expected 0 <= index < 8, got 8"),
    ("x[-1] = 1.0", "a constant index is outside x"),
    # simple statements
    ("let y: int64 = s", "the value of y has the wrong dtype; expected int64, got int32"),
    ("x[0] = s", "the value stored in x has the wrong dtype"),
    ("x[0, 0] = 1.0", "wrong number of indices"),
    ("assert s, \"m\"", "a condition is no bool"),
    ("if s {\n}", "a condition is no bool"),
    ("while 1 {\n}", "a condition is no bool"),
    # loops and jumps
    ("break", "break outside a loop"),
    ("continue", "continue outside a loop"),
    (
        "for k in serial(0, 4) {\nparallel (i) in (4) {\nbreak\n}\n}",
        "outside a loop of this Parallel",
    ),
    ("for k in vectorized(0, 4) {\nbreak\n}", "break in a vectorized loop"),
    ("for k in vectorized(0, s) {\n}", "no constant extent"),
    ("for k in serial(0, 4, step=0) {\n}", "the step of loop k is 0"),
    ("for k in serial(int64(0), 4) {\n}", "the start of loop k"),
    ("for k in serial(0, 1.5) {\n}", "the extent of loop k is no integer"),
    ("for k: float32 in serial(0.0, 2, step=1.0) {\n}", "a loop variable is no integer"),
    ("for k in pipelined(0, 4) {\n}", "a pipeline plan belongs"),
    ("for k in serial(0, 4, stages=2) {\n}", "a pipeline plan belongs"),
    ("for k in pipelined(0, 4, stages=-1) {\n}", "num_stages is negative"),
    ("for k in pipelined(0, 4, stages=2, order=[0], stage=[0, 1]) {\n}", "differ in length"),
    ("for k in pipelined(0, 4, stages=2, order=[-2]) {\n}", "hold indices"),
    ("for k in pipelined(0, 4, stages=2, group=[[3]]) {\n}", "is not there"),
    # parallel
    ("parallel (i) in (4) {\nparallel (j) in (4) {\n}\n}", "Parallel inside a Parallel"),
    ("parallel (i) in (4) {\ncopy a[:, :] -> a[:, :]\n}", "Copy inside a Parallel"),
    ("parallel (i) in (4) {\nsync_block()\n}", "Intrinsic inside a Parallel"),
    ("parallel (i) in (4) {\nwhile true {\n}\n}", "While inside a Parallel"),
    (
        "parallel (i) in (4) {\nfor k in pipelined(0, 2, stages=1) {\n}\n}",
        "a pipelined loop inside",
    ),
    ("parallel (i) in (4) {\nshared q: int32[4]\n}", "allocated inside a Parallel"),
    ("parallel (i) in (4) {\natomic add &row[0:+8] -> x[:]\n}", "a tile atomic inside a Parallel"),
    ("parallel (i, j) in (4) {\n}", "one extent for each variable"),
    ("parallel (i) in (4.0) {\n}", "the extent of i is no integer"),
    # declarations
    ("shared q: float32[n]", "a shape that is not constant"),
    ("shared q: float32[4, 0]", "has no elements"),
    ("global q: float32[4]", "allocated inside a kernel"),
    ("shared q: float32[4] strides [1]", "has strides"),
    ("local q: float32[2] = 1.0", "has an initial value"),
    ("local q: float32[] = 1", "the initial value of q"),
    ("alias fragment q: float16[2048] of a", "a view of another scope"),
    ("alias shared q: float16[2047] of a", "a view of another size"),
    # regions and tile statements
    ("copy A[0:+64, 0:+-1] -> a[:, :]", "negative"),
    ("copy A[0:+64, 0:+1.0] -> a[:, :]", "a region's extent in A is no integer"),
    ("copy A[0:+64, 1.0:+32] -> a[:, :]", "a region's start in A is no integer"),
    (
        "copy A[0:+64, 0:+31] -> a[:, :]",
        "copy of A to a between different shapes; expected (64, 32), got (64, 31)",
    ),
    ("copy A[0:+64, 0] -> a[:, :]", "between different shapes"),
    ("fill d[:, :] = 0", "the value that fills d"),
    ("gemm a[:, :], a[:, :] -> d[:, :]", "gemm operands disagree on k"),
    ("gemm a[:, :], b[:, :] -> d[0:+32, :]", "gemm operands disagree on m"),
    ("gemm a[:, :], b[:, 0:+16] -> d[:, :]", "gemm operands disagree on n"),
    ("gemm a[:, :], b[:, :] -> d[:, :] transpose_a", "gemm operands disagree on k"),
    ("gemm a[:, 0], b[:, :] -> d[:, :]", "is no matrix"),
    ("gemm A[:, 0:+32], b[:, :] -> d[:, :]", "operand a of gemm, A, is in the wrong scope"),
    ("gemm a[:, :], b[:, :] -> A[:, 0:+32]", "accumulator c of gemm, A, is in the wrong scope"),
    ("gemm a[:, :], b[:, :] -> d[:, :] clear s", "clear_accum is no bool"),
    ("shared i8: int8[64, 32]\ngemm i8[:, :], b[:, :] -> d[:, :]", "gemm mixes dtypes"),
    ("reduce mean d[:, :] -> row[:] axis 1", "an unknown reduction"),
    ("reduce sum d[:, :] -> row[:] axis 2", "along an axis that is not there"),
    ("reduce sum d[:, :] -> row[:] axis 0", "between different shapes"),
    ("reduce sum d[:, :] -> d[0:+2, :] axis 0", "does not keep extent 1"),
    ("reduce bitor d[:, :] -> row[:] axis 1", "reduce_bitor of floats"),
    ("scan min d[:, :] -> d[:, :] axis 0", "an unknown scan"),
    ("scan sum d[:, :] -> d[:, :] axis -1", "along an axis that is not there"),
    ("scan sum d[:, :] -> a[0:+32, :] axis 0", "cumsum between different shapes"),
    # atomics
    ("atomic nand 1 -> c[0]", "an unknown atomic"),
    ("atomic add 1 -> c[0] order sideways", "an unknown memory order"),
    ("atomic add 1.0 -> row[0]", "an atomic on row; expected a global or shared buffer"),
    ("atomic xor 1.0 -> x[0]", "atomic xor on floats"),
    ("atomic add &row[0:+8] -> x[0]", "with a tile"),
    ("atomic add 1.0 -> x[:]", "with a scalar"),
    ("atomic add &row[0:+7] -> x[:]", "between different shapes"),
    ("atomic add true -> c[0]", "with a bool"),
    ("let o: int64 = atomic add 1 -> c[0]", "the previous value has the wrong dtype"),
    ("let o = atomic add &row[0:+8] -> x[:]", "no previous value"),
    # warps, hints, uniformity
    ("warps 4, 4 {\n}", "a warp scope is empty"),
    ("copy a[:, :] -> a[:, :] hints(z=1, a=2)", "hints are not sorted"),
    ("if block.thread() < 4 {\nsync_block()\n}", "T.sync_threads under a condition that differs"),
    (
        "local u: int32[]\nu[] = block.thread()\nif u[] < 4 {\nparallel (i) in (4) {\n}\n}",
        "T.Parallel under a condition",
    ),
    (
        "local u: int32[]\nu[] = block.thread()\nwhile u[] < 4 {\n"
        "gemm a[:, :], b[:, :] -> d[:, :]\n}",
        "T.gemm under",
    ),
    (
        "local u: int32[] = 0\nif block.thread() < 1 {\nu[] = 1\n}\nif u[] > 0 {\nsync_block()\n}",
        "T.sync_threads under",
    ),
    (
        "for k in serial(0, block.thread()) {\nreduce sum d[:, :] -> row[:] axis 1\n}",
        "T.reduce under",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message"), BAD, ids=[text.split("\n")[-1] for text, _ in BAD])
def test_rules_of_the_tile_level(body, message):
    with pytest.raises(LanguageError) as caught:
        verify(program_of(body))
    assert message in str(caught.value)
    assert caught.value.loc is not None
    assert caught.value.loc.file == "user.py"


def test_the_line_is_the_statement_s():
    with pytest.raises(LanguageError) as caught:
        verify(program_of("let y = 1\nif s > 0 {\nx[0] = y\n}", head=""))
    assert caught.value.loc.line == 8  # the head has five lines


# --- programs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("program p[n: int32 multiple_of 0]() level tile {\n}", "multiple of nothing"),
        ("program p[n: int32 lower 3 upper 2]() level tile {\n}", "has no value"),
        ("program p[n: float32]() level tile {\n}", "no integer"),
        ("program p(shared A: float32[4]) level tile {\n}", "is not global"),
        ("program p(A: float32[4] strides [1, 2]) level tile {\n}", "a stride for each axis"),
        ("program p(A: float32[-4]) level tile {\n}", "is negative"),
        ("program p(A: float32[1.5]) level tile {\n}", "no integer"),
        ("program p(A: float32[4], A: float32[4]) level tile {\n}", "declared twice"),
        ("program p(A: float32[4]) outputs (1) level tile {\n}", "no parameter"),
        ("program p(A: float32[4], s: int32) outputs (1) level tile {\n}", "a scalar as an output"),
        ("program p(A: float32[4]) outputs (0, 0) level tile {\n}", "named twice"),
        (
            "program p() level tile {\nkernel k(b in 1) threads 1 {\n}\n"
            "kernel k(c in 1) threads 1 {\n}\n}",
            "two kernels have the same name",
        ),
        (
            "program p() level tile {\nkernel k(b in 1) threads 1 order diagonal 2 {\n}\n}",
            "an unknown block order",
        ),
    ],
)
def test_programs(text, message):
    with pytest.raises(LanguageError, match=message):
        verify(parse_program(text))


# --- levels and layouts -----------------------------------------------------------------------

LAYOUTS = """
layout a = [64:32, 32:1] ^ (2, 3, 3)
layout b = [32:33, 32:1]
layout d = <(8:t4 8:r4), (4:r1 4:t1 2:t32)>
layout row = <(8:t4 8:r1); 4:t1 2:t32>
"""


def test_a_scheduled_program():
    verify(program_of("gemm a[:, :], b[:, :] -> d[:, :]", "scheduled", LAYOUTS + TILES))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("layout a = [64:32, 32:1] ^ (2, 3, 3)\n", "", "the shared buffer a has no layout"),
        ("layout row", "layout rows", "what is no buffer on the chip"),
        ("a = [64:32, 32:1] ^ (2, 3, 3)", "a = [2048:1]", "has the wrong rank"),
        ("a = [64:32, 32:1]", "a = [64:32, 16:1]", "is too small"),
        ("a = [64:32, 32:1]", "a = [64:31, 32:1]", "two elements in one place"),
        ("b = [32:33, 32:1]", "b = <32:t1, 32:r1>", "has a fragment layout"),
        ("(8:t4 8:r1)", "(8:t4 8:t64)", "needs more threads"),
        ("(8:t4 8:r1)", "(8:t4 8:r0)", "two elements in one place"),
    ],
)
def test_layouts(old, new, message):
    assert old in LAYOUTS
    with pytest.raises(VerifyError, match=message) as caught:
        verify(program_of("", "scheduled", LAYOUTS.replace(old, new) + TILES))
    assert caught.value.loc is not None


def test_layouts_are_sorted():
    lines = LAYOUTS.strip().split("\n")
    head = "\n".join([lines[1], lines[0], *lines[2:]]) + "\n" + TILES
    with pytest.raises(VerifyError, match="not sorted"):
        verify(program_of("", "scheduled", head))


def test_authors_layouts_are_checked_too():
    with pytest.raises(LanguageError, match="two elements in one place"):
        verify(program_of("", "tile", "layout a = [64:1, 32:1]\n" + TILES))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("copy x[:] -> x[:]", "the tile statement Copy"),
        ("parallel (i) in (4) {\n}", "the tile statement Parallel"),
        ("fragment f: float32[4]", "the fragment f"),
        ("local f: float32[4]\natomic add &f[:] -> x[0:+4]", "a tile atomic at the lane level"),
        ("let y = s + int64(1)", "differ in dtype"),
    ],
)
def test_the_lane_level(body, message):
    with pytest.raises(VerifyError, match=message):
        verify(program_of(body, "lane", ""))


def test_passes_may_copy_statements_into_scopes_that_do_not_meet():
    body = "if s > 1 {\nlet y = 1\nc[0] = y\n}\nif s > 2 {\nlet y = 1\nc[0] = y\n}"
    verify(program_of(body, "lane", ""))
    with pytest.raises(VerifyError, match="declared twice"):
        verify(program_of("let y = 1\nlet y = 1", "lane", ""))


def test_the_level_can_be_asked_for():
    program = program_of("copy x[:] -> x[:]", "tile", "")
    verify(program)
    with pytest.raises(VerifyError):
        verify(program, Level.LANE)
