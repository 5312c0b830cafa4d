"""Comparing what came out with what must come out, and saying where they differ."""

from __future__ import annotations

import numpy as np

from tilecore_conformance.experiment import Expected


def difference(actual: np.ndarray, expected: Expected) -> str:
    """Why `actual` is not what was expected, or "" when it is.

    Floats are compared in float64: nan only equals nan, an infinity only itself; finite values
    may differ by `expected.allowed`. Without allowance zeros must agree in sign. Everything else
    must be equal.
    """
    wanted = np.asarray(expected.value)
    if actual.shape != wanted.shape:
        return f"shape differs: got {actual.shape}, expected {wanted.shape}"
    if actual.dtype.kind in "biu" and wanted.dtype.kind in "biu":
        wrong = actual != wanted
    else:
        wrong = _wrong_floats(actual.astype(np.float64), wanted.astype(np.float64), expected)
    if not wrong.any():
        return ""
    where = np.argwhere(wrong)
    first = tuple(int(index) for index in where[0])
    allowed = np.broadcast_to(np.asarray(expected.allowed), wanted.shape)[first]
    return (
        f"{len(where)} of {wrong.size} elements differ; first at {first}: got {actual[first]!s}, "
        f"expected {wanted[first]!s}, allowed difference {allowed:.3g}"
        f"; {_extent(where, wanted.shape)}"
    )


def _wrong_floats(got: np.ndarray, wanted: np.ndarray, expected: Expected) -> np.ndarray:
    allowed = np.broadcast_to(np.asarray(expected.allowed, np.float64), wanted.shape)
    with np.errstate(invalid="ignore"):
        near = np.abs(got - wanted) <= allowed
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    exact = allowed == 0
    same &= ~exact | (np.signbit(got) == np.signbit(wanted)) | np.isnan(wanted)
    finite = np.isfinite(got) & np.isfinite(wanted)
    return ~np.where(finite & ~exact, near, same)


def _extent(where: np.ndarray, shape: tuple[int, ...]) -> str:
    """The smallest block that holds all differences: ragged edges show at a glance."""
    low, high = where.min(axis=0), where.max(axis=0)
    spans = ", ".join(f"{a}..{b}" for a, b in zip(low, high, strict=True))
    return f"differences within [{spans}] of {shape}"
