"""How far a right answer may be from the oracle's.

Every bound is derived from dtypes, the number of terms and the sizes of what is added, with the
constants of `tilecore.testing.tolerances`; no number is tuned to a backend.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilecore.ir.dtypes import dtype_of
from tilecore_kernels.attention_problem import AttentionProblem
from tilecore_kernels.attention_problem import reference as attention_reference

Bound = Any
MATH_STEPS = 8  # roundings that a math function may be off: device libraries state 1 to 4
FP8_ACCUMULATOR_BITS = 13  # what fp8 matrix units keep of a sum (measured and published as 13-14)


def unit(dtype: str) -> float:
    """Unit roundoff: the largest relative error of one rounding to nearest."""
    return 2.0 ** -(dtype_of(dtype).mantissa_bits + 1)


def smallest_normal(dtype: str) -> float:
    """The smallest positive normal number."""
    return 2.0 ** (2 - 2 ** (dtype_of(dtype).exponent_bits - 1))


def spacing_of_subnormals(dtype: str) -> float:
    """The smallest positive number."""
    return smallest_normal(dtype) * 2.0 ** -dtype_of(dtype).mantissa_bits


def _computed_in(dtype: str) -> str:
    """Narrow floats are computed in float32 and rounded."""
    return "float64" if dtype == "float64" else "float32"


def nothing(value: np.ndarray) -> Bound:
    """Equal, except that zeros of either sign are."""
    return np.full(np.shape(value), 1e-300)


def rounding(size: np.ndarray, dtype: str, steps: int = 1) -> Bound:
    """Results of `steps` roundings to `dtype`, of intermediate values up to `size`."""
    relative = steps * unit(dtype) * (1.0 + 2.0**-8)
    return _finite(size) * relative + spacing_of_subnormals(dtype) * steps


def function(value: np.ndarray, dtype: str, terms: int = 1) -> Bound:
    """A math function, or a normalisation over so many terms; its underflow may be flushed."""
    inner = _computed_in(dtype)
    relative = unit(dtype) * (1.0 + 2.0**-8) + (MATH_STEPS + terms - 1) * unit(inner)
    return _finite(value) * relative + smallest_normal(inner) + spacing_of_subnormals(dtype)


def sum(size: np.ndarray, dtype: str, terms: int) -> Bound:
    """A sum in `dtype` in any order; `size` is the sum of the terms' absolute values.

    Rounding errors of a sum are as good as independent, so they grow with the square root of
    their number (Higham and Mary, 2019): four standard deviations of the worst order are allowed.
    """
    return _finite(size) * (2.0 * np.sqrt(terms) + 2.0) * unit(dtype)


def contraction(
    value: np.ndarray, size: np.ndarray, k: int, dtype: str, accum: str, out_dtype: str
) -> Bound:
    """A product of matrices: k terms summed in `accum` by truncating units, rounded once."""
    per_term = 2.0 * unit(accum)
    if dtype.startswith("float8"):
        per_term = max(per_term, 2.0**-FP8_ACCUMULATOR_BITS)
    relative = (k + 4) * per_term
    if dtype == "tfloat32":
        relative += 2.0 * unit("tfloat32") * 2.0  # both operands lose bits, by truncation
    return _finite(size) * relative + rounding(value, out_dtype)


def attention(
    problem: AttentionProblem, arrays: tuple[np.ndarray, ...], values: tuple[np.ndarray, ...]
) -> list[Bound]:
    """Attention: the scores' absolute error is the weights' relative error."""
    q, k, v, *rest = (array.astype(np.float64) for array in arrays)
    lengths = [rest[0].astype(np.int64)] if rest else []
    group = problem.heads // problem.kv_heads
    sizes = np.einsum(
        "bhqd,bhkd->bhqk", np.abs(q), np.repeat(np.abs(k), group, axis=1), optimize=True
    )
    largest = sizes.max(axis=-1, initial=0.0) * problem.scale
    score_error = largest * (2 * (problem.dim + 4)) * unit("float32")
    average = attention_reference(problem, q, k, np.abs(v), *lengths)[0]
    terms = 2.0 * np.sqrt(problem.kv_len) + 2.0
    weight_error = np.expm1(2.0 * score_error) + 2.0 * unit(problem.dtype)
    weight_error += (2 * MATH_STEPS + terms) * unit("float32")
    found = [average * weight_error[..., None] + rounding(values[0], problem.dtype)]
    if problem.has_lse:
        found.append(
            score_error + rounding(values[1], "float32", steps=4) + terms * unit("float32")
        )
    return found


def _finite(size: np.ndarray) -> np.ndarray:
    """Absolute values; where there is no number, no difference is allowed anyway."""
    return np.abs(np.where(np.isfinite(size), size, 0.0))
