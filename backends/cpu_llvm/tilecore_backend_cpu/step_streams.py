"""What the register blocks of a step ask memory for: an equal part with every block."""

from __future__ import annotations

from dataclasses import dataclass

from .builder import FunctionWriter, Value
from .lookahead import LINE_BYTES, Places, Stream
from .step_shape import StepBlocking, StepShape


@dataclass(frozen=True, slots=True)
class SharedStream:
    """A stream and how a block finds its part.

    A part is `share` rows from `rows_apart` on; or, where `pieces` is more than 1, one of so many
    pieces of `piece_bytes` of one row. `lead_bytes` are skipped.
    """

    stream: Stream
    share: int
    pieces: int
    piece_bytes: int
    turn_rows: int = 0
    lead_bytes: int = 0

    def places(self, w: FunctionWriter, number: Value, start: Value, pitch: Value) -> Places:
        """Of part `number` of the matrix at `start` (null: nothing is wanted)."""
        pieces = w.i64(self.pieces)
        row = w.binary("udiv", number, pieces) if self.pieces > 1 else number
        at = w.offset_bytes(start, w.mul(w.mul(row, w.i64(self.share)), pitch))
        if self.pieces > 1:
            within = w.binary("urem", number, pieces)
            at = w.offset_bytes(at, w.mul(within, w.i64(self.piece_bytes)))
        if self.lead_bytes:
            at = w.offset_bytes(at, self.lead_bytes)
        step: Value = w.i64(self.stream.lines * LINE_BYTES)
        if self.turn_rows:
            step = w.mul(pitch, w.i64(self.turn_rows))
        return Places(at, step, pitch, w.icmp("ne", start, Value("ptr", "null")))


def left_stream(shape: StepShape, cut: StepBlocking, turns: int) -> SharedStream:
    """The next step's A, a part with every block of a step."""
    rows, columns = (cut.depth, shape.m) if shape.transpose_a else (shape.m, cut.depth)
    calls = cut.blocks * -(-shape.n // cut.width)
    return _along_rows((rows, columns * shape.a_dtype.bytes), calls, turns)


def right_stream(shape: StepShape, cut: StepBlocking, turns: int) -> SharedStream:
    """The next panels of B, a part with every block of a group."""
    calls = cut.blocks * cut.panels
    size = shape.b_dtype.bytes
    if shape.transpose_b:
        return _along_rows((cut.group, cut.depth * size), calls, turns)
    share = -(-cut.depth // calls)
    each = -(-share // turns)
    lines = -(-cut.group * size // LINE_BYTES)
    # The last byte of a line: the panel before has asked for the line it begins in.
    return SharedStream(Stream(-(-share // each), each, lines), share, 1, 0, each, LINE_BYTES - 1)


def written_stream(shape: StepShape, rows: int, columns: int) -> Stream:
    """Rows that will be written at the end of a block."""
    row_bytes = columns * shape.c_dtype.bytes
    return Stream(rows, 1, -(-row_bytes // LINE_BYTES), wish="write")


def _along_rows(size: tuple[int, int], parts: int, turns: int) -> SharedStream:
    """A matrix of `size` (rows, bytes of each), row by row, in at most `turns` turns a part."""
    rows, row_bytes = size
    lines = -(-row_bytes // LINE_BYTES)
    share = -(-rows // parts)
    pieces = max(1, min(parts // rows, lines)) if share == 1 else 1
    piece = -(-lines // pieces)
    each = -(-piece // turns)
    return SharedStream(Stream(-(-piece // each), share, each), share, pieces, piece * LINE_BYTES)
