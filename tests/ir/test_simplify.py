"""Intervals, divisors, proofs and rewriting, checked against evaluation of every point."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilecore.errors import EmulatorFault
from tilecore.ir.dtypes import boolean, int4, int8, int32, int64, uint4, uint8, uint32
from tilecore.ir.expr import Binary, Cast, Const, Select, Unary, Var, const, walk
from tilecore.ir.parser import parse_expr
from tilecore.ir.printer import format_expr
from tilecore.ir.ranges import Ranges
from tilecore.ir.simplify import is_always_true, known_multiple, simplify, upper_bound
from tilecore.reference.evaluate import Frame, evaluate
from tilecore.reference.values import value_dtype

ON = np.asarray(True)


def values_at_all_points(expr, points):
    """`expr` on the grid of all values of the variables."""
    shape = tuple(len(values) for _, values in points)
    frame = Frame(shape)
    for axis, (var, values) in enumerate(points):
        along = [1] * len(points)
        along[axis] = len(values)
        frame.values[var.name] = np.array(values, value_dtype(var.dtype)).reshape(along)
    with np.errstate(all="ignore"):
        return np.broadcast_to(evaluate(expr, frame, ON), shape)


@st.composite
def index_scopes(draw):
    """Variables of a kernel: a size, a loop over it, a grid axis, a Let; with their values."""
    multiple = draw(st.sampled_from([1, 2, 4]))
    n = Var("n", int32, multiple_of=multiple, lower=draw(st.sampled_from([None, 4])), upper=24)
    i, j, x = Var("i"), Var("j"), Var("x")
    step = draw(st.sampled_from([1, 2, 4]))
    start = draw(st.sampled_from([0, 0, 2, -3]))
    extent_j = draw(st.sampled_from([4, 8, 5]))
    ranges = Ranges().with_sizes([n])
    ranges = ranges.with_loop(i, const(start), n, const(step))
    ranges = ranges.with_index(j, const(extent_j))
    value = draw(st.sampled_from(["i * 8 + j", "n // 4", "i % 4", "j - i"]))
    definition = parse_expr(value, [n, i, j])
    ranges = ranges.with_value(x, definition)
    sizes = [v for v in range(n.lower or 0, 25) if v % multiple == 0]
    points = [(n, sizes), (i, range(start, start + 24 * step, step)), (j, range(extent_j))]
    inside = Binary(
        "lt", i, Binary("add", const(start), Binary("mul", n, const(step), int32), int32), boolean
    )
    return ranges, [n, i, j, x], points, inside, (x, definition)


@st.composite
def integer_exprs(draw, leaves, dtype, depth=4):
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        if leaves and draw(st.booleans()):
            return draw(st.sampled_from(leaves))
        low = -8 if dtype.is_signed else 0
        return const(draw(st.integers(low, 7 if dtype.bits == 4 else 40)), dtype)
    inner = integer_exprs(leaves, dtype, depth - 1)
    kind = draw(st.integers(0, 9))
    if kind <= 3:
        op = draw(st.sampled_from(["add", "sub", "mul"]))
        return Binary(op, draw(inner), draw(inner), dtype)
    if kind <= 6:
        op = draw(st.sampled_from(["floordiv", "floormod"]))
        top = 7 if dtype.bits == 4 else 16
        return Binary(op, draw(inner), const(draw(st.integers(1, top)), dtype), dtype)
    if kind == 7:
        op = draw(st.sampled_from(["min", "max", "bitand", "bitor", "bitxor"]))
        return Binary(op, draw(inner), draw(inner), dtype)
    if kind == 8:
        return Select(draw(conditions(leaves, dtype, depth - 1)), draw(inner), draw(inner), dtype)
    op = draw(st.sampled_from(["neg", "bitnot", "shl", "shr"]))
    if op in ("shl", "shr"):
        return Binary(op, draw(inner), const(draw(st.integers(0, 3)), dtype), dtype)
    return Unary(op, draw(inner), dtype)


@st.composite
def conditions(draw, leaves, dtype, depth=3):
    inner = integer_exprs(leaves, dtype, depth)
    op = draw(st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]))
    test = Binary(op, draw(inner), draw(inner), boolean)
    if depth and draw(st.integers(0, 3)) == 0:
        other = draw(conditions(leaves, dtype, depth - 1))
        return Binary(draw(st.sampled_from(["and", "or"])), test, other, boolean)
    return Unary("not", test, boolean) if draw(st.integers(0, 4)) == 0 else test


def inline(expr, definition):
    from tilecore.ir.expr import substitute

    return substitute(expr, dict([definition]))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_index_arithmetic(data):
    ranges, leaves, points, inside, definition = data.draw(index_scopes())
    expr = data.draw(integer_exprs(leaves, int32))
    live = values_at_all_points(inside, points)
    if not live.any():
        return
    actual = values_at_all_points(inline(expr, definition), points)[live]
    check_integer(expr, actual, ranges)
    small = simplify(expr, ranges)
    again = values_at_all_points(inline(small, definition), points)[live]
    np.testing.assert_array_equal(actual, again, err_msg=format_expr(small))


def check_integer(expr, actual, ranges):
    low, high = ranges.interval(expr)
    assert low <= actual.min(), format_expr(expr)
    assert actual.max() <= high, format_expr(expr)
    assert upper_bound(expr, ranges) == high
    multiple = known_multiple(expr, ranges)
    assert not (actual % multiple if multiple else actual).any(), format_expr(expr)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_proofs_about_indices(data):
    ranges, leaves, points, inside, definition = data.draw(index_scopes())
    assumed = data.draw(conditions(leaves, int32, 1))
    live = values_at_all_points(inside, points)
    live = live & values_at_all_points(inline(assumed, definition), points)
    condition = data.draw(conditions(leaves, int32))
    actual = values_at_all_points(inline(condition, definition), points)[live]
    ranges = ranges.assume(assumed)
    if is_always_true(condition, ranges):
        assert actual.all(), format_expr(condition)
    if ranges.refutes(condition):
        assert not actual.any(), format_expr(condition)
    small = simplify(condition, ranges)
    again = values_at_all_points(inline(small, definition), points)[live]
    np.testing.assert_array_equal(actual, again, err_msg=format_expr(small))


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from([int4, uint4, int8, uint8]))
def test_wrapping_arithmetic_on_all_values(data, dtype):
    """Data wraps: what holds for indices must not be used. All values of two variables."""
    leaves = [Var("a", dtype), Var("b", dtype)]
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    every = range(low, low + (1 << dtype.bits))
    points = [(var, every) for var in leaves]
    expr = data.draw(integer_exprs(leaves, dtype))
    ranges = Ranges()
    actual = values_at_all_points(expr, points)
    check_integer(expr, actual, ranges)
    np.testing.assert_array_equal(actual, values_at_all_points(simplify(expr, ranges), points))
    condition = data.draw(conditions(leaves, dtype))
    holds = values_at_all_points(condition, points)
    again = values_at_all_points(simplify(condition, ranges), points)
    np.testing.assert_array_equal(holds, again)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_casts_between_widths(data):
    dtypes = [int4, uint4, int8, uint8, int32, uint32, int64]
    a = Var("a", data.draw(st.sampled_from([int8, uint8])))
    expr = data.draw(integer_exprs([a], a.dtype, 2))
    for _ in range(data.draw(st.integers(1, 3))):
        expr = Cast(expr, data.draw(st.sampled_from(dtypes)))
        if data.draw(st.booleans()):
            op = data.draw(st.sampled_from(["add", "mul", "floordiv"]))
            expr = Binary(op, expr, const(data.draw(st.integers(1, 7)), expr.dtype), expr.dtype)
    low = -128 if a.dtype.is_signed else 0
    points = [(a, range(low, low + 256))]
    actual = values_at_all_points(expr, points)
    check_integer(expr, actual.astype(object), Ranges())
    np.testing.assert_array_equal(actual, values_at_all_points(simplify(expr, Ranges()), points))


N = Var("n", int32, multiple_of=128, lower=128)
M = Var("m")
BX, ROW, COL = Var("bx"), Var("i"), Var("j")
TILE = (
    Ranges()
    .with_sizes([N, M])
    .with_index(BX, parse_expr("(n + 127) // 128", [N]))
    .with_index(ROW, const(128))
    .with_index(COL, const(8))
)
NAMES = [N, M, BX, ROW, COL]


@pytest.mark.parametrize(
    ("text", "small"),
    [
        ("(i * 8 + j) // 8", "i"),
        ("(i * 8 + j) % 8", "j"),
        ("(i * 8 + j + 16) // 8", "i + 2"),
        ("i // 128", "0"),
        ("i % 128", "i"),
        ("i // 4 // 8", "i // 32"),
        ("m % 64 % 16", "m % 16"),
        ("(i * 8 + j * 4) // 16", "(i * 2 + j) // 4"),
        ("(bx * 128 + i) // 128", "bx"),
        ("(m * 128 + i) % 128", "i"),
        ("m // 16 * 16 + m % 16", "m"),
        ("n // 128 * 128", "n"),
        ("(n + 127) // 128", "n // 128"),
        ("n % 64", "0"),
        ("min(i, 127)", "i"),
        ("max(j, 8)", "8"),
        ("bx * 128 + i < n", "true"),
        ("m >= 0", "true"),
        ("i == 200", "false"),
        ("i * 2 != j * 2 + 1", "true"),
        ("not i < 5", "i >= 5"),
        ("i + 3 - i", "3"),
        ("m + 5 - m + i", "i + 5"),
        ("select(j < 8, i, m)", "i"),
        ("select(m < 8, true, false)", "m < 8"),
        ("cast(cast(m, int64), int32)", "m"),
        ("cast(i, int64) // int64(128)", "int64(0)"),
        ("cast(bx * 128 + i, int64) < cast(n, int64)", "true"),
        ("i & 127", "i"),
        ("(m + 127) // 128", "(m + 127) // 128"),
        ("m * 3 // 2", "m * 3 // 2"),
    ],
)
def test_rules(text, small):
    assert format_expr(simplify(parse_expr(text, NAMES), TILE)) == small


def test_what_wraps_or_reads_memory_is_left_alone():
    seed = Var("seed")
    for text in ("(seed * 65536) // 65536", "(seed * 8 + 4) // 4", "seed + 1 > seed"):
        expr = parse_expr(text, [seed])
        assert simplify(expr, Ranges()) == expr
    # 16 bits of headroom are enough.
    bounded = Ranges(bounds={"seed": (0, 30000)})
    assert simplify(parse_expr("(seed * 65536) // 65536", [seed]), bounded) == seed


def test_limits_do_not_trust_memory():
    from tilecore.ir.buffers import Buffer, Scope
    from tilecore.ir.expr import Load

    count = Load(Buffer("count", (), int32, Scope.LOCAL), ())
    k = Var("k")
    ranges = Ranges().with_loop(k, const(0), count, const(1))
    assert not ranges.proves(Binary("lt", k, count, boolean))
    assert ranges.assume(Binary("lt", k, count, boolean)).facts == ()
    assert ranges.proves(Binary("ge", k, const(0), boolean))


def test_remainders_are_bounded_by_their_divisor():
    """``begin + step % (64 - begin)`` stays below 64, whatever the step."""
    begin, step = Var("begin"), Var("step")
    ranges = Ranges().with_range(begin, 0, 62).with_index(step, const(256))
    names = [begin, step]
    first = Var("first")
    known = ranges.with_value(first, parse_expr("(begin + step % (64 - begin)) * 8", names))
    assert known.proves(parse_expr("first + 7 < 512", [first]))
    assert ranges.proves(parse_expr("begin + step % (64 - begin) < 64", names))
    assert not ranges.proves(parse_expr("begin + step % (64 - begin) < 63", names))
    unknown = Ranges().with_range(begin, 0, 64).with_index(step, const(256))
    assert not unknown.proves(parse_expr("begin + step % (64 - begin) < 64", names))


def test_assumptions_reach_as_far_as_their_sum():
    ranges = TILE.assume(parse_expr("m > 4 and bx * 128 + i < m", NAMES))
    assert ranges.proves(parse_expr("bx * 128 + i <= m - 1", NAMES))
    assert ranges.proves(parse_expr("m > 3", NAMES))
    assert not ranges.proves(parse_expr("m > 5", NAMES))


def test_simplification_never_adds_a_division_by_zero():
    expr = parse_expr("(i * 8 + j) // (m - m)", NAMES)
    frame = Frame((), {v.name: np.asarray(1, np.int32) for v in NAMES})
    for form in (expr, simplify(expr, TILE)):
        with pytest.raises(EmulatorFault):
            evaluate(form, frame, ON)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_simplify_settles(data):
    """A second round finds at most what the first one uncovered; sizes never grow."""
    ranges, leaves, *_ = data.draw(index_scopes())
    expr = data.draw(integer_exprs(leaves, int32))
    sizes = []
    for _ in range(4):
        expr = simplify(expr, ranges)
        sizes.append(sum(1 for _ in walk(expr)))
    assert sizes == sorted(sizes, reverse=True)
    assert isinstance(expr, Const | Var) or expr.children


@pytest.mark.parametrize("factor, size", [(2, 64), (1, 7), (-1, 5)])
def test_a_loop_over_what_is_left_stays_inside(factor: int, size: int) -> None:
    """Bounds of a value of a loop variable whose limit depends on another: those of all points."""
    begin, step, x = Var("begin"), Var("step"), Var("x")
    extent = parse_expr(f"{size} - begin * {factor}", [begin])
    value = parse_expr(f"(begin * {factor} + step) * 3 - 1", [begin, step])
    ranges = Ranges().with_index(begin, const(5)).with_loop(step, const(0), extent, const(1))
    found = ranges.with_value(x, value).interval(x)
    points = [(b * factor + s) * 3 - 1 for b in range(5) for s in range(max(0, size - b * factor))]
    assert found[0] <= min(points) and found[1] >= max(points)
    assert found[1] == (size - 1) * 3 - 1
