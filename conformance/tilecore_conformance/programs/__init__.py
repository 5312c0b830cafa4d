"""The tile programs of the suite, by name, and the arrays and oracles that go with them.

A builder takes a case's parameters and a generator, and returns an `Experiment`. It may use only
the public language, and its oracle only NumPy.
"""

from __future__ import annotations

import functools
import importlib
import zlib
from typing import Any

import numpy as np

from tilecore_conformance.cases import Case
from tilecore_conformance.experiment import Experiment

MODULES = (
    "elementwise", "copies", "reductions", "gemms", "control", "pipelines", "predication",
    "atomics", "families", "gemm_kernels", "attentions", "casts", "specials", "sizes",
    "constructs", "lanes", "warps", "views",
)  # fmt: skip


@functools.lru_cache(maxsize=1)
def _builders() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in MODULES:
        module = importlib.import_module(f"{__name__}.{name}")
        for builder in module.BUILDERS:
            if builder.__name__ in found:
                raise ValueError(f"two builders are called {builder.__name__}")
            found[builder.__name__] = builder
    return found


def build(case: Case) -> Experiment:
    """The experiment of a case; the same case always gets the same arrays.

    Raises:
        KeyError: the case names no builder.
    """
    rng = np.random.default_rng(zlib.crc32(case.id.encode()))
    return _builders()[case.program](rng=rng, **dict(case.params))
