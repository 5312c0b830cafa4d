"""Random statements on variables: a tile program and plain Python give the same values."""

from __future__ import annotations

import importlib.util
import textwrap

import language_support as support
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NAMES = ("x", "y", "z")
atoms = st.sampled_from(NAMES) | st.integers(-9, 9).map(lambda v: f"({v})")


@st.composite
def expressions(draw, depth=2):
    if depth == 0 or draw(st.booleans()):
        return draw(atoms)
    a, b = draw(expressions(depth=depth - 1)), draw(expressions(depth=depth - 1))
    form = draw(st.sampled_from(
        ["({a} + {b})", "({a} - {b})", "({a} * {b}) % 97", "({a} // 7 + {b} % 5)", "-{a}",
         "({a} if {c} else {b})", "({a} & {b})", "({a} ^ {b})"]
    ))  # fmt: skip
    condition = draw(conditions(depth=depth - 1)) if "{c}" in form else ""
    return f"({form.format(a=a, b=b, c=condition)}) % 89 - 44"


@st.composite
def conditions(draw, depth=1):
    a, b, c = (draw(atoms) for _ in range(3))
    form = draw(st.sampled_from(["{a} < {b}", "{a} == {b}", "{a} <= {b} < {c}", "not {a}", "{a}"]))
    text = form.format(a=a, b=b, c=c)
    if depth and draw(st.booleans()):
        other = draw(conditions(depth=depth - 1))
        text = f"{text} {draw(st.sampled_from(['and', 'or']))} ({other})"
    return text


@st.composite
def blocks(draw, depth=2, in_loop=False):
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        lines += draw(statements(depth, in_loop))
    return lines


def indented(lines):
    return [f"    {line}" for line in lines]


@st.composite
def statements(draw, depth, in_loop):
    kinds = ["set", "add", "pair"] + (["if", "else", "for", "while"] if depth else [])
    kinds += ["break", "continue"] if in_loop else []
    kind = draw(st.sampled_from(kinds))
    name = draw(st.sampled_from(NAMES))
    if kind == "set":
        return [f"{name} = {draw(expressions())}"]
    if kind == "add":
        return [f"{name} += {draw(atoms)}", f"{name} = {name} % 1009"]
    if kind == "pair":
        return [f"{name}, z = z, {draw(expressions(depth=1))}"]
    if kind in ("break", "continue"):
        return [f"if {draw(conditions())}:", f"    {kind}"]
    if kind in ("if", "else"):
        lines = [f"if {draw(conditions())}:", *indented(draw(blocks(depth - 1, in_loop)))]
        if kind == "else":
            lines += [f"elif {draw(conditions())}:", *indented(draw(blocks(depth - 1, in_loop)))]
            lines += ["else:", *indented(draw(blocks(depth - 1, in_loop)))]
        return lines
    body = indented(draw(blocks(depth - 1, True)))
    if kind == "for":
        loop = draw(st.sampled_from(["range(3)", "range(1, 8, 3)", "range(4, 0, -2)", "(0, 1)"]))
        if loop == "(0, 1)":  # unrolled while tracing: runtime conditions cannot leave it
            body = indented(draw(blocks(depth - 1, False)))
        index = f"i{depth}"
        return [f"for {index} in {loop}:", f"    x = x + {index}", *body]
    count = f"n{depth}"
    return [f"{count} = 0", f"while {count} < 3 and ({draw(conditions())}):",
            f"    {count} += 1", *body]  # fmt: skip


def load(text, path):
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROGRAM = """
import tilecore.language as T

@T.prim_func
def tile(A: T.Tensor((4, 3), "int32"), R: T.Tensor((4, 3), "int32")):
    with T.Kernel(4) as b:
        x = T.alloc_var(T.int32, init=A[b, 0])
        y = T.alloc_var(T.int32, init=A[b, 1])
        z = T.alloc_var(T.int32, init=A[b, 2])
        n1, n2 = T.alloc_var(T.int32), T.alloc_var(T.int32)
{tile}
        R[b, 0] = x
        R[b, 1] = y
        R[b, 2] = z

def plain(x, y, z):
{plain}
    return x, y, z
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("programs")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(blocks(), st.lists(st.tuples(*[st.integers(-20, 20)] * 3), min_size=4, max_size=4))
def test_tile_programs_do_what_python_does(folder, lines, inputs):
    body = "\n".join(lines)
    text = PROGRAM.format(tile=textwrap.indent(body, " " * 8), plain=textwrap.indent(body, " " * 4))
    name = f"p{abs(hash(text))}"
    module = load(text, folder / f"{name}.py")
    a = np.array(inputs, np.int32)
    out = support.result(module.tile, "R", A=a, R=np.zeros((4, 3), np.int32))
    np.testing.assert_array_equal(out, [module.plain(*row) for row in inputs], err_msg=body)
