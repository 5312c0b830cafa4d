"""Copies between a tile of constant size and a slice whose length only the call tells."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from tilecore.ir.buffers import Region
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Const, Expr, Load, Var, binary
from tilecore.ir.stmts import Assert, If, Parallel, Store
from tilecore.language import operators as ops
from tilecore.language.builder import Builder
from tilecore.language.locate import caller_loc
from tilecore.language.loops import make_hints
from tilecore.language.values import Scalar


def has_open_axis(source: Region, target: Region) -> bool:
    """Whether an axis has a constant extent on one side and a length of the call on the other."""
    pairs = zip(source.shape, target.shape, strict=True)
    return any(isinstance(a, Const) != isinstance(b, Const) for a, b in pairs)


def copy_open(
    builder: Builder, source: Region, target: Region, annotations: Mapping[str, Any] | None
) -> None:
    """Walk the constant extents: elements behind the slice's end are 0, or are not written.

    A slice that is longer than the tile fails an assertion when the kernel runs.

    Args:
        builder: of the kernel.
        source: as many axes as `target`; axes have equal extents, or one constant one.
        target: where to.
        annotations: advice about the loop.
    """
    loc = caller_loc()
    extents: list[Expr] = []
    read: list[Expr] = []
    written: list[Expr] = []
    names = [builder.unique(name) for name in ("i", "j", "k", "l", "m", "n")[: len(source.shape)]]
    variables = tuple(Var(name, int32) for name in names)
    for var, a, b in zip(variables, source.shape, target.shape, strict=True):
        is_slice = isinstance(a, Const) != isinstance(b, Const)
        extents.append(a if isinstance(a, Const) or not is_slice else b)
        if is_slice:
            length, side = (b, written) if isinstance(a, Const) else (a, read)
            side.append(binary("lt", var, length))
            fits = binary("le", length, extents[-1])
            builder.emit(Assert(fits, "a slice is longer than its tile in T.copy", loc))
    frame = builder.push("parallel", names)
    value: Expr = Load(source.buffer, source.indices(variables))
    if read:
        value = ops.select(_all(read), Scalar(value), 0)
    store = Store(target.buffer, target.indices(variables), ops.cast_expr(value, target.dtype), loc)
    builder.emit(If(_all(written), (store,), (), loc) if written else store)
    body = builder.pop(frame)
    builder.emit(Parallel(variables, tuple(extents), body, make_hints({}, annotations), loc))


def _all(conditions: Sequence[Expr]) -> Expr:
    return functools.reduce(lambda a, b: binary("and", a, b), conditions)
