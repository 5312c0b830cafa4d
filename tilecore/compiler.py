"""The whole compiler as one readable list of named stages.

    tile        what the author wrote                          (tilecore.language made it)
    canonical   index arithmetic simplified, dead code removed
    scheduled   layouts, MMA atoms, pipelines, barriers, shared memory: decided with the hooks
    lane        what one lane does                             (lane-parallel targets only)
    source      text in the backend's language                 (hook tilecore_emit)
    artifact    loadable binary                                (hook tilecore_compile, disk cache)

`lower` stops at the source, `compile` goes on to a callable kernel.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilecore.errors import LanguageError, LoweringError, ResourceError, TilecoreError
from tilecore.hooks.context import Context
from tilecore.hooks.families import refuse_foreign
from tilecore.hooks.manager import hooks_of
from tilecore.hooks.records import CompileOptions, Source
from tilecore.ir.printer import format_program
from tilecore.ir.program import Level, Program
from tilecore.ir.verifier import verify
from tilecore.passes import LOWERING_PASSES, SCHEDULING_PASSES
from tilecore.passes.canonicalize import canonicalize
from tilecore.passes.gather_windows import gather_windows
from tilecore.passes.packed_storage import pack_narrow
from tilecore.passes.wide_indices import wide_indices
from tilecore.target import Target
from tilecore.targets import choose_target

Pass = Callable[[Program, Context], Program]

_LABEL_LETTERS = 100  # of a kernel's name in that of a file


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program with everything that compilation made of it, up to its source.

    Attributes:
        target: what it was lowered for.
        options: with which options.
        stages: (stage name, program), in order.
        source: the generated text.
    """

    target: Target
    options: CompileOptions
    stages: tuple[tuple[str, Program], ...]
    source: Source

    @property
    def program(self) -> Program:
        """The program as the author wrote it."""
        return self.stages[0][1]

    def ir(self, stage: str = "scheduled") -> str:
        """The IR text after a stage (``tile``, ``canonical``, ``scheduled``, ``lane``...).

        Raises:
            LanguageError: there is no such stage.
        """
        names = [name for name, _ in self.stages]
        if stage not in names:
            raise LanguageError("no such stage", expected=f"one of {', '.join(names)}", got=stage)
        return format_program(dict(self.stages)[stage])


def schedule(program: Program, target: Target, options: CompileOptions) -> Program:
    """Canonical tile level -> scheduled level, by core's passes (hook default).

    What does not fit is tried once more with layouts that leave no gaps between rows or columns:
    those are there for speed only.
    """
    context = Context(target, hooks_of(target.backend), options)
    try:
        return run_passes(program, context, SCHEDULING_PASSES)
    except ResourceError as error:
        try:
            return run_passes(program, replace(context, is_tight=True), SCHEDULING_PASSES)
        except TilecoreError:  # what is told is what did not fit as it was meant
            raise error from None


def run_passes(program: Program, context: Context, passes: tuple[Pass, ...]) -> Program:
    """Run passes in order."""
    for one in passes:
        program = one(program, context)
    return program


def program_of(function: Any) -> Program:
    """The `Program` in a prim_func, a program, or anything with a ``program`` attribute."""
    program = getattr(function, "program", function)
    if not isinstance(program, Program):
        raise LanguageError(
            "only tile programs can be compiled",
            expected="a function decorated with T.prim_func",
            got=type(function).__name__,
        )
    return program


def lower(
    function: Any,
    backend: str | None = None,
    *,
    arch: str | None = None,
    device: str = "native",
    target: Target | None = None,
    options: CompileOptions | None = None,
) -> Lowered:
    """Take a tile program down to source text; needs no toolchain and no device.

    Args:
        function: a prim_func or a `Program`.
        backend: entry-point name; None takes the best one present.
        arch: one of the backend's architectures; None takes the device's, else the first.
        device: ``"native"`` or ``"emulator"``.
        target: instead of the three above.
        options: compile options.

    Raises:
        TilecoreError: whatever is wrong with the program or cannot be done on the target.
    """
    program = program_of(function)
    target = target or choose_target(backend, arch, device)
    with depth_bounded(program):
        return _lower(program, target, options or CompileOptions())


def _lower(program: Program, target: Target, options: CompileOptions) -> Lowered:
    hooks = hooks_of(target.backend)
    context = Context(target, hooks, options)

    stages = [("tile", program)]

    def record(name: str, result: Program) -> Program:
        stages.append((name, result))
        _dump(name, format_program, result)
        verify(result)
        return result

    verify(program)
    refuse_foreign(program, hooks.chain)
    _dump("tile", format_program, program)
    whole = wide_indices(pack_narrow(gather_windows(program, context), context))
    program = record("canonical", canonicalize(whole, context))
    program = record(
        "scheduled",
        hooks.call("tilecore_schedule", program=program, target=target, options=options),
    )
    if program.level is Level.SCHEDULED and target.lanes_per_warp > 1:
        program = record("lane", run_passes(program, context, LOWERING_PASSES))
    source = hooks.call("tilecore_emit", program=program, target=target, options=options)
    _dump(f"source.{source.language}", lambda made: made.text, source)
    return Lowered(target, options, tuple(stages), source)


@contextmanager
def depth_bounded(program: Program) -> Generator[None]:
    """An error of ours where passes, which follow the nesting of a program, run out of stack.

    Raises:
        LoweringError: instead of a `RecursionError`.
    """
    try:
        yield
    except RecursionError:
        raise LoweringError(
            f"{program.name} nests its expressions or statements too deeply",
            expected=f"what a stack of {sys.getrecursionlimit()} calls can follow",
            loc=program.loc,
            hint="split long expressions: variables, or loops of the program",
        ) from None


def _dump(name: str, show: Callable[[Any], str], what: Any) -> None:
    """Write one stage to the folder that TILECORE_DUMP names, if it is set."""
    folder = os.environ.get("TILECORE_DUMP")
    if not folder:
        return
    label = what.name if isinstance(what, Program) else what.kernels[0].name
    path = Path(folder) / f"{label[:_LABEL_LETTERS]}.{name}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(show(what), encoding="utf-8")
    except OSError as error:
        raise TilecoreError(
            "what TILECORE_DUMP asks for cannot be written",
            expected="a folder to write to",
            got=f"{path}: {error.strerror}",
        ) from error


def with_outputs(program: Program, out_idx: int | list[int] | tuple[int, ...] | None) -> Program:
    """`program` with the parameters at `out_idx` (negative counts from the end) as outputs.

    Raises:
        LanguageError: an index out of range, or of a scalar parameter.
    """
    if out_idx is None:
        return program
    wanted = (out_idx,) if isinstance(out_idx, int) else tuple(out_idx)
    count = len(program.params)
    outputs = []
    for index in wanted:
        if not -count <= index < count:
            raise LanguageError(
                f"out_idx of {program.name} is out of range",
                expected=f"-{count} <= index < {count}",
                got=index,
                loc=program.loc,
            )
        outputs.append(index % count)
    if len(set(outputs)) != len(outputs):
        raise LanguageError("out_idx names a parameter twice", got=wanted, loc=program.loc)
    return replace(program, outputs=tuple(sorted(outputs)))
