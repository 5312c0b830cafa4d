"""How far a right answer may be from the float64 oracle's: derived, never tuned.

The model. One rounding to a dtype with p fraction bits changes a value by at most ``u`` of it,
``u = 2 ** -(p + 1)``, or by half the smallest positive number. A result is the exact value, changed
by (a) the roundings of its k-term sum in the accumulator and (b) the final rounding to the output:

    |actual - oracle| <= growth(k) * u_accumulator * sum(|a| * |b|)      (a)
                       + u_output * |oracle| + smallest_output / 2       (b)

Sums that round to nearest have errors of either sign: ``growth`` is ``4 * sqrt(k) + 4`` (four
standard deviations; N. Higham and T. Mary, "A new approach to probabilistic rounding error
analysis", SIAM J. Sci. Comput. 41, 2019). Matrix units drop bits instead of rounding, always
towards zero, so errors add up: ``growth`` is ``2 * (k + 4)``, the worst case. Units that multiply
8-bit floats keep about 13 fraction bits of a partial sum, whatever the accumulator's dtype.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilecore.ir.dtypes import DType, dtype_of, float32, float64

Array = npt.NDArray[np.float64]

FP8_SUM_BITS = 13
"""Fraction bits that matrix units keep of partial sums of 8-bit floats."""
FUNCTION_ROUNDINGS = 8
"""Roundings that exp, tanh and the like may be off by: vendors' libraries state 1 to 4 ulp."""


def unit_roundoff(dtype: object) -> float:
    """The largest relative error of one rounding to nearest, ``2 ** -(fraction bits + 1)``."""
    return 2.0 ** -(dtype_of(dtype).mantissa_bits + 1)


def smallest_normal(dtype: object) -> float:
    """The smallest positive normal number, with the exponent bias of IEEE 754 formats."""
    return 2.0 ** (2 - 2 ** (dtype_of(dtype).exponent_bits - 1))


def smallest_positive(dtype: object) -> float:
    """The smallest positive number: the spacing of subnormals."""
    return smallest_normal(dtype) * 2.0 ** -dtype_of(dtype).mantissa_bits


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest allowed difference, as a sum of three parts.

    Attributes:
        relative: of the oracle's absolute value.
        absolute: whatever the value.
        of_magnitude: of the sum of the absolute values of what was added up.
    """

    relative: float = 0.0
    absolute: float = 0.0
    of_magnitude: float = 0.0

    def bound(self, reference: Array, magnitude: Array | float | None = None) -> Array:
        """The allowed difference of each element.

        Args:
            reference: the oracle's values.
            magnitude: for sums, ``sum(|terms|)`` of each element, e.g. ``abs(a) @ abs(b)``.

        Raises:
            ValueError: the tolerance is one of sums and no magnitude was given.
        """
        size = np.abs(np.asarray(reference, np.float64))
        allowed = self.relative * np.where(np.isfinite(size), size, 0.0) + self.absolute
        if self.of_magnitude:
            if magnitude is None:
                raise ValueError("the tolerance of a sum needs the magnitude of its terms")
            terms = np.abs(np.asarray(magnitude, np.float64))
            allowed = allowed + self.of_magnitude * np.where(np.isfinite(terms), terms, 0.0)
        return np.asarray(allowed)

    def __add__(self, other: Tolerance) -> Tolerance:
        """Both errors may happen, one after the other."""
        return Tolerance(
            self.relative + other.relative,
            self.absolute + other.absolute,
            self.of_magnitude + other.of_magnitude,
        )


def rounding(dtype: object, times: int = 1) -> Tolerance:
    """`times` roundings to `dtype` of values of the oracle's size. Integers are exact."""
    kind = dtype_of(dtype)
    if not kind.is_float:
        return Tolerance()
    relative = times * unit_roundoff(kind) * (1.0 + 2.0**-8)  # of the rounded, not the exact value
    return Tolerance(relative, times * smallest_positive(kind) / 2)


def function(dtype: object, calls: int = 1) -> Tolerance:
    """`calls` math functions, computed in float32 or wider, then rounded to `dtype`."""
    kind = dtype_of(dtype)
    inner = computed_in(kind)
    flushed = smallest_normal(inner)  # devices may give 0 for subnormal results
    steps = Tolerance(calls * FUNCTION_ROUNDINGS * unit_roundoff(inner), calls * flushed)
    return steps + rounding(kind)


def computed_in(dtype: DType) -> DType:
    """The dtype of scalar arithmetic: narrow floats are computed in float32."""
    return float64 if dtype is float64 else float32


def reduction(dtype: object, terms: int, accumulator: object = "float32") -> Tolerance:
    """A sum of so many terms in any order, then rounded to `dtype`."""
    if not dtype_of(dtype).is_float:
        return Tolerance()
    growth = 4.0 * math.sqrt(max(1, terms)) + 4.0
    return Tolerance(of_magnitude=growth * unit_roundoff(accumulator)) + rounding(dtype)


def contraction(
    dtype: object,
    k: int,
    accumulator: object = "float32",
    inputs: object = "float16",
    *,
    truncates: bool = True,
) -> Tolerance:
    """An element of a product of matrices.

    Args:
        dtype: of the output.
        k: length of the contraction.
        accumulator: dtype in which products are summed.
        inputs: dtype of the operands. tfloat32 operands lose bits on their way in.
        truncates: sums are cut off, as in matrix units, instead of rounded.
    """
    if not dtype_of(dtype).is_float:
        return Tolerance()
    growth = 2.0 * (k + 4) if truncates else 4.0 * math.sqrt(max(1, k)) + 4.0
    unit = unit_roundoff(accumulator)
    source = dtype_of(inputs)
    if truncates and source.is_float and source.bits <= 8:
        unit = max(unit, 2.0 ** -(FP8_SUM_BITS + 1))
    lost = 4.0 * unit_roundoff("tfloat32") if source.name == "tfloat32" else 0.0
    return Tolerance(of_magnitude=growth * unit + lost) + rounding(dtype)
