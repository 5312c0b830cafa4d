"""`assert_close`: a comparison that says what is wrong, where, and by how much."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilecore.testing.tolerances import Array, Tolerance


def as_float64(values: Any) -> Array:
    """NumPy arrays, torch tensors and numbers as float64."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values).astype(np.float64)


def assert_close(
    actual: Any,
    reference: Any,
    tolerance: Tolerance | float = 0.0,
    *,
    magnitude: Any = None,
    name: str = "result",
) -> None:
    """Check a result against the oracle's.

    Not-a-numbers and infinities are values: they must be in the same places, infinities with the
    same sign.

    Args:
        actual: what came out; array, torch tensor or number.
        reference: the float64 oracle's answer, of the same shape.
        tolerance: how far apart they may be; a number is an absolute difference.
        magnitude: for tolerances of sums, ``sum(|terms|)`` of each element.
        name: what the message calls the result.

    Raises:
        AssertionError: with the count, the worst element and the extent of the differences.
    """
    got, wanted = as_float64(actual), as_float64(reference)
    if got.shape != wanted.shape:
        raise AssertionError(f"{name}: shape {got.shape}, expected {wanted.shape}")
    if isinstance(tolerance, Tolerance):
        allowed = tolerance.bound(wanted, None if magnitude is None else as_float64(magnitude))
    else:
        allowed = np.asarray(float(tolerance))
    allowed = np.broadcast_to(allowed, wanted.shape)
    is_special = ~np.isfinite(got) | ~np.isfinite(wanted)
    with np.errstate(invalid="ignore", over="ignore"):
        same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
        error = np.where(is_special, np.where(same, 0.0, np.inf), np.abs(got - wanted))
    wrong = error > allowed
    if wrong.any():
        raise AssertionError(_report(name, got, wanted, error, allowed, wrong))


def _report(
    name: str,
    got: Array,
    wanted: Array,
    error: Array,
    allowed: Array,
    wrong: npt.NDArray[np.bool_],
) -> str:
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.where(wrong, np.where(allowed > 0, error / allowed, error), 0.0)
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(excess)), got.shape))
    where = np.argwhere(wrong)
    first = tuple(int(i) for i in where[0])
    lines = [
        f"{name}: {len(where)} of {wrong.size} elements are wrong"
        f" ({100.0 * len(where) / wrong.size:.3g} %)",
        f"  worst at {worst}: {_element(worst, got, wanted, error, allowed)}",
        f"  first at {first}: {_element(first, got, wanted, error, allowed)}",
    ]
    if wanted.ndim:
        spans = zip(where.min(axis=0), where.max(axis=0), strict=True)
        lines.append(f"  within {', '.join(f'{low}..{high}' for low, high in spans)}")
    counts = [
        f"{label} {int(test(got).sum())} (expected {int(test(wanted).sum())})"
        for label, test in (("nan", np.isnan), ("inf", np.isinf))
        if test(got).any() or test(wanted).any()
    ]
    return "\n".join(lines + ([f"  {', '.join(counts)}"] if counts else []))


def _element(at: tuple[int, ...], got: Array, wanted: Array, error: Array, allowed: Array) -> str:
    return (
        f"got {got[at]:.9g}, expected {wanted[at]:.9g}, "
        f"difference {error[at]:.3g}, allowed {allowed[at]:.3g}"
    )
