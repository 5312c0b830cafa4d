"""Activations as tile functions (expression in, expression out) and their float64 references.

Any function of one expression can be given to the kernels in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilecore.language as T

SQRT_HALF = 0.7071067811865476
SQRT_2_OVER_PI = 0.7978845608028654
GELU_TANH_CUBIC = 0.044715  # the fitted coefficient of the tanh form (Hendrycks and Gimpel, 2016)


@dataclass(frozen=True, slots=True)
class Activation:
    """A named elementwise function.

    Attributes:
        name: how problems and reports call it.
        tile: builds the expression inside a tile program.
        reference: the same on a float64 array.
    """

    name: str
    tile: Callable[[Any], Any]
    reference: Callable[[np.ndarray], np.ndarray]


def _erf(x: np.ndarray) -> np.ndarray:
    from math import erf

    return np.vectorize(erf, otypes=[np.float64])(x) if x.size else x.astype(np.float64)


def _gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1.0 + T.tanh(SQRT_2_OVER_PI * (x + GELU_TANH_CUBIC * x * x * x)))


def _gelu_tanh_reference(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.tanh(SQRT_2_OVER_PI * (x + GELU_TANH_CUBIC * x**3)))


def _silu_reference(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp(-x) of a very negative x is inf, and 1 / inf is right
        return x / (1.0 + np.exp(-x))


ACTIVATIONS = {
    item.name: item
    for item in (
        Activation("identity", lambda x: x, lambda x: x),
        # Written as a select because T.max would turn a nan into zero.
        Activation("relu", lambda x: T.if_then_else(x < 0, 0.0, x), lambda x: np.maximum(x, 0.0)),
        Activation(
            "gelu",
            lambda x: 0.5 * x * (1.0 + T.erf(x * SQRT_HALF)),
            lambda x: 0.5 * x * (1.0 + _erf(x * SQRT_HALF)),
        ),
        Activation("gelu_tanh", _gelu_tanh, _gelu_tanh_reference),
        Activation("silu", lambda x: x * T.sigmoid(x), _silu_reference),
        Activation("tanh", T.tanh, np.tanh),
    )
}
"""The activations that models use most, by name."""


@T.macro
def add_bias_and_activate(sums, Bias, first, activation):
    """The epilogue of a product: ``activation(sums + bias)`` of a tile whose columns begin at
    `first`. `Bias` may be None, and `activation` is a name of `ACTIVATIONS`."""
    tile_m, tile_n = (int(extent) for extent in sums.shape)
    apply = ACTIVATIONS[activation].tile
    if Bias is not None:
        bias = T.alloc_fragment((tile_n,), sums.dtype)
        T.copy(Bias[first], bias)
        for i, j in T.Parallel(tile_m, tile_n):
            sums[i, j] = apply(sums[i, j] + bias[j])
    elif activation != "identity":
        for i, j in T.Parallel(tile_m, tile_n):
            sums[i, j] = apply(sums[i, j])
