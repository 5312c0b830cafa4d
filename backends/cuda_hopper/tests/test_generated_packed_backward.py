"""Gradients over packed sequences in the emulator: tiles of keys from the launch's counter."""

from __future__ import annotations

import numpy as np
import pytest

import tilecore
from tilecore.compiler import lower
from tilecore_kernels.backward_problem import BackwardConfig
from tilecore_kernels.varlen_backward import VARLEN_BACKWARD
from tilecore_kernels.varlen_problem import VarlenProblem

SLOW = pytest.mark.slow
WHOLE = ((128, 128), (0, 9), (65, 200), (130, 90), (5, 0))


def lengths_of(seed: int) -> tuple[tuple[int, int], ...]:
    """Sequences as a seed draws them, a third of them without queries or keys."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, (200, 280), (int(rng.integers(1, 7)), 2)) * rng.integers(0, 3, (1, 2))
    return tuple((min(200, int(q)), min(280, int(k))) for q, k in drawn)


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=SLOW) for n in range(2, 16))])
def test_gradients_equal_float64(seed: int, staged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an order of warps that the seed draws."""
    monkeypatch.setenv("TILECORE_EMULATOR_SEED", str(seed))
    lengths = lengths_of(seed) if seed else WHOLE
    problem = VarlenProblem(2, 64, 200, kv_heads=1, right=(0, None)[seed % 2], lengths=lengths)
    config = BackwardConfig(128, 64, 128, 64, 2, 256, adds=True, staged=staged)
    program = VARLEN_BACKWARD.program(problem, config)
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    arrays = VARLEN_BACKWARD.inputs(problem, np.random.default_rng(seed))
    got = [np.full(x.shape, np.nan, x.dtype) for x in arrays[:3]]
    kernel(*arrays, *got)
    for one, other in zip(got, VARLEN_BACKWARD.reference(problem, *arrays), strict=True):
        np.testing.assert_allclose(one.astype(np.float64), other, rtol=5e-3, atol=5e-3)


def test_blocks_stay_and_add_without_guards() -> None:
    """Tiles come from the launch's counter; additions to dQ are four wide: their place is in range
    by the words in which it is written."""
    problem = VarlenProblem(16, 128, 8192, "float16", kv_heads=4, right=0)
    config = BackwardConfig(128, 64, 128, 64, 2, 256, adds=True)
    text = lower(VARLEN_BACKWARD.program(problem, config), backend="cuda_hopper").source.text
    gradients = text.split("TC_KERNEL(")[4]
    assert "hopper::take_tile(" in gradients
    assert "atomic_add_global<4>(" in gradients and "atomic_add_global(" not in gradients
