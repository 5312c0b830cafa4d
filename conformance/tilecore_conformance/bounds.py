"""How far a right answer may be from the oracle's: `tilecore.testing.tolerances` for this suite.

Every bound is derived from dtypes, the number of terms and the sizes of what is added; nothing is
tuned to a backend.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilecore.testing import tolerances
from tilecore.testing.tolerances import Tolerance
from tilecore_kernels.attention_problem import AttentionProblem
from tilecore_kernels.attention_problem import reference as attention_reference
from tilecore_kernels.backward_problem import weights_of

Bound = Any


def nothing(value: np.ndarray) -> Bound:
    """Equal, except that zeros of either sign are."""
    return Tolerance(absolute=1e-300).bound(np.zeros(np.shape(value)))


def rounding(size: np.ndarray, dtype: str, steps: int = 1) -> Bound:
    """Results of `steps` roundings to `dtype`, of intermediate values up to `size`."""
    return tolerances.rounding(dtype, steps).bound(size)


def function(value: np.ndarray, dtype: str, terms: int = 1) -> Bound:
    """A math function, or a normalisation by a sum of so many positive terms."""
    allowed = tolerances.function(dtype, 2 if terms > 1 else 1)
    if terms > 1:
        allowed += tolerances.reduction(dtype, terms)
    return allowed.bound(value, value)


def sum(size: np.ndarray, dtype: str, terms: int) -> Bound:
    """A sum in `dtype` in any order; `size` is the sum of the terms' absolute values."""
    return tolerances.reduction(dtype, terms, accumulator=dtype).bound(np.asarray(size), size)


def contraction(
    value: np.ndarray, size: np.ndarray, k: int, dtype: str, accum: str, out_dtype: str
) -> Bound:
    """A product of matrices: k terms summed in `accum`, rounded once."""
    return tolerances.contraction(out_dtype, k, accum, dtype).bound(value, size)


def attention(
    problem: AttentionProblem, arrays: tuple[np.ndarray, ...], values: tuple[np.ndarray, ...]
) -> list[Bound]:
    """Attention: the scores' absolute error is the weights' relative error."""
    q, k, v = (array.astype(np.float64) for array in arrays[:3])
    others = arrays[3:]  # lengths, sinks
    group = problem.heads // problem.kv_heads
    sizes = np.einsum(
        "bhqd,bhkd->bhqk", np.abs(q), np.repeat(np.abs(k), group, axis=1), optimize=True
    )
    largest = sizes.max(axis=-1, initial=0.0) * problem.scale
    products = tolerances.contraction("float32", problem.dim, inputs=problem.dtype)
    score_error = products.bound(largest, largest)
    # A weight is an exponential, rounded to the values' dtype, divided by a sum of weights.
    weights = tolerances.rounding(problem.dtype, 2) + tolerances.function("float32", 2)
    weights += tolerances.reduction("float32", problem.kv_len)
    relative = np.expm1(2.0 * score_error) + weights.relative + weights.of_magnitude
    average = attention_reference(problem, q, k, np.abs(v), *others)[0]
    found = [average * relative[..., None] + rounding(values[0], problem.dtype)]
    if problem.has_lse:
        found.append(score_error + weights.of_magnitude + rounding(values[1], "float32", steps=4))
    return found


def attention_8_bit(
    problem: AttentionProblem, arrays: tuple[np.ndarray, ...], values: tuple[np.ndarray, ...]
) -> list[Bound]:
    """Attention of 8-bit tensors, whose values in float64 are `arrays`; results are 16 bits wide.

    Both products drop bits of their sums. Weights are rounded to 8 bits against the row's largest,
    which is at least 2**6, so that each may lose half a subnormal: 2**-10 of 2**6.
    """
    out, *sums = attention(problem, arrays, values)
    v = np.abs(arrays[2])
    kept = tolerances.contraction("float32", problem.kv_len, inputs=problem.dtype)
    group = problem.heads // problem.kv_heads
    largest = np.repeat(v.max(axis=2, keepdims=True, initial=0.0), group, axis=1)
    flushed = problem.kv_len * 2.0**-16 * largest
    average = attention_reference(problem, *arrays[:2], v)[0]
    return [out + kept.bound(average, average) + flushed + rounding(values[0], "float16"), *sums]


def attention_backward(
    problem: AttentionProblem, arrays: tuple[np.ndarray, ...], values: tuple[np.ndarray, ...]
) -> list[Bound]:
    """Gradients of attention: what roundings of weights and slopes may add up to.

    With |A| the sizes behind ``dO V^T - D``, a slope is off by at most ``P |A|`` times the weights'
    relative error, their products' and two roundings; gradients are sums of these.
    """
    p = problem
    q, k, v, out, sums, grad = (np.abs(array.astype(np.float64)) for array in arrays[:6])
    group = p.heads // p.kv_heads
    keys, values_ = (np.repeat(x, group, axis=1) for x in (k, v))
    sizes = np.einsum("bhqd,bhkd->bhqk", q, keys, optimize=True) * p.scale
    products = tolerances.contraction("float32", max(p.dim, p.dim_v), inputs=p.dtype)
    score_error = products.bound(sizes, sizes) + np.finfo(np.float32).eps * sums[..., None]
    score_error = np.where(np.isfinite(score_error), score_error, 0.0)  # rows that see nothing
    weights = weights_of(p, *arrays)
    rounding_of = tolerances.rounding(p.dtype, 2) + tolerances.function("float32", 2)
    rounding_of += tolerances.reduction("float32", max(p.q_len * group, p.kv_len, p.dim_v))
    relative = np.expm1(2.0 * score_error) + rounding_of.relative + rounding_of.of_magnitude
    inner = np.einsum("bhqd,bhkd->bhqk", grad, values_, optimize=True)
    inner += (out * grad).sum(axis=-1, keepdims=True)
    weight_error, slope_error = weights * relative, weights * inner * relative

    def shared(x: np.ndarray) -> np.ndarray:
        return x.reshape(p.batch, p.kv_heads, group, *x.shape[2:]).sum(axis=2)

    errors = (
        np.einsum("bhqk,bhkd->bhqd", slope_error, keys, optimize=True) * p.scale,
        shared(np.einsum("bhqk,bhqd->bhkd", slope_error, q, optimize=True)) * p.scale,
        shared(np.einsum("bhqk,bhqd->bhkd", weight_error, grad, optimize=True)),
    )
    return [e + rounding(x, p.dtype) for e, x in zip(errors, values, strict=True)]
