"""Tuning measures what compiles, and says why the rest does not."""

from __future__ import annotations

import math

import pytest

from tilecore.errors import BackendError, ResourceError, TilecoreError
from tilecore.targets import choose_target
from tilecore_kernels import tune
from tilecore_kernels.gemm import GemmProblem


@pytest.fixture(autouse=True)
def _needs_device() -> None:
    try:
        choose_target()
    except BackendError as error:
        pytest.skip(f"no device: {error}")


def test_trials_are_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_kernel, refused = tune.compile_kernel, []

    def sometimes(*arguments: object, **named: object) -> object:
        if not refused:
            refused.append(named["config"])
            raise ResourceError("too large")
        return compile_kernel(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(tune, "compile_kernel", sometimes)
    seen: list[tune.Trial] = []
    trials = tune.tune("gemm", GemmProblem(64, 65, 66), limit=3, budget_s=0.0, report=seen.append)
    assert len(trials) == len(seen) == 3
    assert [t.seconds for t in trials] == sorted(t.seconds for t in trials)
    assert trials[-1].config == refused[0] and trials[-1].refusal == "too large"
    assert all(math.isfinite(t.seconds) for t in trials[:-1])


def test_nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> object:
        raise ResourceError("too large")

    monkeypatch.setattr(tune, "compile_kernel", never)
    with pytest.raises(TilecoreError, match="no configuration"):
        tune.tune("gemm", GemmProblem(64, 65, 66), limit=2)
