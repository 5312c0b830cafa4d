"""Launches of programs that find tensors at addresses (`ir.attached`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.runtime.programs import M, N, RecordingLauncher, program, tensor
from tilecore.errors import ArgumentError
from tilecore.ir.attached import ATTACH
from tilecore.ir.buffers import Buffer, Region
from tilecore.ir.dtypes import int64
from tilecore.ir.expr import Expr, Var, const
from tilecore.ir.program import Program
from tilecore.ir.stmts import Intrinsic
from tilecore.runtime.caller import KernelCaller


def address(array: Any) -> int:
    return array.ctypes.data


def attaching(prog: Program, buffer: Buffer, place: Expr) -> Program:
    """`prog` with a kernel that finds the workspace `buffer` at `place`."""
    attach = Intrinsic(ATTACH, (Region(buffer, (const(0),), buffer.shape), place))
    kernel = prog.kernels[0]
    return replace(prog, kernels=(replace(kernel, body=(attach, *kernel.body)),))


def test_nobody_allocates_workspaces_that_lie_elsewhere() -> None:
    elsewhere = tensor("W", N)  # of a size that no call tells
    prog = program(tensor("C", M), symbols=(M,), workspaces=(elsewhere, tensor("V", 2)))
    launcher = RecordingLauncher()
    call = KernelCaller(attaching(prog, elsewhere, const(64, int64)), launcher)
    c = np.ones(3, np.float32)
    for _ in range(3):
        call(c)
        first, w, v, m = launcher.launches[-1]
        assert (first, w, m) == (address(c), 0, 3)
        assert v not in (0, address(c))


def test_tensors_for_addresses() -> None:
    """In every way to call, and numbers after them at once."""
    place, elsewhere = Var("p", int64), tensor("W", 4)
    prog = program(place, tensor("C", M), symbols=(M,), workspaces=(elsewhere,))
    launcher = RecordingLauncher()
    caller = KernelCaller(attaching(prog, elsewhere, place), launcher)
    entries: list[Any] = [caller]
    caller.on_entry = entries.append
    p, c = np.ones(4, np.float32), np.ones(3, np.float32)
    for _ in range(3):
        entries[-1](p, c)
        entries[-1](C=c, p=p)
        caller.launch((p, c), {}, stream=7)
        assert launcher.launches[-3:] == [(address(p), address(c), 0, 3)] * 3
    before = launcher.launches.copy()
    entries[-1](address(p), c)
    assert launcher.launches == [*before, before[-1]]
    with pytest.raises(ArgumentError, match="its tensor is not compact"):
        entries[-1](p[::2], c)
