"""Rules about tile statements."""

from __future__ import annotations

from tilecore.ir import stmts as S
from tilecore.ir.buffers import Region, Scope
from tilecore.ir.verifier.exprs import check_condition, check_dtype
from tilecore.ir.verifier.regions import check_region, check_same_shape, differ, shape_text
from tilecore.ir.verifier.state import State

TILE_STATEMENTS = (S.Parallel, S.Copy, S.Fill, S.Gemm, S.Reduce, S.Scan)
_BITWISE_REDUCTIONS = frozenset({"bitand", "bitor", "bitxor"})


def check_tile_statement(stmt: S.Stmt, state: State) -> bool:
    """Check a copy, fill, gemm, reduce or scan; False for any other statement.

    Raises:
        TilecoreError: of the class that `State.fail` chooses.
    """
    match stmt:
        case S.Copy(src=src, dst=dst):
            check_region(src, state)
            check_region(dst, state)
            what = f"copy of {src.buffer.name} to {dst.buffer.name}"
            check_same_shape(dst.shape, src.shape, state, what)
        case S.Fill(dst=dst, value=value):
            check_region(dst, state)
            check_dtype(value, dst.dtype, state, f"the value that fills {dst.buffer.name}")
        case S.Gemm():
            _check_gemm(stmt, state)
        case S.Reduce():
            _check_reduce(stmt, state)
        case S.Scan():
            _check_scan(stmt, state)
        case _:
            return False
    return True


def _matrix(region: Region, state: State, what: str, scopes: tuple[Scope, ...]) -> None:
    check_region(region, state)
    name = region.buffer.name
    if len(region.shape) != 2:
        state.fail(f"{what} of gemm, {name}, is no matrix", "2 axes", len(region.shape))
    if region.buffer.scope not in scopes:
        allowed = " or ".join(str(scope) for scope in scopes)
        state.fail(f"{what} of gemm, {name}, is in the wrong scope", allowed, region.buffer.scope)


def _check_gemm(stmt: S.Gemm, state: State) -> None:
    on_chip = (Scope.SHARED, Scope.FRAGMENT)
    _matrix(stmt.a, state, "operand a", on_chip)
    _matrix(stmt.b, state, "operand b", on_chip)
    _matrix(stmt.c, state, "accumulator c", (Scope.FRAGMENT, Scope.SHARED))
    check_condition(stmt.clear_accum, state, "clear_accum")
    (m, k) = stmt.a.shape[::-1] if stmt.transpose_a else stmt.a.shape
    (k_b, n) = stmt.b.shape[::-1] if stmt.transpose_b else stmt.b.shape
    for name, expected, got in (
        ("k", k, k_b),
        ("m", m, stmt.c.shape[0]),
        ("n", n, stmt.c.shape[1]),
    ):
        if differ(expected, got):
            shapes = " @ ".join(shape_text(r.shape) for r in (stmt.a, stmt.b))
            shapes += f" -> {shape_text(stmt.c.shape)}"
            state.fail(f"gemm operands disagree on {name}", shape_text((expected,)), shapes)
    kinds = {region.dtype.is_float for region in (stmt.a, stmt.b, stmt.c)}
    if len(kinds) > 1 or any(region.dtype.is_bool for region in (stmt.a, stmt.b, stmt.c)):
        dtypes = f"{stmt.a.dtype} @ {stmt.b.dtype} -> {stmt.c.dtype}"
        state.fail("gemm mixes dtypes", "all floats or all integers", dtypes)


def _check_axis(axis: int, src: Region, state: State, what: str) -> None:
    if not 0 <= axis < len(src.shape):
        state.fail(f"{what} along an axis that is not there", f"0 to {len(src.shape) - 1}", axis)


def _check_reduce(stmt: S.Reduce, state: State) -> None:
    check_region(stmt.src, state)
    check_region(stmt.dst, state)
    if stmt.op not in S.REDUCE_OPS:
        state.fail("an unknown reduction", ", ".join(S.REDUCE_OPS), stmt.op)
    _check_axis(stmt.axis, stmt.src, state, f"reduce_{stmt.op}")
    if stmt.op in _BITWISE_REDUCTIONS and (stmt.src.dtype.is_float or stmt.dst.dtype.is_float):
        state.fail(f"reduce_{stmt.op} of floats", "integers", stmt.src.dtype)
    shape, got = list(stmt.src.shape), stmt.dst.shape
    dropped = shape[: stmt.axis] + shape[stmt.axis + 1 :]
    what = f"reduce_{stmt.op} of {stmt.src.buffer.name} into {stmt.dst.buffer.name}"
    if len(got) == len(shape):
        kept = got[stmt.axis]
        check_same_shape(dropped, (*got[: stmt.axis], *got[stmt.axis + 1 :]), state, what)
        if shape_text((kept,)) != "(1)":
            state.fail(f"{what} does not keep extent 1", "1", shape_text((kept,)))
    else:
        check_same_shape(dropped, got, state, what)


def _check_scan(stmt: S.Scan, state: State) -> None:
    check_region(stmt.src, state)
    check_region(stmt.dst, state)
    state.require(stmt.op in ("sum", "max"), "an unknown scan", "sum or max", stmt.op)
    _check_axis(stmt.axis, stmt.src, state, f"cum{stmt.op}")
    check_same_shape(stmt.src.shape, stmt.dst.shape, state, f"cum{stmt.op}")
