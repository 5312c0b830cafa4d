"""Instructions of a warp that move small matrices between registers and shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.errors import BackendError
from tilecore.ir.layout import FragmentLayout


@dataclass(frozen=True, slots=True)
class MatrixLoad:
    """A warp-wide load of small matrices from shared memory into operand registers.

    A matrix has rows of `row_bytes` contiguous bytes. Of ``count`` matrices, lane
    ``j * rows + r`` passes the address of row r of matrix j. `layout` says, over (row, column) of
    one matrix, which lane and which register (within the matrix' registers) gets an element.

    Attributes:
        name: the backend's operation; emit rules know it. Its arguments are the registers and the
            address; hint ``count`` is the number of matrices.
        element_bits: width of the elements that it moves.
        rows: rows of one matrix.
        layout: over (rows, columns); columns are ``row_bytes * 8 / element_bits``.
        counts: how many matrices one call may load, most first.
    """

    name: str
    element_bits: int
    rows: int
    layout: FragmentLayout
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MatrixStore:
    """A warp-wide store of small matrices from registers to shared memory: `MatrixLoad` reversed.

    Attributes:
        name: the backend's operation, with the arguments and the hint of a `MatrixLoad`.
        element_bits: width of the elements that it moves.
        layout: over (rows, columns) of one matrix, whose rows are contiguous bytes.
        counts: how many matrices one call may store, most first; 1 is among them.
    """

    name: str
    element_bits: int
    layout: FragmentLayout
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        layout = self.layout
        if len(layout.shape) != 2 or not layout.is_bijective() or 1 not in self.counts:
            raise BackendError(
                f"matrix store {self.name}",
                expected="a bijective layout over (rows, columns), and 1 among the counts",
                got=f"{layout}, counts {self.counts}",
            )
