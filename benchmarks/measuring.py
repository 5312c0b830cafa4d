"""How GPU benchmarks time and check: shared, so that their figures mean the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def milliseconds(call: Callable[[], Any], settle: int, measure: int) -> float:
    """Median time of a call with the second-level cache flushed in between.

    Args:
        call: what to time.
        settle: milliseconds of calls before timing.
        measure: milliseconds of calls that are timed.
    """
    from triton.testing import do_bench  # not needed to compile only

    return float(do_bench(call, warmup=settle, rep=measure, return_mode="median"))


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Norm of the difference over the norm; infinite where something is not finite."""
    error = (got.float() - want.float()).norm() / want.float().norm()
    return float(error) if bool(torch.isfinite(error)) else float("inf")
