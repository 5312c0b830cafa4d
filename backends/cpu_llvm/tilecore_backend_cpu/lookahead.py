"""What a register block asks memory for while it multiplies: data of later blocks, in the turns of
its own loop over k.

One loop holds all: a walk over parts of the turns, each with its own stream of addresses. So the
multiplications are written once, and a turn has nothing to compute but the next address; they need
the ports that integer arithmetic would take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .builder import FunctionWriter, Value

LINE_BYTES = 64
_ENTRY_BYTES = 32
"""Of one stream in a record: first address, bytes from turn to turn, from row to row, turns."""

Body = Callable[[Value, list[Value]], list[Value]]
"""Writes one turn: (its number, carried values) -> the values for the next."""


@dataclass(frozen=True, slots=True)
class Stream:
    """What is asked for in each of `turns` turns: `rows` rows of `lines` cache lines each.

    `wish` is as for `FunctionWriter.prefetch`.
    """

    turns: int
    rows: int
    lines: int
    wish: str = "far"


@dataclass(frozen=True, slots=True)
class Places:
    """Where a stream reads: first address, bytes from turn to turn, bytes from row to row; only if
    `is_wanted`."""

    start: Value
    step: Value
    pitch: Value
    is_wanted: Value | None = None


def record_bytes(streams: int) -> int:
    """Size of the record that `write_record` fills."""
    return _ENTRY_BYTES * streams


def write_record(
    w: FunctionWriter, record: Value, streams: Sequence[Stream], places: Sequence[Places]
) -> None:
    """Tell a block where its streams read, at `record`."""
    for number, (stream, place) in enumerate(zip(streams, places, strict=True)):
        at = number * _ENTRY_BYTES
        turns: Value = w.i64(stream.turns)
        if place.is_wanted is not None:
            turns = w.select(place.is_wanted, turns, w.i64(0))
        for field, value in enumerate((place.start, place.step, place.pitch, turns)):
            w.store(value, w.offset_bytes(record, at + 8 * field), 8)


def emit_turns(
    w: FunctionWriter,
    turns: Value,
    carried: Sequence[Value],
    body: Body,
    streams: Sequence[Stream] = (),
    record: Value | None = None,
) -> list[Value]:
    """Write the turns of a block and return the carried values after the last."""
    if record is None:
        with w.loop(w.i64(0), turns, carried=carried) as loop:
            loop.carry(body(loop.index, list(loop.carried)))
        assert loop.results is not None
        return list(loop.results)
    with w.loop(w.i64(0), w.i64(len(streams) + 1), carried=[w.i64(0), *carried]) as parts:
        part, first, *values = (parts.index, *parts.carried)
        # The part after the last stream takes all turns that are left and asks for nothing.
        is_stream = w.icmp("slt", part, w.i64(len(streams)))
        entry = w.offset_bytes(record, w.mul(part, w.i64(_ENTRY_BYTES)))
        entry = w.select(is_stream, entry, record)
        start, step, pitch, count = (
            w.load(w.offset_bytes(entry, 8 * field), kind, 8)
            for field, kind in enumerate(("ptr", "i64", "i64", "i64"))
        )
        end = w.select(is_stream, w.add(first, count), turns)
        end = w.intrinsic("smin", [end, turns])
        with w.loop(first, end, carried=[*values, start]) as loop:
            *inner, place = loop.carried
            _ask(w, part, streams, place, pitch)
            loop.carry([*body(loop.index, inner), w.offset_bytes(place, step)])
        assert loop.results is not None
        parts.carry([end, *loop.results[:-1]])
    assert parts.results is not None
    return list(parts.results[1:])


def _ask(
    w: FunctionWriter, part: Value, streams: Sequence[Stream], place: Value, pitch: Value
) -> None:
    """The prefetches of one turn of stream number `part`."""
    label = w.fresh("ask")
    for number, stream in enumerate(streams):
        here, other = f"{label}.{number}", f"{label}.not{number}"
        w.terminate(f"br {w.icmp('eq', part, w.i64(number))}, label %{here}, label %{other}")
        w.begin_block(here)
        at = place
        for row in range(stream.rows):
            if row:
                at = w.offset_bytes(at, pitch)
            for line in range(stream.lines):
                w.prefetch(w.offset_bytes(at, line * LINE_BYTES), stream.wish)
        w.terminate(f"br label %{label}.end")
        w.begin_block(other)
    w.begin_block(f"{label}.end")
