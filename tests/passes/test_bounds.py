"""Interval arithmetic, proofs and simplification of index expressions, against evaluation."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tilecore.ir.expr import Binary, Const, Expr, Var, binary, const
from tilecore.passes.bounds import Ranges
from tilecore.passes.divisors import divisor
from tilecore.passes.register_maps import evaluate

NAMES = ("a", "b", "c")
RANGES = Ranges({"a": (0, 127), "b": (0, 7), "c": (-3, 4)})
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
@given(_expressions(), VALUES)
def test_simplify_keeps_the_value(expr: Expr, values: dict[str, int]):
    assert evaluate(RANGES.simplify(expr), values) == evaluate(expr, values)


@settings(max_examples=300, deadline=None)
@given(_expressions(), VALUES)
def test_interval_contains_the_value(expr: Expr, values: dict[str, int]):
    low, high = RANGES.interval(expr)
    value = evaluate(expr, values)
    assert low is None or low <= value
    assert high is None or value <= high


@settings(max_examples=300, deadline=None)
@given(_expressions(), VALUES)
def test_divisor_divides(expr: Expr, values: dict[str, int]):
    found = divisor(expr)
    value = evaluate(expr, values)
    assert value == 0 if found == 0 else value % found == 0


@settings(max_examples=200, deadline=None)
@given(_expressions(), _expressions(), st.sampled_from(["lt", "le", "gt", "ge"]), VALUES)
def test_proofs_hold(a: Expr, b: Expr, op: str, values: dict[str, int]):
    condition = binary(op, a, b)
    if RANGES.proves(condition):
        left, right = evaluate(a, values), evaluate(b, values)
        assert {"lt": left < right, "le": left <= right, "gt": left > right, "ge": left >= right}[
            op
        ]


@settings(max_examples=200, deadline=None)
@given(_expressions(), _expressions(), VALUES)
def test_assumptions_only_exclude_what_they_exclude(a: Expr, b: Expr, values: dict[str, int]):
    condition = binary("lt", a, b)
    if not evaluate(a, values) < evaluate(b, values):
        return
    for name, (low, high) in RANGES.assuming(condition).of.items():
        assert low <= values[name] <= high


def test_tile_offsets_cancel():
    by = Var("by")
    row = binary("add", binary("mul", by, const(128)), Var("a"))
    assert RANGES.simplify(binary("floordiv", row, const(128))) == by
    assert RANGES.simplify(binary("floormod", row, const(128))) == Var("a")


def test_units_are_divided_instead_of_elements():
    expr = binary(
        "add", binary("mul", Var("b"), const(16)), binary("floormod", Var("a"), const(16))
    )
    result = RANGES.simplify(binary("floordiv", expr, const(64)))
    assert result == Binary("floordiv", Var("b"), Const(4, Var("b").dtype), Var("b").dtype)
