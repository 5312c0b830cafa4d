"""cp.async: asynchronous copies of 4, 8 or 16 bytes a lane from global to shared memory."""

from __future__ import annotations

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
    ahead = [k for k, stmt in enumerate(loop.body) if isinstance(stmt, Copy) and stmt.fills_shared]
    if spec is not None and len(spec.stage) == len(spec.order) == count and count:
        return _from_author(spec.stage, spec.order)
    if stages < 1 or not ahead:
        return PipelinePlan(1, (0,) * count, tuple(range(count)))
    staying = [k for k in range(count) if k not in ahead]
    stage = tuple(0 if k in ahead else max(1, stages - 1) for k in range(count))
    sequence = [*ahead, *staying] if stages >= 2 else _after_readers(loop.body, ahead, staying)
    order = [0] * count
    for place, k in enumerate(sequence):
        order[k] = place
    return PipelinePlan(stages, stage, tuple(order))


def _from_author(stage: tuple[int, ...], order: tuple[int, ...]) -> PipelinePlan:
    """The author's plan; -1 marks statements that the compiler places (first, earliest stage)."""
    ranked = sorted(range(len(order)), key=lambda k: (order[k], k))
    places = [0] * len(order)
    for place, k in enumerate(ranked):
        places[k] = place
    stages = tuple(max(0, s) for s in stage)
    return PipelinePlan(max(stages) + 1, stages, tuple(places))


def _after_readers(body: tuple[Stmt, ...], ahead: list[int], staying: list[int]) -> list[int]:
    """Each copy right after the last statement that mentions its destination."""
    from tilecore.ir.visit import buffers_in

    last: dict[int, int] = {}
    for k in ahead:
        stmt = body[k]
        assert isinstance(stmt, Copy)
        readers = [s for s in staying if stmt.dst.buffer in buffers_in((body[s],))]
        last[k] = max(readers, default=staying[-1] if staying else 0)
    result: list[int] = []
    for s in staying:
        result.append(s)
        result += [k for k in ahead if last[k] == s]
    return result + [k for k in ahead if k not in result]
