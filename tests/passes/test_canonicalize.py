"""Text in, text out; and random programs that must do the same before and after."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilecore.errors import EmulatorFault
from tilecore.ir.parser import parse_program
from tilecore.ir.printer import format_program
from tilecore.passes.canonicalize import canonicalize
from tilecore.reference import run

HEAD = "program p[n: int32 multiple_of 128](x: int32[64], y: float32[n], s: int32) level tile {\n"


def program_with(body, grid="bx in n // 128, by in 4"):
    text = f"{HEAD}  kernel main({grid}) threads 128 {{\n{body}\n  }}\n}}\n"
    return parse_program(text)


def body_of(program):
    """The kernel's lines, without their common indent."""
    lines = format_program(program).splitlines()[2:-2]
    return [line[4:] for line in lines]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("let a = bx\nx[a] = a", ["x[bx] = bx"]),
        ("let a = bx * 2\nlet b = a + 1", []),
        ("let a = x[0]\nx[1] = a + a", ["let a = x[0]", "x[1] = a + a"]),
        ("let a multiple_of 8 = s\nx[a] = 1", ["let a multiple_of 8 = s", "x[a] = 1"]),
        ("if by < 4 {\nx[0] = 1\n} else {\nx[0] = 2\n}", ["x[0] = 1"]),
        ("if by > 4 {\nx[0] = 1\n} else {\nx[0] = 2\n}", ["x[0] = 2"]),
        ("if s > 4 {\nlet z = s\n}", []),
        ("if s > 4 {\n} else {\nx[0] = 2\n}", ["if s <= 4 {", "  x[0] = 2", "}"]),
        ("if s > 4 {\nif s > 3 {\nx[0] = 2\n}\n}", ["if s > 4 {", "  x[0] = 2", "}"]),
        ("if s > 4 {\nx[0] = 1\n} else if s > 4 {\nx[0] = 2\n}", ["if s > 4 {", "  x[0] = 1", "}"]),
        ("for k in serial(0, 0) {\nx[k] = 1\n}", []),
        ("for k in serial(by, 1) {\nx[k] = by\n}", ["x[by] = by"]),
        ("for k in pipelined(2, 1, stages=3) {\nx[k] = k\n}", ["x[2] = 2"]),
        (
            "for k in serial(0, 1) {\nif s < 2 {\nbreak\n}\nx[k] = 1\n}",
            ["for k in serial(0, 1) {", "  if s < 2 {", "    break", "  }", "  x[0] = 1", "}"],
        ),
        (
            "for k in serial(0, 1) {\nfor l in serial(0, s) {\nbreak\n}\n}",
            ["for l in serial(0, s) {", "  break", "}"],
        ),
        ("while by < 0 {\nx[0] = 1\n}", []),
        ("parallel (i) in (0) {\nx[i] = 1\n}", []),
        (
            "parallel (i) in (64) {\nif by * 64 + i < 256 {\nx[(i * 8 + 4) // 8] = by\n}\n}",
            ["parallel (i) in (64) {", "  x[i] = by", "}"],
        ),
        (
            "parallel (i) in (128) {\ny[bx * 128 + i] = select(bx * 128 + i < n, 1.0, 0.0)\n}",
            ["parallel (i) in (128) {", "  y[bx * 128 + i] = 1.0", "}"],
        ),
        (
            "parallel (i) in (64) {\nlet o = atomic add 1 -> x[i]\n}",
            ["parallel (i) in (64) {", "  atomic add 1 -> x[i]", "}"],
        ),
        (
            "shared t: int32[64]\ncopy x[by * 16 // 16:+64] -> t[0 + by - by:+64]",
            ["shared t: int32[64]", "copy x[by:+64] -> t[:]"],
        ),
        (
            "for k in pipelined(0, s, stages=2, order=[0, 1], stage=[0, 1]) {\n"
            "let a = 1\nif by < 9 {\nx[k] = a\nx[0] = a\n}\n}",
            [
                "for k in pipelined(0, s, stages=2, order=[0, 1], stage=[0, 1]) {",
                "  let a = 1",
                "  if by < 9 {",
                "    x[k] = a",
                "    x[0] = a",
                "  }",
                "}",
            ],
        ),
    ],
)
def test_rules(before, after):
    assert body_of(canonicalize(program_with(before))) == after


def test_buffers_that_nobody_mentions_are_dropped_with_their_layouts():
    body = (
        "layout t = [64:1]\nlayout u = [64:1]\nshared t: int32[64]\nshared u: int32[64]\n"
        "alias shared w: int32[8, 8] of t\nlocal z: int32[] = s\nlocal q: int32[]\n"
        "u[0] = 1\nq[] = u[0]\nx[0] = q[]"
    )
    assert body_of(canonicalize(program_with(body))) == [
        "layout u = [64:1]", "shared u: int32[64]", "local q: int32[]",
        "u[0] = 1", "q[] = u[0]", "x[0] = q[]",
    ]  # fmt: skip


def test_grid_extents_are_simplified():
    program = canonicalize(program_with("x[0] = bx", grid="bx in (n + 127) // 128"))
    assert "main(bx in n // 128)" in format_program(program)


def test_a_grid_of_one_block_has_no_index():
    assert body_of(canonicalize(program_with("x[bx] = bx + s", grid="bx in 1"))) == ["x[0] = s"]


def test_stores_whose_indices_are_all_variables_are_rewritten_too():
    body = "let a = by\nparallel (i) in (64) {\nx[a] = i\n}"
    assert body_of(canonicalize(program_with(body)))[1] == "  x[by] = i"


# --- random programs --------------------------------------------------------------------------


class Writer:
    """Draws the text of a random program that touches only what it may."""

    def __init__(self, draw):
        self.draw = draw
        self.fresh = count()
        self.names = ["n", "s", "bx"]

    def pick(self, *options):
        return self.draw(st.sampled_from(options))

    def index(self, depth=3):
        if depth == 0 or self.pick(0, 1, 1) == 0:
            return self.pick(*self.names, *map(str, (0, 1, 2, 3, 8, 16)))
        a, b = self.index(depth - 1), self.index(depth - 1)
        kind = self.pick("+", "-", "*", "//", "%", "min", "select", "load")
        if kind in "+-":
            return f"({a} {kind} {b})"
        if kind in ("*", "//", "%"):
            return f"({a} {kind} {self.pick(1, 2, 4, 8, 16)})"
        if kind == "select":
            return f"select({self.condition(depth - 1)}, {a}, {b})"
        if kind == "load":
            return f"x[{a} % 64]"
        return f"{self.pick('min', 'max')}({a}, {b})"

    def condition(self, depth=2):
        a, b = self.index(depth), self.index(depth)
        test = f"{a} {self.pick('<', '<=', '==', '!=', '>', '>=')} {b}"
        return f"({test} {self.pick('and', 'or')} {self.index(0)} < 8)" if depth > 1 else test

    def block(self, depth, in_loop=False):
        outside = list(self.names)
        lines = [self.stmt(depth, in_loop) for _ in range(self.draw(st.integers(1, 3)))]
        self.names = outside
        return "\n".join(lines)

    def stmt(self, depth, in_loop):
        kinds = ["store", "let", "let"]
        kinds += ["if", "for", "for", "else"] if depth else []
        kinds += ["jump"] if in_loop else []
        kind = self.pick(*kinds)
        if kind == "store":
            return f"x[{self.index()} % 64] = {self.index()}"
        if kind == "let":
            name = f"v{next(self.fresh)}"
            line = f"let {name} = {self.index()}"
            self.names.append(name)
            return line
        if kind == "jump":
            return f"if {self.condition()} {{\n{self.pick('break', 'continue')}\n}}"
        if kind == "for":
            name = f"k{next(self.fresh)}"
            start, extent = self.pick("0", "bx", "-2"), self.pick("0", "1", "2", "3", "s", "n // 4")
            step = self.pick("", ", step=2", ", step=4")
            outside = list(self.names)
            self.names.append(name)
            body = self.block(depth - 1, in_loop=True)
            self.names = outside
            return f"for {name} in serial({start}, {extent}{step}) {{\n{body}\n}}"
        text = f"if {self.condition()} {{\n{self.block(depth - 1, in_loop)}\n}}"
        return text + (f" else {{\n{self.block(depth - 1, in_loop)}\n}}" if kind == "else" else "")


@st.composite
def random_programs(draw):
    writer = Writer(draw)
    body = writer.block(3)
    multiple = draw(st.sampled_from([1, 4]))
    return (
        f"program p[n: int32 multiple_of {multiple}](x: int32[64], s: int32, z: int32[n])"
        f" level tile {{\nkernel main(bx in (n + 3) // 4) threads 32 {{\n{body}\n}}\n}}\n"
    )


@settings(max_examples=80, deadline=None)
@given(random_programs(), st.integers(-3, 5), st.sampled_from([0, 4, 8, 12]))
def test_random_programs_keep_their_meaning(text, s, n):
    program = parse_program(text)
    small = canonicalize(program)
    results = []
    for one in (program, small):
        x = np.arange(64, dtype=np.int32) * 3 - 20
        try:
            run(one, {"x": x, "s": s, "z": np.zeros(n, np.int32)})
        except EmulatorFault as fault:
            results.append(str(fault.reason))
        results.append(x)
    np.testing.assert_array_equal(results[0], results[1], err_msg=format_program(small))
    assert len(format_program(small)) <= 2 * len(format_program(program))


@settings(max_examples=30, deadline=None)
@given(random_programs())
def test_the_normal_form_is_one(text):
    once = canonicalize(canonicalize(parse_program(text)))
    again = canonicalize(canonicalize(once))
    assert canonicalize(again) == again
