"""Score functions: what a user may do to scaled scores before the softmax.

A score function takes (score, head, query, key) and returns the new score. In a tile program these
are scalars of the language; the reference calls `on_arrays` with NumPy arrays where a function has
it, else the function itself. Any function (or `T.macro`) of this form will do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilecore.language as T

ScoreMod = Callable[[Any, Any, Any, Any], Any]


def on_arrays(mod: ScoreMod) -> ScoreMod:
    """The form of a score function for NumPy arrays."""
    return getattr(mod, "on_arrays", mod)


@dataclass(frozen=True, slots=True)
class Softcap:
    """Scores bounded smoothly: ``cap * tanh(score / cap)``."""

    cap: float

    def __call__(self, score: Any, head: Any, query: Any, key: Any) -> Any:
        """The new score.

        By one exponential and one reciprocal, ``tanh(x) = 1 - 2 / (1 + exp(2 x))``: its absolute
        error, which is what counts in an exponent, is that of float32 near `cap`.
        """
        grown = T.exp2(score * (2.0 * math.log2(math.e) / self.cap))
        return self.cap - 2.0 * self.cap * T.rcp(grown + 1.0)

    def on_arrays(self, score: Any, head: Any, query: Any, key: Any) -> Any:
        """The same on arrays."""
        return self.cap * np.tanh(score / self.cap)


@dataclass(frozen=True, slots=True)
class Alibi:
    """A penalty linear in the distance, ``2 ** (-8 (head + 1) / heads)`` for a step.

    Attributes:
        heads: heads of queries; a power of two, as in the paper "Train Short, Test Long".
        shift: position of query 0, for queries that continue a longer sequence.
    """

    heads: int
    shift: int = 0

    def __call__(self, score: Any, head: Any, query: Any, key: Any) -> Any:
        """The new score."""
        slope = T.exp2((head + 1) * (-8.0 / self.heads))
        return score - slope * T.abs(query + self.shift - key)

    def on_arrays(self, score: Any, head: Any, query: Any, key: Any) -> Any:
        """The same on arrays."""
        slope = np.exp2((head + 1) * (-8.0 / self.heads))
        return score - slope * np.abs(query + self.shift - key)
