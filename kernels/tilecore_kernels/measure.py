"""Timing, and what this machine can do at most: the yardsticks of the demo and the benchmarks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call: the best and the median of several."""

    best: float
    median: float


def time_call(
    call: Callable[[], Any],
    synchronize: Callable[[], Any] | None = None,
    budget_s: float = 1.0,
    at_least: int = 5,
) -> Timing:
    """Time `call` until `budget_s` is used up, after one call to warm up.

    Args:
        call: what is measured.
        synchronize: waits for work that `call` only started.
        budget_s: seconds to spend.
        at_least: calls to make in any case.
    """
    wait = synchronize or (lambda: None)
    call()
    wait()
    samples: list[float] = []
    deadline = time.perf_counter() + budget_s
    while len(samples) < at_least or time.perf_counter() < deadline:
        start = time.perf_counter()
        call()
        wait()
        samples.append(time.perf_counter() - start)
    return Timing(min(samples), statistics.median(samples))


def copy_bandwidth(make: Callable[[tuple[int, ...], str], Any], synchronize: Any = None) -> float:
    """Bytes per second, read and written, of the best large copy that the array library does.

    Args:
        make: (shape, dtype name) -> tensor, of NumPy or torch.
        synchronize: waits for the device.
    """
    source, target = make((1 << 26,), "float32"), make((1 << 26,), "float32")
    if isinstance(source, np.ndarray):
        timing = time_call(lambda: np.copyto(target, source), budget_s=0.5)
    else:
        timing = time_call(lambda: target.copy_(source), synchronize, budget_s=0.5)
    return 2.0 * 4 * (1 << 26) / timing.best
