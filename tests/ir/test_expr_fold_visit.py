"""Folding keeps values; walking and rebuilding keep structure."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ir.strategies import Names, blocks, buffers, exprs, variables
from tilecore.errors import VerifyError
from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import (
    ALL,
    bfloat16,
    boolean,
    dtype_of,
    float16,
    float32,
    float64,
    int4,
    int8,
    int16,
    int32,
    int64,
    numpy_dtype,
    promote,
    uint8,
    uint64,
)
from tilecore.ir.expr import (
    ARITHMETIC,
    BITWISE,
    COMPARISON,
    FALSE,
    LOGICAL,
    TRUE,
    Binary,
    Cast,
    Const,
    Load,
    Select,
    Var,
    binary,
    const,
    free_vars,
    mentioned,
    rebuild,
    substitute,
    transform,
    walk,
)
from tilecore.ir.fold import wrap_int
from tilecore.ir.parser import parse_block
from tilecore.ir.printer import format_block
from tilecore.ir.ranges import Ranges
from tilecore.ir.visit import (
    buffers_in,
    map_exprs,
    map_stmts,
    regions_of,
    substitute_block,
    walk_stmts,
)
from tilecore.reference.evaluate import Frame, evaluate

ON = np.asarray(True)
INTS = [int4, int8, uint8, int32, int64, uint64]


def value(expr, values=()):
    with np.errstate(all="ignore"):
        return evaluate(expr, Frame((), dict(values), is_exact=True), ON)


@given(st.data(), st.sampled_from(INTS))
def test_folding_integers_keeps_the_value(data, dtype):
    number = st.integers(-300, 300).map(lambda v: wrap_int(v, dtype))
    x, y = Var("x", dtype), Var("y", dtype)
    values = {name: np.asarray(data.draw(number)).astype(numpy_dtype(dtype)) for name in "xy"}
    if dtype is int4:
        values = {name: v.astype(np.int8) for name, v in values.items()}
    operand = st.one_of(st.sampled_from([x, y]), number.map(lambda v: const(v, dtype)))

    def draw(depth):
        if depth == 0:
            built = data.draw(operand)
            return built, built
        op = data.draw(st.sampled_from(ARITHMETIC[:3] + ARITHMETIC[4:8] + BITWISE + COMPARISON))
        a, b = draw(depth - 1), draw(depth - 1)
        if op in COMPARISON:
            condition, raw = binary(op, a[0], b[0]), Binary(op, a[1], b[1], boolean)
            one, zero = const(1, dtype), const(0, dtype)
            return Select(condition, one, zero, dtype), Select(raw, one, zero, dtype)
        if op in ("floordiv", "floormod", "shl", "shr"):
            low = const(data.draw(st.integers(1, 3)), dtype)
            b = (low, low)
        return binary(op, a[0], b[0]), Binary(op, a[1], b[1], dtype)

    folded, raw = draw(3)
    assert value(folded, values) == value(raw, values)


@given(
    st.sampled_from(COMPARISON),
    st.floats(),
    st.floats(),
    st.sampled_from([float64, float32, float16, bfloat16]),
)
def test_folding_float_comparisons(op, a, b, dtype):
    folded = binary(op, Const(a, dtype), Const(b, dtype))
    assert isinstance(folded, Const)
    assert folded.value == bool(value(Binary(op, Const(a, dtype), Const(b, dtype), boolean)))


def test_literals_are_compared_as_their_dtype_holds_them():
    near = Const(0.1 + 1e-12, float32)
    assert binary("eq", Const(0.1, float32), near) == TRUE
    assert binary("eq", Const(0.1, float64), Const(0.1 + 1e-12, float64)) == FALSE


@given(st.sampled_from(["add", "sub", "mul"]), st.floats(), st.floats())
def test_float_arithmetic_folds_only_in_float64(op, a, b):
    wide = binary(op, Const(a, float64), Const(b, float64))
    raw = value(Binary(op, Const(a, float64), Const(b, float64), float64))
    assert value(wide) == raw or (math.isnan(value(wide)) and math.isnan(raw))
    assert isinstance(binary(op, Const(a, float32), Const(b, float32)), Binary)


@given(st.sampled_from(LOGICAL), st.booleans(), st.booleans())
def test_logic(op, a, b):
    x = Var("x", boolean)
    for left, right in ((const(a, boolean), x), (x, const(a, boolean))):
        folded = binary(op, left, right)
        raw = Binary(op, left, right, boolean)
        values = {"x": np.asarray(b)}
        assert value(folded, values) == value(raw, values)
        assert not isinstance(folded, Binary)


def test_wrong_operands_are_refused():
    with pytest.raises(VerifyError, match="unknown"):
        binary("plus", const(1), const(2))
    with pytest.raises(VerifyError, match="differ in dtype"):
        binary("add", const(1), const(2.0, float32))
    with pytest.raises(VerifyError, match="differ in dtype"):
        binary("add", const(1), const(2, int16))
    assert binary("shl", const(1), const(2, int64)) == const(4)


def test_indices_of_both_widths_meet():
    i, n = Var("i"), Var("n", int64)
    assert binary("add", const(1), const(2**40, int64)) == const(2**40 + 1, int64)
    assert binary("lt", i, n) == Binary("lt", Cast(i, int64), n, boolean)
    assert binary("mul", n, i) == Binary("mul", n, Cast(i, int64), int64)


def test_equality_of_constants():
    assert Const(math.nan, float32) == Const(math.nan, float32)
    assert Const(0.0, float32) != Const(-0.0, float32)
    assert Const(1, int32) != Const(1, int64)
    assert hash(Const(math.nan, float32)) == hash(Const(math.nan, float32))
    assert Const(1, int32) != Const(True, int32)


@given(st.sampled_from(ALL), st.sampled_from(ALL))
def test_promotion_commutes_and_holds_values(a, b):
    both = promote(a, b)
    assert both == promote(b, a)
    if a.is_float and b.is_float:
        for one in (a, b):
            assert both.mantissa_bits >= one.mantissa_bits
            assert both.exponent_bits >= one.exponent_bits
    if a.is_int and b.is_int:
        assert both.bits == max(a.bits, b.bits)


@given(st.sampled_from(ALL))
def test_names_lead_back_to_dtypes(dtype):
    assert dtype_of(dtype.name) is dtype
    if dtype.name != "tfloat32":
        assert dtype_of(numpy_dtype(dtype)) is dtype


@st.composite
def scopes(draw):
    names = Names()
    names.vars = [draw(variables(names)) for _ in range(3)]
    names.buffers = [draw(buffers(names)) for _ in range(3)]
    return names


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_rebuilding_changes_nothing(data):
    names = data.draw(scopes())
    expr = data.draw(exprs(names, 3))
    assert transform(expr, lambda node: None) is expr
    kept = [node for node in walk(expr) if not isinstance(node, Binary | Select)]
    for node in kept:
        assert rebuild(node, node.children) == node
    assert free_vars(expr) <= set(names.vars)


EVERYTHING = """
let x = n + 1
local v: int32[] = n
A[n, x] = A[x, n] * n
if n < 3 {
  while n > v[] {
    break
  }
} else {
  for i in serial(n, n + 1, step=n) {
    continue
  }
}
let old = atomic add n -> A[n, 0]
atomic add &A[n:+n, 0] -> A[0:+n, n]
parallel (a, b) in (n, n) {
  A[a, b] = cast(cast(n, int64), int32)
}
copy A[n:+2, 0] -> A[n, 0:+2]
fill A[n:+2, n] = n
gemm A[n:+n, n:+n], A[n:+n, n:+n] -> A[n:+n, n:+n] clear n == 0
reduce sum A[n:+n, n] -> A[n, 0:+1] axis 0
scan sum A[n:+n, n] -> A[n:+n, n] axis 0
warps 0, 4 {
  print "", n
  print "", &A[n:+n, 0]
  assert n > 0, ""
}
async.copy(&A[n:+n, n], n, select(n > 1, n, -n))
"""


def test_substitution_reaches_every_use():
    size, fresh = Var("n"), Var("size")
    block = parse_block(EVERYTHING, [A, size])
    changed = substitute_block(block, {size: fresh})
    assert format_block(changed) == re.sub(r"\bn\b", "size", EVERYTHING.lstrip())
    assert substitute_block(changed, {fresh: size}) == block
    constant = format_block(substitute_block(block, {size: const(7)}))
    assert not re.search(r"\bn\b", constant)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_mapping_nothing_gives_the_same_objects(data):
    names = data.draw(scopes())
    block = data.draw(blocks(names, 3))
    for stmt in walk_stmts(block):
        assert map_exprs(stmt, lambda node: None) is stmt
    same = map_stmts(block, lambda stmt: None)
    assert all(a is b for a, b in zip(same, block, strict=True))
    used = {buffer.name for buffer in buffers_in(block)}
    for stmt in walk_stmts(block):
        assert {region.buffer.name for region in regions_of(stmt)} <= used


A = Buffer("A", (const(4), const(4)), int32, Scope.GLOBAL)
I_VAR, J_VAR = Var("i"), Var("j")


def test_mentioned_parts_are_those_of_a_walk():
    """Each once, in order of first mention, without constants and sums."""
    a, b = Var("a"), Var("b")
    total = binary("add", binary("mul", b, const(3)), binary("floordiv", a, b))
    total = binary("max", total, binary("sub", b, a))
    seen = [node for node in walk(total) if isinstance(node, Var | Load)]
    assert mentioned(total) == tuple(dict.fromkeys(seen)) == (b, a)


def test_indices_that_are_all_variables_are_uses():
    store = S.Store(A, (I_VAR, J_VAR), Load(A, (J_VAR, I_VAR)))
    changed = map_exprs(store, lambda node: const(2) if node == I_VAR else None)
    assert changed == S.Store(A, (const(2), J_VAR), Load(A, (J_VAR, const(2))))


def test_binders_are_renamed_but_never_replaced():
    nest = S.Parallel((I_VAR,), (const(4),), ())
    loop = S.For(I_VAR, const(0), const(4), const(1), ())
    let = S.Let(I_VAR, const(1))
    atomic = S.Atomic(
        "add", Region(A, (const(0), const(0)), (None, None)), const(1), previous=I_VAR
    )
    for stmt in (nest, loop, let, atomic):
        assert map_exprs(stmt, lambda node: const(2) if node == I_VAR else None) == stmt
        renamed = map_exprs(stmt, lambda node: J_VAR if node == I_VAR else None)
        assert renamed != stmt


def test_statements_can_be_dropped_and_multiplied():
    block = (S.If(TRUE, (S.Break(), S.Continue())), S.Break())
    doubled = map_stmts(block, lambda s: (s, s) if isinstance(s, S.Break) else None)
    assert doubled == (S.If(TRUE, (S.Break(), S.Break(), S.Continue())), S.Break(), S.Break())
    dropped = map_stmts(block, lambda s: () if isinstance(s, S.Break) else None)
    assert dropped == (S.If(TRUE, (S.Continue(),)),)
    assert substitute(I_VAR, {I_VAR: J_VAR}) == J_VAR


def test_parts_that_occur_many_times_are_visited_once():
    def nested(var):
        expr = var
        for step in range(100):  # 2 ** 100 nodes as a tree
            expr = Select(binary("lt", expr, const(step)), expr, const(8 * step), int32)
        return expr

    expr = nested(I_VAR)
    assert free_vars(expr) == {I_VAR}
    assert len(mentioned(expr)) == 101
    ranges = Ranges().with_range(I_VAR, 0, 7)
    assert ranges.interval(expr) == (0, 8 * 99)
    assert ranges.multiple(expr) == 1
    replaced = substitute(expr, {I_VAR: J_VAR})
    assert hash(replaced) == hash(nested(J_VAR)) != hash(expr)
    assert free_vars(replaced) == {J_VAR}
