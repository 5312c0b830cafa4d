"""print(parse(print(p))) == print(p) and parse(print(p)) == p, for random IR of every level."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ir.strategies import Names, blocks, buffers, exprs, programs, variables
from tilecore.errors import Loc, ParseError, TilecoreError, VerifyError
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import float16, float32, int32
from tilecore.ir.expr import Const, Unary, Var, const, walk
from tilecore.ir.parser import parse_block, parse_expr, parse_program
from tilecore.ir.printer import format_block, format_expr, format_program
from tilecore.ir.stmts import Break, Let

relaxed = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)


@st.composite
def scopes(draw):
    names = Names()
    names.vars = [draw(variables(names)) for _ in range(3)]
    names.buffers = [draw(buffers(names)) for _ in range(3)]
    return names


def promises_of(node):
    """Every variable with its promises, which equality does not see, in program order."""
    if isinstance(node, Var):
        return [(node.name, node.multiple_of, node.lower, node.upper)]
    if isinstance(node, tuple):
        return [item for child in node for item in promises_of(child)]
    if dataclasses.is_dataclass(node):
        fields = (getattr(node, field.name) for field in dataclasses.fields(node))
        return [item for child in fields for item in promises_of(child)]
    return []


@relaxed
@given(st.data())
def test_expressions(data):
    names = data.draw(scopes())
    expr = data.draw(exprs(names, 4))
    text = format_expr(expr)
    again = parse_expr(text, [*names.vars, *names.buffers])
    assert again == expr
    assert format_expr(again) == text


@relaxed
@given(st.data())
def test_blocks(data):
    names = data.draw(scopes())
    block = data.draw(blocks(names, 3))
    text = format_block(block)
    again = parse_block(text, [*names.vars, *names.buffers])
    assert again == block
    assert format_block(again) == text
    assert promises_of(again) == promises_of(block)


@relaxed
@given(programs())
def test_programs(program):
    text = format_program(program)
    again = parse_program(text)
    assert again == program
    assert format_program(again) == text
    assert promises_of(again) == promises_of(program)


def test_locations_are_comments():
    block = (Let(Var("x"), const(1), Loc("user.py", 7)), Break(Loc("user.py", 8)))
    text = format_block(block, locs=True)
    assert text == "let x = 1  # user.py:7\nbreak  # user.py:8\n"
    again = parse_block(text, filename="dump.txt")
    assert again == block
    assert [stmt.loc for stmt in again] == [Loc("dump.txt", 1), Loc("dump.txt", 2)]


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a + b * c", "a + (b * c)"),
        ("a - b - c", "(a - b) - c"),
        ("a - (b - c)", "a - (b - c)"),
        ("a // b % c", "(a // b) % c"),
        ("a & b == c", "(a & b) == c"),
        ("a | b ^ c & a", "a | (b ^ (c & a))"),
        ("-a * b", "(-a) * b"),
        ("a << b + c", "a << (b + c)"),
        ("a < b and b < c or c < a", "((a < b) and (b < c)) or (c < a)"),
        ("not a < b and b < c", "(not (a < b)) and (b < c)"),
        ("- 3", "(-3)"),
    ],
)
def test_precedence_is_python_s(text, meaning):
    names = [Var("a"), Var("b"), Var("c")]
    assert parse_expr(text, names) == parse_expr(meaning, names)


def test_a_sign_before_a_number_belongs_to_it():
    assert parse_expr("-3") == Const(-3, int32)
    assert parse_expr("-(3)") == Unary("neg", Const(3, int32), int32)
    assert parse_expr("-0.0") == Const(-0.0, float32)
    assert parse_expr("-0.0") != Const(0.0, float32)


def test_uses_are_the_declared_variables():
    text = "let x multiple_of 8 lower 1 upper 64 = n * 8\nlet y = x + 1\n"
    first, second = parse_block(text, [Var("n")])
    assert isinstance(first, Let)
    assert isinstance(second, Let)
    used = [node for node in walk(second.value) if isinstance(node, Var)]
    assert used[0] is first.var


A = Buffer("A", (const(8), const(4)), float16, Scope.GLOBAL)


@pytest.mark.parametrize(
    ("text", "line", "column", "word"),
    [
        ("let x = 1 +", 1, 12, "an expression"),
        ("let x = y", 1, 9, "a declared variable"),
        ("let x = 1\nlet z = x ? 2", 2, 11, "unexpected character"),
        ("A[1, 2] = 3.0 4.0", 1, 15, "the end of the line"),
        ("copy A[0:+2] -> A[:, :]", 1, 6, "2 axes"),
        ("copy A[0:+2, 1, 2] -> A[:, :]", 1, 17, "2 axes"),
        ("if true {\n  break\n", 3, 1, "a statement"),
        ("for i in sideways(0, 4) {\n}", 1, 10, "serial"),
        ("let while = 3", 1, 5, "backticks"),
        ("local x: float12[]", 1, 10, "a dtype"),
        ("let x = int32(1.5)", 1, 15, "a literal of int32"),
        ("let x = 1 < 2 < 3", 1, 15, "parentheses"),
        ('print "\\q"', 1, None, "escape"),
        ("B[0] = 1", 1, 1, "a declared buffer"),
        ("{", 1, 1, "a statement"),
    ],
)
def test_errors_say_where_and_what(text, line, column, word):
    with pytest.raises(ParseError) as caught:
        parse_block(text, [A], filename="t.ir")
    message = str(caught.value)
    assert caught.value.loc == Loc("t.ir", line)
    assert word in message
    if column is not None:
        assert f"column {column}" in message


@pytest.mark.parametrize(
    "text",
    [
        "program p() level nowhere {\n}",
        "program p() {\n}",
        "program p() level tile {\n  kernel k() threads 1 cluster (1, 2) {\n  }\n}",
        "program p() level tile {\n  kernel k() threads 1 {\n    layout a = [1:q]\n  }\n}",
        "program p() level tile {\n  kernel k() threads 1 {\n    layout a = <1:x2>\n  }\n}",
        "program p() level tile {\n} extra",
        "program p(A: float16[n], n: float99) level tile {\n}",
        "program p() level tile {\n  break\n}",
    ],
)
def test_broken_programs_are_refused(text):
    with pytest.raises(ParseError):
        parse_program(text)


def test_shapes_may_use_scalars_that_come_later():
    program = parse_program("program p(A: float16[n, 2], n: int32) level tile {\n}\n")
    assert program.params[0].shape[0] == Var("n")


def test_names_without_a_text_form_are_refused():
    with pytest.raises(VerifyError):
        format_expr(Var("a`b"))
    with pytest.raises(VerifyError):
        format_expr(Var("a\nb"))


def test_a_lane_kernel_sees_flat_buffers():
    text = (
        "program p[n: int32](A: float16[n, 4]) level lane {\n"
        "  kernel k(b in n) threads 32 {\n"
        "    use A: float16[n * 4]\n"
        "    A[b * 4] = A[b * 4 + 1]\n"
        "  }\n"
        "}\n"
    )
    program = parse_program(text)
    (store,) = program.kernels[0].body
    assert store.buffer.rank == 1
    assert program.params[0].rank == 2
    assert format_program(program) == text
    assert parse_program(format_program(program)) == program


SAMPLE = """
program p[n: int32 multiple_of 8](A: float16[n, 4] strides [n, 1] safe -1.5, s: int32)
    outputs (0) level tile {
  workspace w: float32[n]
  kernel k(bx in n // 8, by in 2) threads 128 order row 4 cluster (2, 1, 1) hints(a=[1, "x"]) {
    layout t = [64:32, (4:1 8:4)] ^ (2, 3, 3)
    layout f = <(2:r1 4:t1), 8:t4; 4:t32>
    shared t: float16[64, 32]
    alias shared u: float16[2048] of t
    let x = min(s, 3) + int64(4)
    for i in pipelined(0, n, step=2, stages=3, order=[0], group=[[0]]) {
      copy A[i:+64, :] -> t[0:+64, 0] hints(w=1.5)
    }
    parallel (a, b) in (64, 32) {
      if t[a, b] > float16(0.0) and not a == b {
        let o = atomic add &w[0:+2] -> w[1:+2] order acq_rel
      } else if true {
        t[a, b] = select(a < b, exp(t[a, b]), -t[b, a])
      }
    }
    gemm t[:, :], t[:, :] -> t[:, :] transpose_a clear s == 0 policy full_col
    print "done", &t[:, :]
  }
}
""".replace("\n    outputs", " outputs")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_text_is_an_error_and_nothing_worse(data):
    text = SAMPLE
    parse_program(text)
    pieces = ["", "(", ")", "{", "}", "[", "]", ":", "<", "x", "7", "-", "\n", "and", '"', "`", "#"]
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 6))
        new = data.draw(st.sampled_from(pieces))
        text = text[:start] + new + text[end:]
    try:
        program = parse_program(text, "damaged.ir")
    except TilecoreError as error:
        assert isinstance(error, VerifyError) or error.loc is not None
    else:
        assert parse_program(format_program(program)) == program
