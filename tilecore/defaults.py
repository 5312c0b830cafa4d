"""Core's own answers to the hooks: right everywhere, fast nowhere. They answer last."""

from __future__ import annotations

from tilecore.hooks.records import (
    CompileOptions,
    LayoutRequest,
    PipelinePlan,
    PipelineRequest,
    Source,
)
from tilecore.hooks.specs import hookimpl
from tilecore.ir.layout import Layout
from tilecore.ir.program import Program
from tilecore.target import Target


@hookimpl(trylast=True)
def tilecore_choose_layout(request: LayoutRequest) -> Layout:
    """Row-major and compact."""
    shape = request.buffer.static_shape
    assert shape is not None, "the verifier admits only constant shapes on the chip"
    return Layout.row_major(shape)


@hookimpl(trylast=True)
def tilecore_plan_pipeline(request: PipelineRequest) -> PipelinePlan:
    """No overlap: statements in order, one stage."""
    count = len(request.loop.body)
    return PipelinePlan(1, (0,) * count, tuple(range(count)))


@hookimpl(trylast=True)
def tilecore_schedule(program: Program, target: Target, options: CompileOptions) -> Program:
    """Core's passes, as listed in ``compiler.py``."""
    from tilecore.compiler import schedule

    return schedule(program, target, options)


@hookimpl(trylast=True)
def tilecore_emit(program: Program, target: Target, options: CompileOptions) -> Source:
    """C++ for lane-parallel targets."""
    from tilecore.codegen.simt import emit_program

    return emit_program(program, target, options)
