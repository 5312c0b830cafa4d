"""A loop construct opened, its body traced once, and closed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilecore.errors import Loc
from tilecore.ir.expr import Var
from tilecore.ir.stmts import For, Parallel, Stmt
from tilecore.language import operators as ops
from tilecore.language.builder import Builder
from tilecore.language.locate import fail
from tilecore.language.loops import LoopSpec
from tilecore.language.persistent import run_persistent
from tilecore.language.values import Scalar


def run_spec(
    builder: Builder, spec: LoopSpec, targets: tuple[str, ...], loc: Loc | None
) -> Iterator[Any]:
    """Open the loops of `spec`, yield their variables once, close them."""
    builder.require_kernel(spec.what)
    if spec.kind == "parallel":
        yield from _run_parallel(builder, spec, targets, loc)
    elif spec.kind == "persistent":
        yield from run_persistent(builder, spec, targets, loc)
    else:
        yield from _run_for(builder, spec, targets, loc)


def loop_vars(builder: Builder, spec: LoopSpec, targets: tuple[str, ...]) -> tuple[Var, ...]:
    """Variables named as the author names them, in the extents' dtype."""
    names = targets if len(targets) == len(spec.axes) else [f"i{k}" for k in range(len(spec.axes))]
    if len(targets) == 1 and len(spec.axes) > 1:
        names = [f"{targets[0]}{k}" for k in range(len(spec.axes))]
    return tuple(
        Var(builder.unique("i" if name == "_" else name), ops.dtype_of(extent))
        for name, (_, extent, _) in zip(names, spec.axes, strict=True)
    )


def _yielded(variables: tuple[Var, ...]) -> Any:
    scalars = tuple(Scalar(var) for var in variables)
    return scalars[0] if len(scalars) == 1 else scalars


def _run_parallel(
    builder: Builder, spec: LoopSpec, targets: tuple[str, ...], loc: Loc | None
) -> Iterator[Any]:
    if builder.inside("parallel"):
        fail("T.Parallel inside T.Parallel", hint="give all extents to one T.Parallel(m, n)")
    variables = loop_vars(builder, spec, targets)
    extents = tuple(extent for _, extent, _ in spec.axes)
    frame = builder.push("parallel", (var.name for var in variables))
    frame.vars, frame.extents = variables, extents
    yield _yielded(variables)
    body = builder.pop(frame)
    builder.emit(Parallel(variables, extents, body, spec.hints, loc))
    for action in frame.after:
        action()


def _run_for(
    builder: Builder, spec: LoopSpec, targets: tuple[str, ...], loc: Loc | None
) -> Iterator[Any]:
    if spec.pipeline is not None and builder.inside("parallel"):
        fail("T.Pipelined inside T.Parallel", expected="T.serial")
    variables = loop_vars(builder, spec, targets)
    frames = [builder.push("for", (var.name,)) for var in variables]
    yield _yielded(variables)
    stmt: Stmt | None = None
    for var, frame, (start, extent, step) in reversed(
        list(zip(variables, frames, spec.axes, strict=True))
    ):
        if stmt is not None:
            builder.emit(stmt)
        body = builder.pop(frame)
        dtype = var.dtype
        stmt = For(
            var,
            ops.cast_expr(start, dtype),
            extent,
            ops.cast_expr(step, dtype),
            body,
            spec.loop_kind,
            spec.pipeline,
            spec.hints,
            loc,
        )
    assert stmt is not None
    builder.emit(stmt)
