"""What a kernel module of this package offers, and how its program is compiled.

Every kernel is one file: the tile program, the float64 reference, the shapes that it is measured
at, and the space of its configurations. A `Family` gathers these under one name, so that the
tests, the benchmarks, the demo and the tuner treat all kernels alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilecore.target import Target

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """One kernel with everything that belongs to it.

    Attributes:
        name: how commands and reports call it.
        program: (problem, config) -> tile program.
        inputs: (problem, generator) -> input arrays in the program's order.
        outputs: problem -> (shape, dtype name) of each output, which follow the inputs.
        reference: (problem, *inputs) -> outputs in float64, by NumPy alone.
        configs: (problem, target) -> legal configurations, the one to take first in front.
        problems: sizes worth measuring.
        flops: floating point operations of one call.
        bytes_moved: bytes that one call must read and write at least.
    """

    name: str
    program: Callable[[Any, Any], Any]
    inputs: Callable[[Any, np.random.Generator], Arrays]
    outputs: Callable[[Any], tuple[tuple[tuple[int, ...], str], ...]]
    reference: Callable[..., Arrays]
    configs: Callable[[Any, Target], Sequence[Any]]
    problems: tuple[Any, ...]
    flops: Callable[[Any], float]
    bytes_moved: Callable[[Any], float]

    def default_config(self, problem: Any, target: Target) -> Any:
        """The configuration to take when nobody has tuned: the first of `configs`."""
        return self.configs(problem, target)[0]

    def build(self, problem: Any, target: Target, config: Any | None = None) -> Any:
        """The tile program of `problem` for `target`, in `config` or the default one."""
        return self.program(problem, config or self.default_config(problem, target))
