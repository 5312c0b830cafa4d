"""A loop construct opened, its body traced once, and closed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tilecore.errors import Loc
from tilecore.ir.expr import Const, Var, const, free_vars
from tilecore.ir.stmts import For, Parallel, Stmt
from tilecore.language import operators as ops
from tilecore.language.builder import Builder
from tilecore.language.locate import fail
from tilecore.language.loops import LoopSpec
from tilecore.language.persistent import run_persistent
from tilecore.language.pipelines import check_schedule
from tilecore.language.values import Scalar


def run_spec(
    builder: Builder, spec: LoopSpec, targets: tuple[str, ...], loc: Loc | None
) -> Iterator[Any]:
    """Open the loops of `spec`, yield their variables once, close them."""
    builder.require_kernel(spec.what)
    if len(targets) > len(spec.axes) and spec.kind != "persistent":
        fail(
            f"{spec.what} has fewer extents than there are loop variables",
            expected=f"{len(spec.axes)} as there are extents",
            got=", ".join(targets),
            hint=f"give the extent of each axis: {spec.what}(m, n)",
        )
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
    """The outermost nest goes over the lanes; one of a single iteration is no nest. One inside
    it extends the nest where it is all of its body, and runs round by round where it is not."""
    one = all(isinstance(n, Const) and n.value == 1 for _, n, _ in spec.axes)
    if one or (builder.inside("parallel") and not _may_join(builder, spec)):
        yield from _run_for(builder, spec, targets, loc)
        return
    variables = loop_vars(builder, spec, targets)
    extents = tuple(extent for _, extent, _ in spec.axes)
    joins = builder.inside("parallel")
    frame = builder.push("parallel", (var.name for var in variables))
    frame.vars, frame.extents = variables, extents
    yield _yielded(variables)
    body = builder.pop(frame)
    if joins:
        builder.emit(Parallel(variables, extents, body, spec.hints, loc))
        return
    builder.emit(_joined(Parallel(variables, extents, body, spec.hints, loc)))
    for action in frame.after:
        action()


def _may_join(builder: Builder, spec: LoopSpec) -> bool:
    """True at the top of a parallel nest, for extents that do not depend on its variables."""
    outer = builder.frames[-1]
    if outer.kind != "parallel" or outer.stmts:
        return False
    names = {var.name for var in outer.vars}
    used = {var.name for _, extent, _ in spec.axes for var in free_vars(extent)}
    return not names & used


def _joined(stmt: Parallel) -> Parallel:
    """A nest that is all of the outer body becomes one with it, else rounds of each iteration."""
    body = stmt.body
    if len(body) == 1 and isinstance(body[0], Parallel):
        inner = _joined(body[0])
        return Parallel(
            stmt.vars + inner.vars,
            stmt.extents + inner.extents,
            inner.body,
            tuple(sorted({**dict(inner.hints), **dict(stmt.hints)}.items())),
            stmt.loc,
        )
    rounds = tuple(_rounds(one) if isinstance(one, Parallel) else one for one in body)
    return replace(stmt, body=rounds)


def _rounds(stmt: Parallel) -> Stmt:
    inner = _joined(stmt)
    body: tuple[Stmt, ...] = inner.body
    for var, extent in reversed(list(zip(inner.vars, inner.extents, strict=True))):
        zero, one = const(0, var.dtype), const(1, var.dtype)
        body = (For(var, zero, extent, one, body, loc=inner.loc),)
    return body[0]


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
        if spec.pipeline is not None:
            check_schedule(spec.pipeline, body, loc)
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
