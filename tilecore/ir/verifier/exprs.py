"""Rules about expressions."""

from __future__ import annotations

from tilecore.ir.compound import MOST_LEVELS, MOST_NODES, extent_of
from tilecore.ir.dtypes import DType, boolean
from tilecore.ir.expr import (
    ARITHMETIC,
    BITWISE,
    COMPARISON,
    LOGICAL,
    MATH_OPS,
    Binary,
    Bitcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    dtype_of_expr,
)
from tilecore.ir.intervals import dtype_interval
from tilecore.ir.verifier.state import State

_ARITY = {"fma": 3, "atan2": 2, "fmod": 2}
_TESTS = frozenset({"isnan", "isinf", "isfinite"})
_INTEGER_CALLS = frozenset({"popcount", "clz"})
_ANY_NUMBER = frozenset({"abs", "fma", "fmod"})


def check_expr(expr: Expr, state: State) -> None:
    """An expression is legal here.

    Raises:
        TilecoreError: of the class that `State.fail` chooses.
    """
    if id(expr) in state.checked:
        return
    nodes, levels = extent_of(expr)
    if nodes > MOST_NODES:
        state.fail(
            "an expression is too large when parts that occur several times are written out: "
            "assign them to names in front of it",
            f"at most {MOST_NODES} operations and operands",
            nodes if nodes < 10**9 else f"{nodes:.1e}",
        )
    if levels > MOST_LEVELS:
        state.fail("an expression is nested too deep", f"at most {MOST_LEVELS} levels", levels)
    for child in expr.children:
        check_expr(child, state)
    match expr:
        case Const():
            _check_const(expr, state)
        case Var():
            state.use_var(expr)
        case Binary():
            _check_binary(expr, state)
        case Unary():
            _check_unary(expr, state)
        case Cast():
            pass  # between any two dtypes
        case Bitcast(a=a, dtype=dtype):
            same = dtype_of_expr(a).bits == dtype.bits
            state.require(same, "bitcast between different widths", dtype_of_expr(a), dtype)
        case Select():
            check_condition(expr.condition, state, "a select's condition")
            for branch in (expr.a, expr.b):
                if dtype_of_expr(branch) != expr.dtype:
                    state.fail(
                        "branches of a select differ in dtype", expr.dtype, dtype_of_expr(branch)
                    )
        case Load():
            check_indices(expr, state)
        case Call():
            _check_call(expr, state)
        case _:
            state.fail("an unknown expression", got=type(expr).__name__)
    state.checked[id(expr)] = expr


def check_condition(expr: Expr, state: State, what: str = "a condition") -> None:
    """The expression is legal and a bool."""
    check_expr(expr, state)
    state.require(dtype_of_expr(expr).is_bool, f"{what} is no bool", "bool", dtype_of_expr(expr))


def check_integer(expr: Expr, state: State, what: str) -> None:
    """The expression is legal and an integer."""
    check_expr(expr, state)
    dtype = dtype_of_expr(expr)
    state.require(dtype.is_int, f"{what} is no integer", "an integer", dtype)


def check_dtype(expr: Expr, dtype: DType, state: State, what: str) -> None:
    """The expression is legal and of this dtype."""
    check_expr(expr, state)
    if dtype_of_expr(expr) != dtype:
        state.fail(f"{what} has the wrong dtype", dtype, dtype_of_expr(expr))


def _check_const(expr: Const, state: State) -> None:
    dtype, value = expr.dtype, expr.value
    kind = float if dtype.is_float else bool if dtype.is_bool else int
    if type(value) is not kind:
        state.fail(f"a constant of {dtype} holds another type", kind.__name__, repr(value))
    if dtype.is_int:
        low, high = dtype_interval(dtype)
        if not low <= value <= high:
            state.fail("a constant does not fit its dtype", dtype, value)


def _check_binary(expr: Binary, state: State) -> None:
    op, a, b = expr.op, dtype_of_expr(expr.a), dtype_of_expr(expr.b)
    if op in ("shl", "shr"):
        if not (a.is_int and b.is_int):
            state.fail(f"{op} of what are no integers", "integers", f"{a}, {b}")
    elif a != b:
        state.fail(f"operands of {op} differ in dtype", a, b)
    result = a
    if op in COMPARISON or op in LOGICAL:
        result = boolean
    if op in LOGICAL:
        state.require(a.is_bool, f"{op} of what are no bools", "bool", a)
    elif op in BITWISE:
        state.require(not a.is_float, f"{op} of floats", "integers", a)
    elif op in ARITHMETIC:
        state.require(not a.is_bool, f"{op} of bools", "numbers", a)
    elif op not in COMPARISON:
        state.fail("an unknown binary operation", got=op)
    if expr.dtype != result:
        state.fail(f"the result of {op} has the wrong dtype", result, expr.dtype)


def _check_unary(expr: Unary, state: State) -> None:
    dtype = dtype_of_expr(expr.a)
    if expr.op not in ("neg", "bitnot", "not"):
        state.fail("an unknown unary operation", got=expr.op)
    fits = {"neg": not dtype.is_bool, "bitnot": not dtype.is_float, "not": dtype.is_bool}
    state.require(fits[expr.op], f"{expr.op} of a {dtype}")
    if expr.dtype != dtype:
        state.fail(f"the result of {expr.op} has the wrong dtype", dtype, expr.dtype)


def check_indices(load: Load, state: State) -> None:
    """A load's buffer and indices."""
    state.use_buffer(load.buffer)
    check_place(load, state)


def check_place(load: Load, state: State) -> None:
    """As many integer indices as axes; outside a `Parallel`, constant ones inside the shape."""
    buffer, indices = load.buffer, load.indices
    if len(indices) != buffer.rank:
        state.fail(f"wrong number of indices into {buffer.name}", buffer.rank, len(indices))
    for index, extent in zip(indices, buffer.shape, strict=True):
        check_integer(index, state, f"an index into {buffer.name}")
        if isinstance(index, Const) and isinstance(extent, Const) and not state.in_parallel:
            limits = f"0 <= index < {extent.value}"
            is_inside = 0 <= index.value < extent.value
            reason = f"a constant index is outside {buffer.name}"
            state.require(is_inside, reason, limits, index.value)


def _check_call(expr: Call, state: State) -> None:
    op, args = expr.op, expr.args
    if "." in op:
        return  # of a lower level or a backend: its emit rules say what is right
    if op not in MATH_OPS:
        state.fail("an unknown function", got=op)
    count = _ARITY.get(op, 1)
    if len(args) != count:
        state.fail(f"wrong number of arguments of {op}", count, len(args))
    dtype = dtype_of_expr(args[0])
    if any(dtype_of_expr(arg) != dtype for arg in args):
        state.fail(f"arguments of {op} differ in dtype", dtype, dtype_of_expr(args[-1]))
    if op in _INTEGER_CALLS:
        state.require(dtype.is_int, f"{op} of what is no integer", "an integer", dtype)
        state.require(expr.dtype.is_int, f"{op} gives an integer", "an integer", expr.dtype)
        return
    is_fit = dtype.is_float or (op in _ANY_NUMBER and dtype.is_int)
    state.require(is_fit, f"{op} of a {dtype}", "a float")
    result = boolean if op in _TESTS else dtype
    state.require(
        expr.dtype == result, f"the result of {op} has the wrong dtype", result, expr.dtype
    )
