"""Programs and launchers for the runtime's tests: parameters matter here, bodies do not."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from tilecore.errors import Loc
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import DType, float32
from tilecore.ir.expr import Expr, Var, const
from tilecore.ir.program import Kernel, Program
from tilecore.ir.stmts import Store

M, N, K = Var("M"), Var("N"), Var("K")


def tensor(name: str, *shape: int | Expr, dtype: DType = float32, strides: Any = None) -> Buffer:
    extents = tuple(const(extent) if isinstance(extent, int) else extent for extent in shape)
    if strides is not None:
        strides = tuple(const(s) if isinstance(s, int) else s for s in strides)
    return Buffer(name, extents, dtype, Scope.GLOBAL, strides)


def program(
    *params: Buffer | Var,
    symbols: tuple[Var, ...] = (),
    outputs: tuple[int, ...] = (),
    workspaces: tuple[Buffer, ...] = (),
    writes: str = "C",
) -> Program:
    """A program called ``demo`` whose only statement stores to the buffer named `writes`."""
    body = tuple(
        Store(p, tuple(const(0) for _ in p.shape), const(0, p.dtype))
        for p in params
        if isinstance(p, Buffer) and p.name == writes
    )
    kernel = Kernel("demo", (Var("bx"),), (const(1),), 1, body)
    symbols = tuple(sorted(symbols, key=lambda symbol: symbol.name))
    return Program("demo", params, (kernel,), symbols, workspaces, outputs, loc=Loc("user.py", 12))


MATMUL = program(tensor("A", M, K), tensor("B", K, N), tensor("C", M, N), symbols=(M, N, K))


class RecordingLauncher:
    """Records every launch; `work` may do it, with the flat arguments and sizes."""

    def __init__(
        self, work: Callable[..., None] | None = None, device_kind: str = "cpu", alignment: int = 1
    ) -> None:
        self.device_kind = device_kind
        self.alignment_bytes = alignment
        self.binds: list[tuple[tuple[int, ...], int]] = []
        self.launches: list[tuple[int | float, ...]] = []
        self.streams: list[int] = []
        self._work = work

    def bind(self, sizes: tuple[int, ...], device: int) -> Callable[..., None]:
        self.binds.append((sizes, device))
        return lambda *values: self((*values, *sizes))

    def __call__(self, arguments: tuple[int | float, ...], stream: int = 0) -> None:
        self.launches.append(arguments)
        self.streams.append(stream)
        if self._work is not None:
            self._work(*arguments)


def floats_at(address: int, count: int) -> Any:
    return (ctypes.c_float * count).from_address(address)
