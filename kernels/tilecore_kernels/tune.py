"""Choosing a configuration by measuring: the first few of a family's space, in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilecore.errors import TilecoreError
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore_kernels import FAMILIES, compile_kernel
from tilecore_kernels.measure import time_call
from tilecore_kernels.tensors import synchronizer, to_target


@dataclass(frozen=True, slots=True)
class Trial:
    """One configuration and what became of it.

    Attributes:
        config: the tiles.
        seconds: median time of a call; infinite when it could not be compiled or run.
        refusal: why not, or "".
    """

    config: Any
    seconds: float
    refusal: str = ""


def tune(
    name: str,
    problem: Any,
    backend: str | None = None,
    *,
    limit: int = 12,
    budget_s: float = 0.2,
    report: Callable[[Trial], None] | None = None,
) -> list[Trial]:
    """Measure the first `limit` configurations of a family, the fastest in front.

    All run on the same random input; the kernels' results are not compared here. Configurations
    take turns twice, so that a passing disturbance hits more than one.

    Args:
        name: key of `FAMILIES`.
        problem: the family's problem record.
        backend: which backend; None takes the best one present.
        limit: configurations to try, in the order of the family's cost model.
        budget_s: seconds of measurement for each turn of each.
        report: called with each trial of the first round.

    Raises:
        TilecoreError: no configuration could be compiled.
    """
    from tilecore.targets import choose_target

    target, family = choose_target(backend), FAMILIES[name]
    inputs = [to_target(a, target) for a in family.inputs(problem, np.random.default_rng(0))]
    outputs = [
        to_target(np.zeros(shape, numpy_dtype(dtype_of(dtype))), target)
        for shape, dtype in family.outputs(problem)
    ]
    kernels: dict[Any, Any] = {}
    trials: dict[Any, Trial] = {}
    for turn in range(2):
        for config in family.configs(problem, target)[:limit]:
            if turn == 0:
                trials[config] = Trial(config, float("inf"))
                try:
                    kernels[config] = compile_kernel(
                        name, problem, target.backend, arch=target.arch, config=config
                    )
                except TilecoreError as error:
                    trials[config] = Trial(config, float("inf"), str(error))
            if config in kernels:
                kernel = kernels[config]
                timing = time_call(
                    lambda kernel=kernel: kernel(*inputs, *outputs),
                    synchronizer(target),
                    budget_s=budget_s,
                    at_least=3,
                )
                best = min(trials[config].seconds, timing.median)
                trials[config] = Trial(config, best)
            if turn == 0 and report is not None:
                report(trials[config])
    if not kernels:
        raise TilecoreError(
            f"no configuration of {name} can be compiled for {target}",
            got="; ".join(trial.refusal for trial in trials.values()),
        )
    return sorted(trials.values(), key=lambda trial: trial.seconds)
