"""Layouts of shared rows whose 16-byte vectors are XORed with the number of their 128-byte line.

A matrix load reads one vector of 8 neighbouring rows, a copy neighbouring vectors of a row: with
the XOR each finds banks of its own. Backends choose where it pays (`bank_conflicts` counts).
"""

from __future__ import annotations

from tilecore.ir.layout import Layout, Mode, Swizzle

VECTOR_BYTES = 16
LINE_BYTES = 128


def swizzled_panels(shape: tuple[int, ...], element_bytes: int) -> Layout | None:
    """Panels of rows of at most a line, swizzled; None when rows are too narrow or uneven."""
    *outer, rows, columns = shape
    panel_bytes = min(_even_bytes(columns * element_bytes), LINE_BYTES)
    if panel_bytes < 2 * VECTOR_BYTES:
        return None
    panel = panel_bytes // element_bytes
    period_bytes = LINE_BYTES * panel_bytes // VECTOR_BYTES
    if rows * panel_bytes % period_bytes and (columns > panel or outer):
        return None  # the next panel or tile would start inside the pattern
    return _swizzled(shape, element_bytes, panel, (panel, rows * panel))


def swizzled_lines(shape: tuple[int, ...], element_bytes: int) -> Layout | None:
    """Rows that are no power of two: row by row, each column XORed with its line's number.

    A row of an odd number times 2^s columns: rows that share banks, 2^(3-s) apart, are an odd
    number of lines apart, so the low s bits of their lines' numbers differ, and XORing a column's
    low s bits with these gives each of 8 rows its own banks. 8 columns that follow each other in
    memory stay in their line. None where a row is an odd number of columns (s = 0) or of lines.
    """
    columns = shape[-1]
    run_bytes = _even_bytes(columns * element_bytes)
    if not 2 * VECTOR_BYTES <= run_bytes < LINE_BYTES:
        return None
    run = run_bytes // element_bytes
    return _swizzled(shape, element_bytes, run, (columns, run))


def _even_bytes(row_bytes: int) -> int:
    """The largest power of two that divides a row."""
    return row_bytes & -row_bytes


def _swizzled(
    shape: tuple[int, ...], element_bytes: int, run: int, strides: tuple[int, int]
) -> Layout:
    """Rows of runs of `run` columns; `strides` from row to row and from run to run."""
    *outer, rows, columns = shape
    row_stride, run_stride = strides
    axes: list[tuple[Mode, ...]] = []
    stride = rows * columns
    for extent in reversed(outer):
        axes.insert(0, (Mode(extent, stride),))
        stride *= extent
    runs = columns // run
    axes.append((Mode(rows, row_stride),))
    axes.append((Mode(run, 1), Mode(runs, run_stride)) if runs > 1 else (Mode(run, 1),))
    bits = (run * element_bytes // VECTOR_BYTES).bit_length() - 1
    base = (VECTOR_BYTES // element_bytes).bit_length() - 1
    # Offsets count in lines of 8 vectors each: the XOR takes the line's number.
    return Layout(tuple(axes), Swizzle(bits, base, 3))
