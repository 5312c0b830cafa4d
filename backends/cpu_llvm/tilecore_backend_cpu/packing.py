"""Copies into packed B operands: vectors moved, interleaved or transposed on the way.

Anything else falls to the general elementwise nest.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.buffers import Region, Scope
from tilecore.ir.expr import Const

from .builder import FunctionWriter, Value, vector_type
from .elementwise import LONG_ROW_BYTES, PREFETCH_ROWS
from .expressions import index
from .gemm_kernels import GemmPlan
from .memory import is_proven, linear_offset
from .regions import emit_copy_nest
from .scheduling import Packing, is_whole_matrix
from .state import BlockState

_WIDE_ROW_BYTES = 256
"""Rows of at least so much are packed faster without asking ahead for them (measured)."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Source rows: address, byte pitch, sizes, and how much of them lies inside the buffer.

    `rows_inside` and `columns_inside` are None when everything does.
    """

    pointer: Value
    pitch_bytes: Value
    rows: int
    columns: int
    rows_inside: Value | None
    columns_inside: Value | None


def emit_copy(s: BlockState, src: Region, dst: Region) -> None:
    """``dst = cast(src)``; fast where dst is packed and src has contiguous rows."""
    packing = s.packings.get(dst.buffer.name)
    if packing is not None and is_whole_matrix(dst) and src.dtype == dst.dtype:
        matrix = source_matrix(s, src)
        if matrix is not None:
            storage = s.storage_of(dst.buffer)
            assert storage.layout is not None
            lead = s.w.i64(0)
            for start, axis in zip(dst.starts[:-2], storage.layout.axes[:-2], strict=True):
                lead = s.w.add(lead, s.w.mul(index(s, start), s.w.i64(axis[0].stride)))
            place = s.w.offset_bytes(storage.pointer, s.w.mul(lead, s.w.i64(dst.dtype.bytes)))
            emit_pack(s.w, matrix, packing, place, dst.dtype.bytes)
            return
    emit_copy_nest(s, src, dst)


def source_matrix(s: BlockState, src: Region) -> Matrix | None:
    """`src` as rows of contiguous elements, or None when it is not that."""
    w = s.w
    shape, axes = src.static_shape, src.axes
    storage = s.storage_of(src.buffer)
    if (
        shape is None
        or len(shape) != 2
        or storage.strides is None
        or axes[1] != src.buffer.rank - 1
    ):
        return None
    if storage.strides[-1] != 1 or src.buffer.safe_value != 0:
        return None
    stride = storage.strides[axes[0]]
    pitch = stride if isinstance(stride, Value) else w.i64(stride)
    is_wide = s.is_elementwise
    s.is_elementwise = False
    offset = linear_offset(s, storage, src.starts)
    s.is_elementwise = is_wide
    size = w.i64(src.dtype.bytes)
    pointer = w.offset_bytes(storage.pointer, w.mul(offset, size))
    inside: list[Value | None] = []
    for axis, extent in zip(axes, shape, strict=True):
        inside.append(_inside(s, src, axis, extent))
    if src.buffer.scope is Scope.GLOBAL:
        for axis in range(src.buffer.rank):
            if axis not in axes and not is_proven(s, src.starts[axis], src.buffer.shape[axis]):
                limit = index(s, src.buffer.shape[axis])
                is_in = w.icmp("ult", index(s, src.starts[axis]), limit)
                rows = inside[0] if inside[0] is not None else w.i64(shape[0])
                inside[0] = w.select(is_in, rows, w.i64(0))
    return Matrix(pointer, w.mul(pitch, size), shape[0], shape[1], inside[0], inside[1])


def _inside(s: BlockState, src: Region, axis: int, extent: int) -> Value | None:
    """How many of `extent` indices lie inside the buffer; None for all."""
    from .analysis import interval

    w = s.w
    limit = src.buffer.shape[axis]
    low, high = interval(src.starts[axis], s.ranges, s.definitions)
    if low >= 0 and isinstance(limit, Const) and high + extent <= limit.value:
        return None
    left = w.sub(index(s, limit), index(s, src.starts[axis]))
    return w.intrinsic("smin", [w.intrinsic("smax", [left, w.i64(0)]), w.i64(extent)])


def emit_panel(
    w: FunctionWriter,
    matrix: Matrix,
    plan: GemmPlan,
    is_transposed: bool,
    place: Value,
    element_bytes: int,
) -> None:
    """Write a matrix as wide as a register block into panels at `place`."""
    k, n = (matrix.columns, matrix.rows) if is_transposed else (matrix.rows, matrix.columns)
    emit_pack(w, matrix, Packing(plan, k, n, is_transposed), place, element_bytes)


def emit_pack(
    w: FunctionWriter, matrix: Matrix, packing: Packing, place: Value, element_bytes: int
) -> None:
    """Write `matrix` into panels at `place`."""
    if matrix.rows_inside is None and matrix.columns_inside is None:
        _Packer(w, matrix, packing, place, element_bytes, False).emit()
        return
    whole = w.const(True, "i1")
    for inside, size in (
        (matrix.rows_inside, matrix.rows),
        (matrix.columns_inside, matrix.columns),
    ):
        if inside is not None:
            whole = w.binary("and", whole, w.icmp("eq", inside, w.i64(size)))
    label = w.fresh("pack")
    w.terminate(f"br {whole}, label %{label}.whole, label %{label}.ragged")
    w.begin_block(f"{label}.whole")
    _Packer(w, matrix, packing, place, element_bytes, False).emit()
    w.terminate(f"br label %{label}.end")
    w.begin_block(f"{label}.ragged")
    _Packer(w, matrix, packing, place, element_bytes, True).emit()
    w.begin_block(f"{label}.end")


class _Packer:
    def __init__(
        self,
        w: FunctionWriter,
        matrix: Matrix,
        packing: Packing,
        place: Value,
        element_bytes: int,
        is_ragged: bool,
    ) -> None:
        self.w = w
        self.matrix, self.packing, self.place = matrix, packing, place
        self.bytes = element_bytes
        self.is_ragged = is_ragged
        self.group = packing.plan.group
        self.element = f"i{element_bytes * 8}"
        self.unit = f"i{element_bytes * 8 * self.group}"
        largest = 8 if element_bytes * self.group == 8 else 16
        self.width = next(c for c in (largest, 8, 4, 2, 1) if packing.plan.n_block % c == 0)

    def emit(self) -> None:
        if self.packing.is_transposed:
            self._transposed()
        else:
            self._straight()

    def _store(self, value: Value, k_group: Value | int, column: Value | int) -> None:
        """`width` columns of one group of k, at their place in the panel."""
        w, plan = self.w, self.packing.plan
        if isinstance(column, int):
            panel: Value = w.i64(column // plan.n_block)
            within: Value = w.i64(column % plan.n_block)
        else:
            panel = w.binary("udiv", column, w.i64(plan.n_block))
            within = w.binary("urem", column, w.i64(plan.n_block))
        k_value = w.i64(k_group) if isinstance(k_group, int) else k_group
        groups = self.packing.k_padded // self.group
        units = w.add(
            w.mul(w.add(w.mul(panel, w.i64(groups)), k_value), w.i64(plan.n_block)), within
        )
        size = self.group * self.bytes
        w.store(
            value, w.offset_bytes(self.place, w.mul(units, w.i64(size))), min(64, self.width * size)
        )

    def _row(self, row: Value) -> Value:
        return self.w.offset_bytes(self.matrix.pointer, self.w.mul(row, self.matrix.pitch_bytes))

    def _load(self, row: Value, column: Value, count: int, known_columns: int | None) -> Value:
        """`count` elements of one row; zero outside the source."""
        w, matrix = self.w, self.matrix
        kind = vector_type(self.element, count)
        place = w.offset_bytes(self._row(row), w.mul(column, w.i64(self.bytes)))
        zero = w.const(0, kind)
        if not self.is_ragged:
            if known_columns is None or known_columns >= count:
                return w.load(place, kind)
            lanes = [1 if n < known_columns else 0 for n in range(count)]
            return w.masked_load(place, kind, w.const_vector(lanes, "i1"), zero)
        columns = (
            matrix.columns_inside if matrix.columns_inside is not None else w.i64(matrix.columns)
        )
        left = w.intrinsic("smin", [w.sub(columns, column), w.i64(count)])
        if matrix.rows_inside is not None:
            left = w.select(w.icmp("slt", row, matrix.rows_inside), left, w.i64(0))
        limit = w.splat(w.cast("trunc", left, "i32"), count)
        mask = w.icmp("slt", w.const_vector(range(count), "i32"), limit)
        return w.masked_load(place, kind, mask, zero)

    # -- rows of the source are rows of k ---------------------------------------------------------

    def _straight(self) -> None:
        w, group = self.w, self.group
        full, rest = divmod(self.matrix.rows, group)
        with w.loop(w.i64(0), w.i64(full)) as groups:
            self._k_group(groups.index, group)
        if rest:
            self._k_group(w.i64(full), rest)

    def _k_group(self, k_group: Value, rows: int) -> None:
        """One group of k over all columns."""
        w, columns = self.w, self.matrix.columns
        full, rest = divmod(columns, self.width)
        first = w.mul(k_group, w.i64(self.group))
        self._prefetch(first, rows)
        if full <= 8:
            for n in range(full):
                self._chunk(k_group, first, rows, w.i64(n * self.width), None)
        else:
            with w.loop(w.i64(0), w.i64(full * self.width), self.width) as chunks:
                self._chunk(k_group, first, rows, chunks.index, None)
        if rest:
            self._chunk(k_group, first, rows, w.i64(full * self.width), rest)

    def _prefetch(self, first: Value, rows: int) -> None:
        """Ask for the rows that come later; addresses past the matrix do no harm."""
        w, row_bytes = self.w, self.matrix.columns * self.bytes
        # Four neighbouring lines are fetched together as it is.
        if row_bytes > LONG_ROW_BYTES or row_bytes >= _WIDE_ROW_BYTES or self.is_ragged:
            return
        for r in range(rows):
            ahead = self._row(w.add(first, w.i64(r + PREFETCH_ROWS)))
            for offset in range(0, row_bytes, 64):
                w.prefetch(w.offset_bytes(ahead, offset))

    def _chunk(
        self, k_group: Value, first: Value, rows: int, column: Value, known: int | None
    ) -> None:
        w = self.w
        kind = vector_type(self.element, self.width)
        parts = [self._load(w.add(first, w.i64(r)), column, self.width, known) for r in range(rows)]
        parts += [w.const(0, kind)] * (self.group - rows)
        while len(parts) > 1:
            # First with third, second with fourth: a second round then restores k's order.
            half = len(parts) // 2
            parts = [self._interleave(parts[n], parts[n + half]) for n in range(half)]
        self._store(parts[0], k_group, column)

    def _interleave(self, a: Value, b: Value) -> Value:
        from .builder import lane_count

        lanes = lane_count(a.type)
        if lanes == 1:
            both = self.w.const(0, vector_type(a.type, 2))
            return self.w.insert(self.w.insert(both, a, 0), b, 1)
        return self.w.shuffle(a, b, [x for n in range(lanes) for x in (n, lanes + n)])

    # -- rows of the source are columns of B ------------------------------------------------------

    def _transposed(self) -> None:
        """Square blocks of units of `group` elements, transposed in registers."""
        w, width = self.w, self.width
        units = -(-self.matrix.columns // self.group)
        full, rest = divmod(units, width)
        blocks = -(-self.matrix.rows // width)
        whole_rows = self.matrix.rows // width
        with w.loop(w.i64(0), w.i64(whole_rows * width), width) as rows:
            self._row_block(rows.index, width, full, rest)
        if blocks > whole_rows:
            first = whole_rows * width
            self._row_block(w.i64(first), self.matrix.rows - first, full, rest)

    def _row_block(self, row: Value, known_rows: int, full: int, rest: int) -> None:
        w, width = self.w, self.width
        with w.loop(w.i64(0), w.i64(full * width), width) as units:
            self._square(row, known_rows, units.index, None)
        if rest:
            self._square(row, known_rows, w.i64(full * width), rest)

    def _square(self, row: Value, known_rows: int, unit: Value, known_units: int | None) -> None:
        w, width = self.w, self.width
        column = w.mul(unit, w.i64(self.group))
        tail = self.matrix.columns % (width * self.group)
        count = width * self.group
        wide = vector_type(self.unit, width)
        lines = []
        for n in range(width):
            if n < known_rows:
                if known_rows == width and not self.is_ragged:
                    ahead = w.mul(column, w.i64(self.bytes))
                    w.prefetch(w.offset_bytes(self._row(w.add(row, w.i64(n + width))), ahead))
                line = self._load(
                    w.add(row, w.i64(n)),
                    column,
                    count,
                    None if known_units is None else tail or count,
                )
                lines.append(w.bitcast(line, wide))
            else:
                lines.append(w.const(0, wide))
        if width > 1:
            lines = transpose_square(s_writer=w, lines=lines)
        stored = width if known_units is None else known_units
        for n in range(stored):
            value = w.bitcast(lines[n], vector_type(self.element, count))
            self._store(value, w.add(unit, w.i64(n)), row)


def transpose_square(s_writer: object, lines: list[Value]) -> list[Value]:
    """Transpose n vectors of n lanes (n a power of two) in log2(n) rounds of interleaving."""
    w = s_writer
    size = len(lines)
    low = [x for n in range(size // 2) for x in (n, size + n)]
    high = [x for n in range(size // 2, size) for x in (n, size + n)]
    rounds = size.bit_length() - 1
    for _ in range(rounds):
        half = size // 2
        mixed: list[Value] = []
        for n in range(half):
            mixed.append(w.shuffle(lines[n], lines[n + half], low))  # type: ignore[attr-defined]
            mixed.append(w.shuffle(lines[n], lines[n + half], high))  # type: ignore[attr-defined]
        lines = mixed
    return lines
