"""Rules of the verifier for trees that the text form cannot say, each with one that breaks it."""

from __future__ import annotations

import math

import pytest

from tilecore.errors import LanguageError, Loc
from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import boolean, float16, float32, int8, int32, int64
from tilecore.ir.expr import Binary, Call, Const, Select, Unary, Var, const
from tilecore.ir.program import Kernel, Level, Program
from tilecore.ir.verifier import verify


def kernel_with(*stmts, **fields):
    grid = fields.pop("grid", (const(1),))
    grid_vars = fields.pop("grid_vars", (Var("b"),))
    return Kernel("main", grid_vars, grid, fields.pop("threads", 32), stmts, **fields)


X = Buffer("x", (const(8),), float32, Scope.GLOBAL)
ONE = const(1)


def verify_stmts(*stmts, level=Level.TILE, **fields):
    verify(Program("p", (X,), (kernel_with(*stmts, **fields),), level=level))


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (Var("nowhere"), "outside its scope"),
        (Var("x"), "a buffer is used as a variable"),
        (Var("b", int64), "used with another dtype"),
        (Const(1, float32), "holds another type"),
        (Const(True, int32), "holds another type"),
        (Binary("plus", ONE, ONE, int32), "an unknown binary operation"),
        (Binary("add", ONE, ONE, int64), "the result of add"),
        (Binary("lt", ONE, ONE, int32), "the result of lt"),
        (Unary("plus", ONE, int32), "an unknown unary operation"),
        (Unary("neg", ONE, int64), "the result of neg"),
        (Select(Const(True, boolean), ONE, ONE, int64), "branches of a select"),
        (Call("exp", (Const(1.0, float32),), float16), "the result of exp"),
    ],
)
def test_malformed_expressions(expr, message):
    with pytest.raises(LanguageError, match=message):
        verify_stmts(S.Print("", expr))


def test_buffers_are_the_ones_that_were_declared():
    other = Buffer("x", (const(9),), float32, Scope.GLOBAL)
    for buffer in (other, Buffer("y", (const(8),), float32, Scope.GLOBAL)):
        with pytest.raises(LanguageError, match="two different buffers|outside its scope"):
            verify_stmts(S.Store(buffer, (const(0),), const(0, float32)))
    with pytest.raises(LanguageError, match="a variable is used as a buffer"):
        verify_stmts(S.Store(Buffer("b", (ONE,), int32, Scope.GLOBAL), (const(0),), ONE))
    region = Region(X, (const(0), const(0)), (None, None))
    with pytest.raises(LanguageError, match="wrong rank"):
        verify_stmts(S.Print("", region))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"grid": (), "grid_vars": ()}, "one to three axes"),
        ({"grid": (ONE, ONE)}, "one to three axes"),
        ({"grid": (const(1.0, float32),)}, "an extent of the grid is no integer"),
        ({"grid": (const(-1),)}, "an extent of the grid is negative"),
        ({"grid": (Var("m"),)}, "outside its scope"),
        ({"grid_vars": (Var("b", float32),)}, "the block index b is no integer"),
        ({"threads": 0}, "no threads"),
        ({"cluster": (0, 1, 1)}, "a cluster has three extents"),
        ({"hints": (("b", 1), ("a", 2))}, "hints are not sorted"),
    ],
)
def test_kernels(fields, message):
    with pytest.raises(LanguageError, match=message):
        verify_stmts(**fields)


def test_constants_of_narrow_dtypes():
    verify_stmts(S.Print("", Const(-128, int8)), S.Print("", Const(math.nan, float16)))
    with pytest.raises(LanguageError) as caught:
        verify_stmts(S.Print("", Const(128, int8), Loc("me.py", 3)))
    assert str(caught.value).startswith("me.py:3: ")
