"""How this backend's own operations become text: names of the ``cdna3`` namespace."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tilecore.codegen.simt import emit_program
from tilecore.codegen.simt.block_order import CHUNK, GROUPS
from tilecore.codegen.simt.dialect import Dialect
from tilecore.codegen.simt.emitter import KernelPrinter
from tilecore.codegen.simt.expressions import function_rule
from tilecore.codegen.simt.statements import statement_rule
from tilecore.errors import UnsupportedError
from tilecore.hooks.records import CompileOptions, EmitRule, Source
from tilecore.ir.buffers import Region
from tilecore.ir.expr import Const, Expr
from tilecore.ir.program import Kernel, Level, Program
from tilecore.ir.stmts import Intrinsic, Stmt
from tilecore.ir.visit import walk_stmts
from tilecore.passes.async_copies import IN_LANE_ORDER
from tilecore.passes.scopes import with_hint
from tilecore.target import Target

from .meetings import ARRIVE, MEET
from .mma import ATOMS
from .occupancy import planned_blocks
from .xcd import XCDS, block_chunk


def _priority(printer: KernelPrinter, stmt: Intrinsic) -> str:
    (level,) = stmt.args
    return f"cdna3::set_priority<{printer.expressions.text(level)}>();"  # type: ignore[arg-type]


def _async_copy(printer: KernelPrinter, stmt: Intrinsic) -> str:
    if not _is_direct(stmt):
        return printer.async_copy(stmt)
    source, target, *valid = stmt.args
    assert isinstance(source, Region) and isinstance(target, Region)
    hints = dict(stmt.hints)
    text, count = printer.expressions.text, source.static_shape or (1,)
    arguments = [
        printer.region(target), source.buffer.name, text(source.starts[0]), str(hints["elements"]),
        *(text(v) for v in valid),  # type: ignore[arg-type]
    ]  # fmt: skip
    return f"cdna3::load_to_lds<{count[0]}>({', '.join(arguments)});"


def _barrier(printer: KernelPrinter, stmt: Intrinsic) -> str:
    under_loads = any(_is_direct(inner) for inner in walk_stmts(printer.kernel.body))
    return "cdna3::barrier_under_loads();" if under_loads else "tc::barrier();"


def _is_direct(stmt: Stmt) -> bool:
    if not isinstance(stmt, Intrinsic) or stmt.op != "async.copy":
        return False
    return bool(dict(stmt.hints).get(IN_LANE_ORDER))


def _async_wait(printer: KernelPrinter, stmt: Intrinsic) -> str:
    (pending,) = stmt.args
    if not isinstance(pending, Const):
        raise UnsupportedError(
            "the groups that a wait leaves in flight must be a constant",
            got=printer.expressions.text(pending),  # type: ignore[arg-type]
            loc=stmt.loc,
        )
    operations = dict(stmt.hints).get("operations", 0)
    return f"cdna3::wait_for_lds<{printer.expressions.text(pending)}, {operations}>();"  # type: ignore[arg-type]


def _settle(printer: KernelPrinter, stmt: Intrinsic) -> str:
    texts: list[str] = []
    for region in stmt.args:
        assert isinstance(region, Region)
        count = (region.static_shape or (1,))[0]
        if region.dtype.bits <= 32 and count * region.dtype.bits % 32 == 0:
            texts.append(f"cdna3::settle<{count}>({printer.region(region)});")
    return " ".join(texts)


def _phases(name: str) -> EmitRule:
    def rule(printer: KernelPrinter, stmt: Intrinsic) -> str:
        return f"cdna3::{name}<{printer.kernel.threads}>();"

    return rule


def _meet(printer: KernelPrinter, stmt: Intrinsic) -> str:
    place, number, lanes = stmt.args
    assert isinstance(place, Region) and isinstance(number, Expr) and isinstance(lanes, Expr)
    waits = "true" if stmt.op == MEET else "false"
    texts = (printer.expressions.text(number), printer.expressions.text(lanes))
    return f"cdna3::meet<{waits}>({printer.region(place)}, {', '.join(texts)});"


def emit_rules() -> Mapping[str, EmitRule]:
    """Rules by operation name."""
    return {
        **{f"mma.{atom.name}": statement_rule(f"cdna3::{atom.name}") for atom in ATOMS},
        "rocm.perm": function_rule("cdna3::perm"),
        "schedule.in_order": statement_rule("cdna3::keep_order"),
        "warp.priority": _priority,
        "stagger.begin": _phases("begin_phases"),
        "stagger.phase": _phases("next_phase"),
        "stagger.end": _phases("end_phases"),
        "contraction.settle": _settle,
        "sync_block": _barrier,
        "async.copy": _async_copy,
        "async.wait": _async_wait,
        "barrier.init": statement_rule("cdna3::barrier_init"),
        "barrier.arrive": statement_rule("cdna3::barrier_arrive"),
        "barrier.wait": statement_rule("cdna3::barrier_wait"),
        MEET: _meet,
        ARRIVE: _meet,
    }


DIALECT = Dialect(namespaces=frozenset({"cdna3"}))


def emit(program: Program, target: Target, options: CompileOptions) -> Source | None:
    """C++ by core's emitter, of kernels that say how they want to be spread over the device."""
    if program.level is not Level.LANE:
        return None
    kernels = tuple(_planned(kernel) for kernel in program.kernels)
    planned = dataclasses.replace(program, kernels=kernels)
    return emit_program(planned, target, options, DIALECT)


def _planned(kernel: Kernel) -> Kernel:
    """`kernel` with its occupancy and its block order among the hints."""
    hints = kernel.hints
    for name, value in (
        ("min_blocks_per_sm", planned_blocks(kernel)),
        (GROUPS, XCDS),
        (CHUNK, block_chunk(kernel)),
    ):
        if value:
            hints = with_hint(hints, name, value)
    return dataclasses.replace(kernel, hints=hints)
