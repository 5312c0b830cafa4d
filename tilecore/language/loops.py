"""Loop constructs of the vocabulary: T.serial, T.Parallel, T.Pipelined and the rest.

Each call makes a `LoopSpec`, which the rewritten ``for`` statement runs (`control.Loop`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Const, Expr, const
from tilecore.ir.stmts import Hints, LoopKind, PipelineSpec
from tilecore.language.linear import difference
from tilecore.language.locate import fail, refuse
from tilecore.language.math_ops import ceildiv
from tilecore.language.operators import as_index, same_index_dtype, static_int
from tilecore.language.pipelines import pipeline_spec
from tilecore.language.values import Scalar


@dataclass(frozen=True, slots=True)
class LoopSpec:
    """One or more nested loops of a kind, before a body is known.

    Attributes:
        kind: ``"for"``, ``"parallel"`` or ``"persistent"``.
        axes: (start, extent, step) of each loop, outermost first.
        loop_kind: kind of the `For` statements.
        pipeline: stages of a pipelined loop.
        hints: advice, sorted by name.
        what: the construct's name for messages.
        persistent: (wave index, group size) of T.Persistent.
    """

    kind: str
    axes: tuple[tuple[Expr, Expr, Expr], ...]
    loop_kind: LoopKind = LoopKind.SERIAL
    pipeline: PipelineSpec | None = None
    hints: Hints = ()
    what: str = "T.serial"
    persistent: tuple[Expr, Expr, int] | None = None

    def __iter__(self) -> Iterator[Any]:
        fail(
            f"{self.what} outside of a program",
            expected="a `for` statement of a T.prim_func, T.macro or tilecore.jit function",
        )


def make_hints(named: Mapping[str, Any], annotations: Mapping[str, Any] | None = None) -> Hints:
    """Advice as sorted pairs, None left out; values must be plain.

    Raises:
        LanguageError: a hint whose value is no number, string or bool.
    """
    merged = {**(annotations or {}), **named}
    pairs: list[tuple[str, int | float | str | bool]] = []
    for name, value in sorted(merged.items()):
        if value is None:
            continue
        if not isinstance(value, int | float | str | bool):
            fail(f"annotation {name} has no plain value", expected="a number or string", got=value)
        pairs.append((str(name), value))
    return tuple(pairs)


def _axis(start: Any, stop: Any, step: Any, what: str) -> tuple[Expr, Expr, Expr]:
    if stop is None:
        start, stop = 0, start
    first, last = same_index_dtype(as_index(start, f"{what} start"), as_index(stop, f"{what} stop"))
    if step is None or (isinstance(step, int) and step == 1):
        return first, difference(last, first), const(1, int32)
    stride = as_index(step, f"{what} step")
    if not isinstance(stride, Const) or stride.value == 0:
        fail(f"{what} needs a constant step other than 0", got=step)
    span = difference(last, first) if stride.value > 0 else difference(first, last)
    extent = as_index(ceildiv(Scalar(span), abs(int(stride.value))))
    return first, extent, stride


def serial(
    start: Any,
    stop: Any = None,
    step: Any = None,
    *,
    annotations: Mapping[str, Any] | None = None,
) -> LoopSpec:
    """A sequential loop over ``range(start, stop, step)``."""
    axis = _axis(start, stop, step, "T.serial")
    return LoopSpec("for", (axis,), hints=make_hints({}, annotations))


def unroll(
    start: Any,
    stop: Any = None,
    step: Any = None,
    *,
    explicit: bool = False,
    unroll_factor: int | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> LoopSpec:
    """A loop whose rounds are written out by the compiler."""
    axis = _axis(start, stop, step, "T.unroll")
    hints = make_hints({"explicit": explicit or None, "unroll_factor": unroll_factor}, annotations)
    return LoopSpec("for", (axis,), LoopKind.UNROLL, hints=hints, what="T.unroll")


def vectorized(
    start: Any, stop: Any = None, *, annotations: Mapping[str, Any] | None = None
) -> LoopSpec:
    """A loop whose rounds become the elements of vector operations; the extent is a constant."""
    axis = _axis(start, stop, None, "T.vectorized")
    if not isinstance(axis[1], Const):
        fail("T.vectorized needs a constant extent", got="a runtime extent")
    hints = make_hints({}, annotations)
    return LoopSpec("for", (axis,), LoopKind.VECTORIZED, hints=hints, what="T.vectorized")


def grid(*extents: Any) -> LoopSpec:
    """Nested sequential loops, one per extent."""
    return LoopSpec("for", _extents(extents, "T.grid"), what="T.grid")


def Parallel(
    *extents: Any,
    coalesced_width: int | None = None,
    loop_layout: Any = None,
    prefer_async: bool | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> LoopSpec:
    """An elementwise nest over all lanes of the block; see `tilecore.ir.stmts.Parallel`."""
    if loop_layout is not None:
        refuse("loop_layout=", "the layout of a parallel loop follows from its fragments")
    hints = make_hints(
        {"coalesced_width": coalesced_width, "prefer_async": prefer_async}, annotations
    )
    return LoopSpec("parallel", _extents(extents, "T.Parallel"), hints=hints, what="T.Parallel")


def _extents(extents: Sequence[Any], what: str) -> tuple[tuple[Expr, Expr, Expr], ...]:
    if not extents:
        fail(f"{what} needs at least one extent", expected=f"{what}(m) or {what}(m, n)", got="none")
    return tuple(
        (const(0, int32), as_index(extent, f"{what} extent"), const(1, int32)) for extent in extents
    )


def Pipelined(
    start: Any,
    stop: Any = None,
    num_stages: int = 0,
    order: Sequence[int] | None = None,
    stage: Sequence[int] | None = None,
    sync: Sequence[Sequence[int]] | None = None,
    group: Sequence[Sequence[int]] | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> LoopSpec:
    """A loop whose rounds overlap: `num_stages` buffers in flight, or an explicit schedule.

    Args:
        start: the extent, or the first value where `stop` is given.
        stop: one past the last value.
        num_stages: buffers in flight; 0 and 1 mean no overlap.
        order: for each statement of the body its place in the schedule; -1 leaves it to the
            compiler.
        stage: for each statement its stage; -1 leaves it to the compiler.
        sync: not supported; the compiler places the waits.
        group: statements that stay together, as lists of indices: they have one stage, and
            follow one another in the schedule. `order` and `stage` may then be told for each
            group instead of for each statement.
        annotations: further advice.
    """
    if sync:
        refuse("T.Pipelined(sync=...)", "the compiler places the waits of a pipeline")
    num_stages = static_int(num_stages, "num_stages", at_least=0)
    pipeline = pipeline_spec(num_stages, order, stage, group)
    axis = _axis(start, stop, None, "T.Pipelined")
    hints = make_hints({}, annotations)
    return LoopSpec("for", (axis,), LoopKind.PIPELINED, pipeline, hints, "T.Pipelined")


def Persistent(domain: Sequence[Any], wave_size: Any, index: Any, group_size: int = 8) -> LoopSpec:
    """A block's share of the tiles of `domain`, wave by wave.

    Tile numbers ``index, index + wave_size, ...`` are visited; within the last axis, `group_size`
    tiles are walked before the next-to-last axis advances, so that neighbours share operands.

    Args:
        domain: tiles along each axis.
        wave_size: number of blocks that share the work.
        index: this block's number.
        group_size: tiles of the last axis in one group.
    """
    axes = _extents(tuple(domain), "T.Persistent")
    group_size = static_int(group_size, "group_size")
    wave = as_index(wave_size, "wave_size")
    first = as_index(index, "index")
    return LoopSpec("persistent", axes, what="T.Persistent", persistent=(wave, first, group_size))


parallel = Parallel
Serial = serial
Unroll = unroll
Vectorized = vectorized
