"""The demonstration's rows and its yardsticks."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from tilecore.errors import BackendError
from tilecore.targets import choose_target
from tilecore_kernels import demo
from tilecore_kernels.attention_problem import AttentionProblem
from tilecore_kernels.gemm import GemmProblem
from tilecore_kernels.measure import time_call
from tilecore_kernels.softmax import SoftmaxProblem

SMALL = [
    demo.Exhibit("gemm", GemmProblem(64, 65, 66), "small float32"),
    demo.Exhibit("gemm", GemmProblem(64, 65, 66, "bfloat16"), "small bfloat16"),
    demo.Exhibit("flash_attention", AttentionProblem(1, 2, 65, 32, right=0), "small float32"),
    demo.Exhibit("softmax", SoftmaxProblem(33, 65), "small float32", True),
]


@pytest.fixture
def small_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        choose_target()
    except BackendError as error:
        pytest.skip(f"no device: {error}")
    monkeypatch.setattr(demo, "exhibits", lambda on_device: SMALL)
    monkeypatch.setattr(demo, "copy_bandwidth", lambda *_: 1e10)
    monkeypatch.setattr("tilecore_kernels.minilm.is_available", lambda: False)


@pytest.mark.usefixtures("small_demo")
def test_rows_are_checked_and_timed() -> None:
    lines: list[str] = []
    rows = demo.run(report=lines.append)
    assert len(rows) == len(SMALL)
    assert len(lines) == len(SMALL) + 1
    for row in rows:
        assert row.passed, row
        assert 0 <= row.error < 0.05
        assert row.milliseconds > 0 and row.rate > 0
        assert row.share is not None and row.share > 0


@pytest.mark.usefixtures("small_demo")
def test_a_wrong_result_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = demo._peer

    def shifted(*arguments: object) -> demo.Peer:
        found = peer(*arguments)  # type: ignore[arg-type]
        return replace(found, result=found.result + 0.1 * np.abs(found.result).max())

    monkeypatch.setattr(demo, "_peer", shifted)
    assert not any(row.passed for row in demo.run())


def test_timing_counts_the_call() -> None:
    begin = time.perf_counter()
    timing = time_call(lambda: time.sleep(0.01), budget_s=0.0, at_least=3)
    assert 0.01 <= timing.best <= timing.median <= time.perf_counter() - begin
