"""cp.async: asynchronous copies of 4, 8 or 16 bytes a lane from global to shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from tilecore.hooks.records import (
    AsyncCopyAtom,
    AsyncCopyRequest,
    PipelinePlan,
    PipelineRequest,
)
from tilecore.ir.stmts import Copy, Stmt

L2_PREFETCH = "cuda.l2_prefetch"
"""Annotation of a copy: bytes that the second-level cache fetches along with each piece."""
L2_PREFETCH_BYTES = (0, 64, 128, 256)
"""What cp.async can ask for (PTX ISA, "cp.async": .level::prefetch_size)."""
CP_ASYNC = AsyncCopyAtom("cp.async", (16, 8, 4))


def lower_async_copy(request: AsyncCopyRequest) -> AsyncCopyAtom | None:
    """cp.async for copies without conversion."""
    copy = request.copy
    return CP_ASYNC if copy.src.dtype == copy.dst.dtype else None


def plan_pipeline(request: PipelineRequest) -> PipelinePlan:
    """Copies to shared memory run ahead of everything else in the loop.

    With n >= 2 stages they are issued at the start of an iteration, n - 1 iterations ahead. With
    one stage there is one slot: the copy for the next iteration is issued right after the last
    statement that reads the slot. The author's own order and stages are taken where given.
    """
    loop = request.loop
    count = len(loop.body)
    spec = loop.pipeline
    stages = spec.num_stages if spec is not None else 0
    copies = {k for k, s in enumerate(loop.body) if isinstance(s, Copy) and s.fills_shared}
    groups = spec.groups(count) if spec is not None else tuple((k,) for k in range(count))
    if spec is not None and count:
        stage = spec.by_statement(spec.stage, count)
        order = spec.by_statement(spec.order, count)
        if stage is not None and order is not None:
            return _from_author(stage, order, groups)
    moving = [group for group in sorted(groups) if copies.issuperset(group)]
    ahead = [k for group in moving for k in group]
    if stages < 1 or not ahead:
        return PipelinePlan(1, (0,) * count, tuple(range(count)))
    staying = [k for k in range(count) if k not in ahead]
    stage = tuple(0 if k in ahead else max(1, stages - 1) for k in range(count))
    sequence = [*ahead, *staying] if stages >= 2 else _after_readers(loop.body, moving, staying)
    return PipelinePlan(stages, stage, _places(sequence))


def _from_author(
    stage: tuple[int, ...], order: tuple[int, ...], groups: tuple[tuple[int, ...], ...]
) -> PipelinePlan:
    """The author's plan; -1 marks statements that the compiler places (first, earliest stage).

    A group takes the place of its first member in the schedule.
    """
    ranked = sorted(groups, key=lambda group: min((order[k], k) for k in group))
    inside = [k for group in ranked for k in sorted(group, key=lambda k: (order[k], k))]
    stages = tuple(max(0, s) for s in stage)
    return PipelinePlan(max(stages) + 1, stages, _places(inside))


def _places(sequence: Sequence[int]) -> tuple[int, ...]:
    """For each statement its place in a sequence of them."""
    places = [0] * len(sequence)
    for place, k in enumerate(sequence):
        places[k] = place
    return tuple(places)


def _after_readers(
    body: tuple[Stmt, ...], ahead: list[tuple[int, ...]], staying: list[int]
) -> list[int]:
    """Each group of copies right after the last statement that mentions a destination of it."""
    from tilecore.ir.visit import buffers_in

    last: dict[tuple[int, ...], int] = {}
    for group in ahead:
        copied = {stmt.dst.buffer for k in group if isinstance(stmt := body[k], Copy)}
        readers = [s for s in staying if copied.intersection(buffers_in((body[s],)))]
        last[group] = max(readers, default=staying[-1] if staying else 0)
    result: list[int] = []
    for s in staying:
        result.append(s)
        result += [k for group in ahead if last[group] == s for k in group]
    return result + [k for group in ahead for k in group if k not in result]
