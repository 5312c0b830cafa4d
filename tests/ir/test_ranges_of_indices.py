"""Indices as passes know them, by the names of tiles and lanes, against evaluation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilecore.ir.dtypes import boolean, int64, uint8, uint32
from tilecore.ir.expr import Binary, Cast, Const, Expr, Var, binary, const
from tilecore.ir.fold import wrap_int
from tilecore.ir.parser import parse_expr
from tilecore.ir.ranges import Ranges
from tilecore.ir.simplify import known_multiple, simplify
from tilecore.passes.register_maps import evaluate

NAMES = ("a", "b", "c")
RANGES = (
    Ranges().with_range(Var("a"), 0, 127).with_range(Var("b"), 0, 7).with_range(Var("c"), -3, 4)
)
VALUES = st.fixed_dictionaries({
    "a": st.integers(0, 127), "b": st.integers(0, 7), "c": st.integers(-3, 4),
})  # fmt: skip


def _expressions() -> st.SearchStrategy[Expr]:
    leaves = st.one_of(
        st.sampled_from([Var(name) for name in NAMES]), st.integers(-40, 40).map(const)
    )

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        plain = st.tuples(st.sampled_from(["add", "sub", "min", "max"]), inner, inner)
        scaled = st.tuples(st.just("mul"), inner, st.sampled_from([2, 3, 8, 16, 64]).map(const))
        divided = st.tuples(
            st.sampled_from(["floordiv", "floormod"]),
            inner,
            st.sampled_from([2, 3, 4, 8, 32, 64]).map(const),
        )
        masked = st.tuples(st.just("bitand"), inner, st.sampled_from([1, 3, 7]).map(const))
        return st.one_of(plain, scaled, divided, masked).map(lambda t: binary(*t))

    return st.recursive(leaves, grow, max_leaves=8)


@settings(max_examples=300, deadline=None)
@given(_expressions(), VALUES, st.booleans())
def test_simplify_keeps_the_value(expr: Expr, values: dict[str, int], apart: bool):
    assert evaluate(simplify(expr, RANGES, apart), values) == evaluate(expr, values)


@settings(max_examples=300, deadline=None)
@given(_expressions(), VALUES)
def test_intervals_sums_and_multiples(expr: Expr, values: dict[str, int]):
    value = evaluate(expr, values)
    low, high = RANGES.interval(expr)
    assert low <= value <= high
    for form in (RANGES.linear(expr), RANGES.regrouped(expr)):
        assert value == form.constant + sum(c * evaluate(t, values) for t, c in form.terms)
    multiple = known_multiple(expr, RANGES)
    assert value == 0 if multiple == 0 else value % multiple == 0


@settings(max_examples=200, deadline=None)
@given(_expressions(), _expressions(), st.sampled_from(["lt", "le", "gt", "ge"]), VALUES)
def test_proofs_hold(a: Expr, b: Expr, op: str, values: dict[str, int]):
    left, right = evaluate(a, values), evaluate(b, values)
    holds = {"lt": left < right, "le": left <= right, "gt": left > right, "ge": left >= right}[op]
    if RANGES.proves(Binary(op, a, b, boolean)):
        assert holds
    if RANGES.refutes(Binary(op, a, b, boolean)):
        assert not holds


@settings(max_examples=200, deadline=None)
@given(_expressions(), _expressions(), VALUES)
def test_assumptions_only_exclude_what_they_exclude(a: Expr, b: Expr, values: dict[str, int]):
    if not evaluate(a, values) < evaluate(b, values):
        return
    known = RANGES.assume(Binary("lt", a, b, boolean))
    for name in NAMES:
        low, high = known.interval(Var(name))
        assert low <= values[name] <= high
    forgotten = known.with_range(Var("new"), 0, 3).without_assumptions_since(RANGES)
    assert forgotten.interval(Var("new")) == (0, 3)
    assert all(forgotten.interval(Var(name)) == RANGES.interval(Var(name)) for name in NAMES)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 255), st.integers(0, 255), st.integers(1, 255), st.integers(0, 255),
    st.sampled_from([1, 2, 3, 4, 8, 16]), st.sampled_from(["floordiv", "floormod", "bitand"]),
    st.sampled_from(["add", "sub"]), st.booleans(),
)  # fmt: skip
def test_data_wraps(
    x: int, y: int, factor: int, offset: int, divisor: int, op: str, sign: str, apart: bool
):
    """Sums of data are taken apart only as far as wrapping allows: all of uint8 is tried."""
    data, other = Var("x", uint8), Var("y", uint8)
    total = Binary("mul", data, Const(factor, uint8), uint8)
    total = Binary(sign, total, other, uint8)
    total = Binary("add", total, Const(offset, uint8), uint8)
    product = wrap_int(x * factor, uint8)
    value = wrap_int(wrap_int(product + (y if sign == "add" else -y), uint8) + offset, uint8)
    right = divisor - 1 if op == "bitand" else divisor
    want = {"floordiv": value // divisor, "floormod": value % divisor, "bitand": value & right}[op]
    expr = Cast(Binary(op, total, Const(right, uint8), uint8), int64)
    small = simplify(expr, Ranges(), apart)
    assert _wrapping(small, {"x": x, "y": y}) == want
    low, high = Ranges().interval(expr)
    assert low <= want <= high


def _wrapping(expr: Expr, values: dict[str, int]) -> int:
    from tilecore.reference.evaluate import Frame
    from tilecore.reference.evaluate import evaluate as evaluate_as_stored

    frame = Frame((), {name: np.asarray(v, np.uint8) for name, v in values.items()})
    with np.errstate(all="ignore"):
        return int(evaluate_as_stored(expr, frame, np.asarray(True)))


def test_what_a_narrow_sum_loses_is_not_believed():
    x = Var("x", uint8)
    doubled = Cast(Binary("mul", x, Const(2, uint8), uint8), int64)
    assert Ranges().interval(doubled) == (0, 255)
    assert not Ranges().proves(binary("ge", doubled, Cast(x, int64)))
    n = Var("n", uint32)
    less = Binary("sub", n, Const(1, uint32), uint32)  # of 0 it is the largest number
    assert not Ranges().proves(Binary("lt", less, n, boolean))


LANES = Ranges().with_range(Var("lane"), 0, 127).with_range(Var("c"), 0, 7)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("(c * 128 + lane) // 8", "c * 16 + lane // 8"),
        ("(c * 128 + lane) % 8", "lane % 8"),
        ("(c * 128 + lane) // 8 & 7", "lane // 8 & 7"),
        ("lane % 32 // 8 % 2", "lane // 8 % 2"),
        ("(c * 16 + lane % 16) // 64", "c // 4"),
        ("(c * 16 + lane % 16) % 64", "c % 4 * 16 + lane % 16"),
        ("lane // 128", "0"),
    ],
)
def test_divisions_are_taken_apart(text: str, parts: str):
    from tilecore.ir.printer import format_expr

    found = simplify(parse_expr(text, [Var("lane"), Var("c")]), LANES, apart=True)
    assert format_expr(found) == parts


def test_tile_offsets_cancel():
    by = Var("by")
    row = binary("add", binary("mul", by, const(128)), Var("a"))
    blocks = RANGES.with_index(by, const(64))
    assert simplify(binary("floordiv", row, const(128)), blocks, apart=True) == by
    assert simplify(binary("floormod", row, const(128)), blocks, apart=True) == Var("a")


@settings(max_examples=200, deadline=None)
@given(_expressions(), st.sampled_from(NAMES), VALUES)
def test_a_step_is_what_an_index_grows_by_with_a_variable(expr, name, values):
    step = Ranges().regrouped(expr).step(Var(name))
    if step is not None:
        grown = evaluate(expr, {**values, name: values[name] + 1})
        assert grown - evaluate(expr, values) == step
