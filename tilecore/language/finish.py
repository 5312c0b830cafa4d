"""The end of a trace: sizes are collected, safe values attached, the program put together."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

from tilecore.errors import Loc
from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Expr, Var, free_vars
from tilecore.ir.program import Param, Program
from tilecore.ir.visit import map_names
from tilecore.language.builder import Builder
from tilecore.language.global_layouts import apply_global_layouts
from tilecore.language.locate import fail


def _sizes(buffer: Buffer) -> Iterable[Expr]:
    yield from buffer.shape
    yield from buffer.strides or ()


def collect_symbols(params: Sequence[Param]) -> list[Var]:
    """Dynamic sizes that the parameters' shapes and strides name, sorted.

    Raises:
        LanguageError: one name with two dtypes.
    """
    found: dict[str, Var] = {}
    for param in params:
        if not isinstance(param, Buffer):
            continue
        for size in _sizes(param):
            for var in sorted(free_vars(size), key=lambda var: var.name):
                known = found.setdefault(var.name, var)
                if known.dtype != var.dtype:
                    fail(f"size {var.name} has two dtypes", expected=known.dtype, got=var.dtype)
                found[var.name] = _stronger(known, var)
    return [found[name] for name in sorted(found)]


def _stronger(a: Var, b: Var) -> Var:
    """The promises of both."""
    lower = [bound for bound in (a.lower, b.lower) if bound is not None]
    upper = [bound for bound in (a.upper, b.upper) if bound is not None]
    return Var(
        a.name,
        a.dtype,
        max(a.multiple_of, b.multiple_of),
        max(lower, default=None),
        min(upper, default=None),
    )


def finish_program(builder: Builder, loc: Loc) -> Program:
    """Assemble the program from a builder whose function has returned."""
    if not builder.kernels:
        fail(
            f"{builder.name} launches nothing",
            expected="at least one `with T.Kernel(...)`",
            loc=loc,
        )
    params = tuple(builder.params)
    tensors = {p.name: p for p in (*params, *builder.workspaces) if isinstance(p, Buffer)}
    kernels = tuple(apply_global_layouts(k, tensors, builder.unique) for k in builder.kernels)
    symbols = tuple(collect_symbols(params))
    _check_known(builder, symbols, loc)
    workspaces = tuple(builder.workspaces)
    if builder.safe_values:
        safe = functools.partial(_safe, values=builder.safe_values)
        params, workspaces = map_names(params, safe), map_names(workspaces, safe)
        kernels = tuple(
            dataclasses.replace(kernel, body=map_names(kernel.body, safe)) for kernel in kernels
        )
    names = [param.name for param in params]
    outputs = tuple(names.index(name) for name in builder.outputs)
    return Program(builder.name, params, kernels, symbols, workspaces, outputs, loc=loc)


def _check_known(builder: Builder, symbols: Sequence[Var], loc: Loc) -> None:
    known = {var.name for var in symbols} | {param.name for param in builder.params}
    for buffer in builder.workspaces:
        for size in _sizes(buffer):
            _check_vars(size, known, f"workspace {buffer.name}", loc)
    for kernel in builder.kernels:
        for extent in kernel.grid:
            _check_vars(extent, known, f"the grid of {kernel.name}", kernel.loc or loc)


def _check_vars(expr: Expr, known: set[str], where: str, loc: Loc) -> None:
    for var in free_vars(expr):
        if var.name not in known:
            fail(
                f"size {var.name} in {where} is not known at the call",
                expected="a size that a tensor parameter's shape names, or a scalar parameter",
                loc=loc,
            )


def _safe(name: Var | Buffer, values: Mapping[str, float | int]) -> Var | Buffer:
    if not isinstance(name, Buffer) or name.name not in values:
        return name
    return dataclasses.replace(name, safe_value=values[name.name])
